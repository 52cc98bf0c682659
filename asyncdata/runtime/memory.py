"""Warm memory: large objects are made of memory that earlier ones left, not of fresh pages."""

from __future__ import annotations

from functools import cache

__all__ = ("keep_memory_warm",)

LARGEST = (32 << 20) - (1 << 16)


@cache
def keep_memory_warm() -> None:
    """Teach glibc's allocator, once, to keep up to 64 MB of freed memory instead of giving it back to the kernel.

    A pipeline frees a batch and makes the next of the same size. By default each large block is mapped anew, and its
    pages are faulted in one by one, which costs more than copying the data: batches of 100 KB records take 1.4 times as
    long. glibc raises both of its thresholds when a mapped block is freed (mallopt(3), M_MMAP_THRESHOLD); this frees
    one of just below the largest size that counts. Other allocators are not changed by it. Nothing is touched.
    """
    bytearray(LARGEST)

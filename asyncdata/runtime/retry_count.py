"""RETRIED: what counts the calls and requests that are made again for a step."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ("RETRIED", "count_retry", "retries_counted")

RETRIED: Final[ContextVar[list[None] | None]] = ContextVar("RETRIED", default=None)
"""A list, to which any thread may add."""


def count_retry() -> None:
    """Count a call or a request that is made again."""
    retried = RETRIED.get()
    if retried is not None:
        retried.append(None)


@contextmanager
def retries_counted(retried: list[None]) -> Generator[None]:
    """Count repeated calls for a step: those here, and in tasks and threads that are started here.

    For awaiting, not around a `yield`: other steps run in the same context then.
    """
    before = RETRIED.get()
    RETRIED.set(retried)
    try:
        yield
    finally:
        RETRIED.set(before)

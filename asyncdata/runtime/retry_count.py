"""RETRIED: counts the retried calls and requests of a step."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ("RETRIED", "count_retry", "retries_counted")

RETRIED: Final[ContextVar[list[None] | None]] = ContextVar("RETRIED", default=None)
"""A list, to which any thread may add."""


def count_retry() -> None:
    """Count a retried call or request."""
    retried = RETRIED.get()
    if retried is not None:
        retried.append(None)


@contextmanager
def retries_counted(retried: list[None]) -> Generator[None]:
    """Count the retried calls of a step, within this block and in tasks and threads started in it.

    Use it around an `await`, not around a `yield`, during which other steps run in the same context.
    """
    before = RETRIED.get()
    RETRIED.set(retried)
    try:
        yield
    finally:
        RETRIED.set(before)

"""What is sent by programs that are killed: numbers, some of which are bad."""

from __future__ import annotations

__all__ = ("PARTITIONS", "body_of", "checked", "is_good")

PARTITIONS = 3
"""How many partitions share the numbers, where a queue has some."""


def is_good(number: int) -> bool:
    """Return whether a number is to be trained on; one in ten is no number when it comes, one in ten fails later."""
    return number % 10 not in (3, 7)


def body_of(number: int) -> bytes:
    """Return what is sent for a number, which is JSON."""
    return b'"bad %d"' % number if number % 10 == 3 else b"%d" % (number if is_good(number) else -number)


def checked(number: int) -> int:
    """Raise for numbers that fail when they have come."""
    if number < 0:
        raise ValueError(number)
    return number

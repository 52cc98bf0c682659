"""Draws: whether a sampler with replacement gave each draw once, and how often each record was drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

__all__ = ("faults_of_draws", "times_in_words")

OFTEN: Final = ("once", "twice", "three times", "four times", "five times")


def faults_of_draws(steps: Iterable[tuple[int, Sequence[Any]]], in_order: bool) -> Iterator[str]:
    """Yield what is wrong with the records of the steps of one rank: each step must have the draws of one batch, all of
    them in their order, and each batch must come once."""
    given = Counter[int]()
    for step, leaves in steps:
        numbers = {(leaf[0], leaf[1]) for leaf in leaves if len(leaf) == 4}
        (number, size), *others = numbers or {(-1, -1)}
        if others or len(leaves) != size or [leaf[2] for leaf in leaves if len(leaf) == 4] != [*range(size)]:
            yield f"step {step} does not have the draws of one batch, each once and in their order"
        elif in_order and number != step:
            yield f"step {step} has the draws of batch {number}"
        given[number] += 1
    yield from [
        f"the draws of batch {number} were delivered {times} times" for number, times in given.items() if times > 1
    ]


def times_in_words(records: Iterable[Any]) -> str:
    """Return how many records came how often.

    >>> times_in_words([3, 4, 3])
    '1 record once, 1 twice'
    """
    times = Counter(Counter(records).values())
    words = [f"{times[often]:,} {how}" for often, how in enumerate(OFTEN, 1) if times[often]]
    more = sum(count for often, count in times.items() if often > len(OFTEN))
    words += [f"{more:,} more often"] if more else []
    first, _, rest = ", ".join(words).partition(" ")
    return f"{first} {'record' if first == '1' else 'records'} {rest}" if words else ""

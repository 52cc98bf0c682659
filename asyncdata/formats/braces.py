"""Patterns with braces, as Energon and shells expand them: `{000..009}`, `{a,b}`, one in another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

__all__ = ("expand_braces",)

RANGE: Final = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")

MOST: Final = 10_000_000
"""More names than a data set has files."""


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern stands for, in order; `ValueError` if these are too many.

    >>> expand_braces("{train,val}/{08..10}.tar")
    ['train/08.tar', 'train/09.tar', 'train/10.tar', 'val/08.tar', 'val/09.tar', 'val/10.tar']
    """
    begin, end = outermost(pattern, 0)
    if begin < 0:
        return [pattern]
    inside, rest = pattern[begin + 1 : end], expand_braces(pattern[end + 1 :])
    choices = [*choices_of(inside)]
    if len(choices) * len(rest) > MOST:
        raise ValueError(f"{pattern!r:.80} stands for more than {MOST} names")
    return [f"{pattern[:begin]}{choice}{other}" for choice, other in product(choices, rest)]


def outermost(pattern: str, start: int) -> tuple[int, int]:
    """Return where the first pair of braces is that is closed; -1 if there is none."""
    depth, begin = 0, -1
    for place in range(start, len(pattern)):
        if pattern[place] == "{":
            begin = place if not depth else begin
            depth += 1
        elif pattern[place] == "}" and depth:
            depth -= 1
            if not depth:
                return begin, place
    return outermost(pattern, begin + 1) if depth else (-1, -1)


def choices_of(inside: str) -> Iterator[str]:
    """Yield what may stand in the place of a pair of braces."""
    parts = [*split_commas(inside)]
    if len(parts) > 1:
        for part in parts:
            yield from expand_braces(part)
    elif (found := RANGE.fullmatch(inside)) and found[1].lstrip("-").isdigit() == found[2].lstrip("-").isdigit():
        yield from values_between(found[1], found[2], abs(int(found[3] or 1)) or 1)
    else:
        yield from (f"{{{part}}}" for part in expand_braces(inside))


def split_commas(text: str) -> Iterator[str]:
    """Yield the parts between commas that are in no braces."""
    depth = begin = 0
    for place, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def values_between(first: str, last: str, step: int) -> Iterator[str]:
    """Yield numbers, as wide as the ends are if one of these begins with zero, or letters."""
    if not first.lstrip("-").isdigit():
        yield from map(chr, steps(ord(first), ord(last), step))
        return
    padded = any(re.match("-?0.", end) for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    yield from (f"{number:0{width}}" for number in steps(int(first), int(last), step))


def steps(first: int, last: int, step: int) -> range:
    if abs(last - first) // step > MOST:
        raise ValueError(f"{{{first}..{last}}} stands for more than {MOST} names")
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)

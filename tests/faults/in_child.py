"""Run pipelines with functions, classes and errors of this script in a child of multiprocessing; print what they give.

Usage: in_child.py fork|forkserver|spawn current|thread|process FOLDER
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from dataclasses import dataclass
from typing import Any

import asyncdata as ad


@dataclass
class Pair:
    first: int
    second: int


class OddError(Exception):
    pass


@functools.cache
def pair(number: int) -> Pair:
    return made(number)


def made(number: int) -> Pair:
    if number == 3:
        raise OddError(number)
    return Pair(number, number + 1)


def added(both: Pair) -> int:
    assert type(both) is Pair
    return both.first + both.second


def read(placement: Any, folder: str) -> None:
    pairs = ad.Dataset.range(6).map(pair, executor="process")
    sums = pairs.map(added, executor="process").ignore_errors()
    ds = sums.with_options(ad.Options(placement=placement)).cache(folder + "/kept")
    elements, found = iter(pairs), list[Any]()
    for _ in range(6):
        try:
            found.append(next(elements))
        except OddError:
            found.append("odd")
    assert found == [Pair(0, 1), Pair(1, 2), Pair(2, 3), "odd", Pair(4, 5), Pair(5, 6)]
    print(list(ds), flush=True)


if __name__ == "__main__":
    method, placement, folder = sys.argv[1:]
    child = multiprocessing.get_context(method).Process(target=read, args=(placement, folder))
    child.start()
    child.join()
    read(placement, folder)

"""Bytes and text of NumPy that end with zeros, which its arrays drop: they are what they were, wherever they go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

VALUES = [np.bytes_(b"ab\0"), np.bytes_(b"\0\0"), np.bytes_(b""), np.str_("ab\0"), np.str_("\0"), np.str_("")]
MANY = 700
"""So many elements go as columns where they can."""


def value(number: int) -> Any:
    return VALUES[number % len(VALUES)]


def same(number: int) -> Any:
    return np.bytes_(b"ab\0"), np.int64(number)


def alike(found: list[Any], expected: list[Any]) -> bool:
    """Compare characters one by one: NumPy's own comparison drops zeros at the end."""

    def told(element: Any) -> Any:
        parts = element if isinstance(element, tuple) else (element,)
        return [(type(part), [*part] if isinstance(part, (str, bytes)) else part) for part in parts]

    return [*map(told, found)] == [*map(told, expected)]


def kept(way: str) -> Callable[[ad.Dataset[Any], Path], ad.Dataset[Any]]:
    def through(ds: ad.Dataset[Any], path: Path) -> ad.Dataset[Any]:
        if way == "save":
            ds.save(str(path / "saved"))
            return ad.Dataset.load(str(path / "saved"))
        made = ds.cache(str(path / "kept")) if way == "cache" else ds.snapshot(str(path))
        list(made)
        return made

    return through


WAYS: dict[str, Callable[[ad.Dataset[Any], Path], ad.Dataset[Any]]] = {
    "results of workers": lambda ds, _: ds.map(
        lambda *parts: parts if len(parts) > 1 else parts[0], executor="process"
    ),
    "placement": lambda ds, _: ds.with_options(ad.Options(placement="process")),
    "cache": lambda ds, _: ds.cache(),
    "batch": lambda ds, _: ds.batch(4).unbatch(),
    "shuffle": lambda ds, _: ds.shuffle(1),
    "saved": kept("save"),
    "cached in a file": kept("cache"),
    "snapshot": kept("snapshot"),
}


@pytest.mark.parametrize("fn", [value, same])
@pytest.mark.parametrize("way", WAYS)
def test_zeros_at_the_end_stay(way: str, fn: Any, tmp_path: Path) -> None:
    ds = WAYS[way](ad.Dataset.range(MANY).map(fn), tmp_path)
    assert alike(list(ds), [fn(number) for number in range(MANY)])


@pytest.mark.parametrize("first", VALUES, ids=repr)
def test_zeros_at_the_end_of_what_scan_remembers_stay(first: Any) -> None:
    ds = ad.Dataset.range(10).scan(first, lambda state, number: (state, state))
    with ds.iterate() as elements:
        found = [next(elements) for _ in range(4)]
        state = json.loads(json.dumps(elements.state_dict()))
    assert alike([*found, *ds.iterate(state=state)], [first] * 10)


@pytest.mark.parametrize("first", VALUES, ids=repr)
def test_zeros_stay_in_a_state_of_scan_with_parts(first: Any) -> None:
    initial = {"in": [first, (first,)], "n": 0}
    (state,) = ad.Dataset.range(1).scan(initial, lambda state, number: (state, state["in"]))
    assert alike([state[0], state[1][0]], [first] * 2)

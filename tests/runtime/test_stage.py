"""Stages do not hold what they gave out while the next is made."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import pytest

import asyncdata as ad

if TYPE_CHECKING:
    from collections.abc import Callable


class Large:
    """Stands for a batch of many megabytes."""


@pytest.mark.parametrize(
    "then",
    [
        lambda ds: ds,
        lambda ds: ds.map(lambda one: one),
        lambda ds: ds.filter(lambda _: True),
        lambda ds: ds.enumerate(),
        lambda ds: ds.take(1000),
        lambda ds: ds.batch(1),
    ],
)
def test_what_was_given_out_is_let_go_of_before_the_next_is_made(then: Callable[[Any], Any]) -> None:
    made, most = weakref.WeakSet[Large](), 0

    def make(_: int) -> Large:
        nonlocal most
        most = max(most, len(made))
        made.add(one := Large())
        return one

    ones = ad.Dataset.counter().take(20).shuffle(1, seed=0).map(make)
    options = ad.Options(optimize=False, placement="current")
    assert list(then(ones).filter(lambda *_: False).with_options(options)) == []
    assert most == 0

"""Whether anybody else sees an array, by the references to it."""

from __future__ import annotations

import functools
import inspect
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from asyncdata.memory.refcount import is_only_reference
from asyncdata.runtime.host_resources import lock_is_held

pytestmark = pytest.mark.skipif(not lock_is_held(), reason="threads do not take turns")


def made() -> Any:
    return np.arange(12.0)


@functools.cache
def cached() -> Any:
    return made()


def read_only() -> Any:
    array = made()
    array.flags.writeable = False
    return array


SOLE = {
    "an array": made,
    "a view of it": lambda: made().reshape(3, 4),
    "a view of a view": lambda: made().reshape(3, 4).T[1:],
    "a tuple": lambda: (made(), made()),
    "a dict of tuples": lambda: {"x": (made(),), "y": made().reshape(2, 6)},
    "one that was unpickled": lambda: pickle.loads(pickle.dumps(made())),
}
KEPT = [made(), made().reshape(3, 4), {"x": made()}]
PICKED = memoryview(made())
SEEN = {
    "one that is kept": lambda: KEPT[0],
    "one that is cached": cached,
    "a view of what is kept": lambda: KEPT[0][2:],
    "a view of a view that is kept": lambda: KEPT[1][1:],
    "a dict that is kept": lambda: KEPT[2],
    "a part that is kept": lambda: (made(), KEPT[0]),
    "one that is read-only": read_only,
    "one row again and again": lambda: np.broadcast_to(1.0, 3),
    "bytes": lambda: np.frombuffer(bytearray(8), np.uint8),
    "a buffer": lambda: np.asarray(PICKED),
    "a matrix": lambda: np.matrix([[1.0]]),
    "a list": lambda: [made()],
    "a number": lambda: 3.5,
    "nothing": lambda: None,
    "an empty tuple": lambda: (),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("make", SOLE)
def test_what_was_just_made_is_seen_by_nobody(make: str) -> None:
    assert is_only_reference([SOLE[make]()], 0)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("make", SEEN)
def test_what_somebody_may_see_is_not(make: str) -> None:
    assert not is_only_reference([SEEN[make]()], 0)


@pytest.mark.parametrize("look", [lambda array: array, memoryview, lambda array: array[1:], lambda array: (array,)])
def test_whoever_looks_into_an_array_is_seen_as_long_as_it_does(look: Any) -> None:
    items = [made()]
    looking = look(items[0])
    assert not is_only_reference(items, 0)
    del looking
    assert is_only_reference(items, 0)


def test_a_weak_reference_is_one_too() -> None:
    items = [made()]
    reference = weakref.ref(items[0])
    assert not is_only_reference(items, 0)
    del reference
    assert is_only_reference(items, 0)


def test_a_frame_that_is_kept_keeps_what_it_made() -> None:
    def kept() -> Any:
        array = made()
        frames.append(inspect.currentframe())
        return array

    frames: list[Any] = []
    items = [kept()]
    assert not is_only_reference(items, 0)
    frames.clear()
    assert is_only_reference(items, 0)

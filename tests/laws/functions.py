"""Functions for random pipelines: pure, deterministic, they accept any element, and some fail on some elements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import asyncdata as ad
from tests.reference import Boom, digest

FAILING = 5
"""One in this many elements fails in the functions that fail."""


def whole(*parts: Any) -> Any:
    return parts[0] if len(parts) == 1 else parts


def increment(*parts: Any) -> Any:
    """Keep the structure; a string or None cannot be incremented, which is a TypeError."""
    return whole(*parts) + 1 if not isinstance(whole(*parts), (tuple, dict)) else whole(*parts)


def number(*parts: Any) -> Any:
    return digest(*parts) % 97


def pair(*parts: Any) -> Any:
    return whole(*parts), digest(*parts) % 13


def named(*parts: Any) -> Any:
    return {"value": whole(*parts), "half": digest(*parts) % 13 / 2}


def sometimes_none(*parts: Any) -> Any:
    return None if digest(*parts) % 4 == 0 else whole(*parts)


def array(*parts: Any) -> Any:
    return np.full(3, digest(*parts) % 11, dtype=np.int32)


def ragged(*parts: Any) -> Any:
    return np.arange(digest(*parts) % 3)


def text(*parts: Any) -> Any:
    return f"#{digest(*parts) % 31}"


def tried(draw: st.DrawFn, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function, maybe tried again where it fails, or given up after longer than it takes."""
    wrap = draw(
        st.sampled_from([None, None, lambda: ad.with_retries(fn, 1, 0.0, (Boom,)), lambda: ad.with_timeout(fn, 3600.0)])
    )
    return fn if wrap is None else wrap()


def fail_sometimes(*parts: Any) -> Any:
    if digest(*parts) % FAILING == 0:
        raise Boom(digest(*parts))
    return whole(*parts)


def fields(*parts: Any) -> Any:
    """An element with fields that are easily told apart."""
    return {"id": digest(*parts) % 13, "size": digest(*parts, 1) % 13, "value": whole(*parts)}


def new_value(element: dict[str, Any]) -> Any:
    """Leave the id and the size as they are."""
    return {**element, "value": digest(element["value"], 2) % 97}


def new_size(element: dict[str, Any]) -> Any:
    """Leave the id as it is."""
    return {"size": digest(element["size"], 3) % 13, "id": element["id"], "value": 0}


def most_numbers(number: int) -> bool:
    return number % 4 != 1


def unlike(one: int, other: int) -> bool:
    return one != other


def class_of(*parts: Any) -> int:
    return digest(*parts) % 3


def fail_sometimes_class(*parts: Any) -> int:
    return digest(fail_sometimes(*parts)) % 5


def folded(state: int, element: Any) -> int:
    """The next state, which depends on order."""
    if digest(element) % FAILING == 4:
        raise Boom(digest(element))
    return (state * 31 + digest(element)) % 997


def class_or_none(*parts: Any) -> Any:
    """Some elements have no class, or one that there is not, or fail."""
    if digest(*parts) % FAILING == 2:
        raise Boom(digest(*parts))
    return [0, 1, 2, 2, 1, 3, "x", -1][digest(*parts) % 8]


def keep_most(*parts: Any) -> bool:
    return digest(*parts) % 3 != 0


def keep_none(*parts: Any) -> bool:
    return False


def keep_or_fail(*parts: Any) -> Any:
    if digest(*parts) % FAILING == 1:
        raise Boom(digest(*parts))
    return np.bool_(digest(*parts) % 2)


def running(state: Any, element: Any) -> Any:
    """Depends on everything that came before, and fails on some elements."""
    found = digest(state, element)
    if found % FAILING == 2:
        raise Boom(found)
    return found % 1009, (found % 7, element)


def counting(state: Any, element: Any) -> Any:
    """A state with parts, some of which are changed in place."""
    state["seen"][digest(element) % 3] += 1
    state["last"] = (digest(element) % 5, f"{digest(element) % 11}", b"x")
    return state, int(state["seen"].sum())


class Opaque:
    """A state that cannot be written down."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


def opaque(state: Any, element: Any) -> Any:
    return Opaque(digest(state.value, element) % 97), state.value


SCANNED: tuple[tuple[Callable[[], Any], Callable[[Any, Any], Any]], ...] = (
    (lambda: 0, running),
    (lambda: {"seen": np.zeros(3, np.int64), "last": None}, counting),
    (Opaque, opaque),
)
"""The last one has a state that cannot be written down, so what it reads must be the same when it is read again."""


def go_on(*parts: Any) -> Any:
    """Stops at few elements, and fails on some."""
    if digest(*parts) % 7 == 1:
        raise Boom(digest(*parts))
    return np.bool_(digest(*parts) % 11)


def few_keys(*parts: Any) -> Any:
    return digest(*parts) % 17


def keys_or_fail(*parts: Any) -> Any:
    return f"#{fail_sometimes(digest(*parts)) % 29}"


def key(*parts: Any) -> Any:
    """One of a few keys, and of some elements none can be told."""
    if digest(*parts) % 9 == 1:
        raise Boom(digest(*parts))
    return np.int64(digest(*parts) % 4)


def length(*parts: Any) -> int:
    return digest(*parts) % 12


MAPPED = (increment, number, pair, named, sometimes_none, array, ragged, text, fail_sometimes)
SOUND = (number, array)
CLASSED = (class_of, class_or_none)
KEPT = (keep_most, keep_none, keep_or_fail)


def vectorized(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of an element that also takes batches, and fails on one in which an element fails."""

    def either(x: Any) -> Any:
        return np.stack([fn(row) for row in x.tolist()]) if isinstance(x, np.ndarray) and x.ndim else fn(x)

    either.__name__ = f"vectorized_{fn.__name__}"
    return either


def awaited(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that takes a while which depends on the element, so that results cross."""

    async def coroutine(*parts: Any) -> Any:
        for _ in range(digest(*parts) % 4):
            await asyncio.sleep(0)
        return fn(*parts)

    coroutine.__name__ = f"awaited_{fn.__name__}"
    return coroutine


def over_rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a batch that fails if one of its rows does."""

    def batched(rows: Any) -> Any:
        return [fn(row) for row in rows]

    batched.__name__ = f"over_rows_{fn.__name__}"
    return batched


def of_int64(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of one number as a row of a batch is one."""
    return lambda x: fn(np.int64(x))


def sequence(*parts: Any) -> Any:
    return np.full(digest(*parts) % 9, digest(*parts) % 100)


def features(*parts: Any) -> Any:
    """Now and then no features, or others."""
    size = digest(*parts) % 9
    named = {"inputs": np.arange(size), "weights": np.full(size, size / 2)}
    return named if digest(*parts) % 7 else {"inputs": np.arange(size)}


def size(*parts: Any) -> Any:
    return digest(*parts) % 9


def size_or_fail(*parts: Any) -> Any:
    return size(fail_sometimes(*parts))


SIZES = (size, size_or_fail)

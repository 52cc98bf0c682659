"""Checks of the contracts of transformations and pipelines."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count as counting
from itertools import islice, product, zip_longest
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from asyncdata.dataset import Dataset
from asyncdata.elements.tensors import is_tensor, tensor_content
from asyncdata.graph.node import Node, Unary, nodes_of, snake_case
from asyncdata.iterator import DatasetIterator
from asyncdata.options import Options
from asyncdata.testing.leaks import LEAK_TIMEOUT, leaves_nothing
from asyncdata.testing.steps import check_elements, check_held, check_label, check_length, check_tickets, runs_by_hand

__all__ = ("check_resumes", "check_transform", "in_order", "read_async", "read_plain", "same")

END: Final = object()

Array: TypeAlias = npt.NDArray[Any]

INPUTS: Final[tuple[Sequence[Any], ...]] = ((), (7,), range(10), range(300))
"""The default inputs of `check_transform`."""

TILED: Final = 10_000
"""So many elements a step of the user's own may read until 2,000 of its own show that its tickets do not grow."""


def check_transform(
    transform: Callable[[Dataset[Any]], Dataset[Any]],
    meaning: Callable[[list[Any]], Iterable[Any]],
    inputs: Iterable[Sequence[Any]] = INPUTS,
) -> None:
    """Check that a transformation, as given to `Dataset.apply`, fulfils the contract of all transformations.

    Its elements must be those that `meaning` makes of each of the `inputs`, under `for` and `async for`, with both
    placements, with and without the optimizer. Leaving it early must leave no thread, task or descriptor behind. Types
    and dtypes must be the same too: 7 is not `np.int64(7)`, nor 7.0. What the plan declares must be true of them:
    `len` and `element_spec`. A step of your own, of a class of nodes outside of this package, is also tried behind
    elements that fail now and then: it must resume from each of its states, hold no more than its `holds`, have tickets
    that reach no more objects after 2,000 elements than after 1,000, and a label that begins with its name. Call it
    outside of an event loop. Raises `AssertionError` with the case that failed.

    >>> import numpy as np
    >>> def halves(ds):
    ...     return ds.map(lambda x: np.int64(x // 2))
    >>> check_transform(halves, lambda items: [np.int64(x // 2) for x in items])
    >>> check_transform(halves, lambda items: [x // 2 for x in items], inputs=[[14]])
    Traceback (most recent call last):
    ...
    AssertionError: [14], Options(placement='thread', ...got [np.int64(7)], but its meaning is [7]...
    """
    for items in inputs:
        expected = list(meaning(list(items)))
        for placement, optimize, read in product(("thread", "current"), (True, False), (read_plain, read_async)):
            options = Options(placement=placement, optimize=optimize)
            ds = Dataset.from_iterable(list(items)).apply(transform).with_options(options)
            check_reads(ds, expected, read, f"{list(items)!r:.80}, {options}, {read.__name__}")
        check_declared(transform, items, expected)
        if len(items) and any(map(is_users, nodes_of(Dataset.range(1).map(items.__getitem__).apply(transform).plan))):
            check_own_step(transform, items)


def check_declared(
    transform: Callable[[Dataset[Any]], Dataset[Any]], items: Sequence[Any], expected: list[Any]
) -> None:
    """Check the number and the structure of elements that the plan declares, of items whose structure is known."""
    try:
        known: Dataset[Any] = Dataset.from_list(list(items))
    except (ValueError, TypeError):  # they have several, or there are none
        known = Dataset.from_iterable(list(items))
    ds = known.apply(transform)
    check_length(ds, len(expected))
    check_elements(ds, expected)


def is_users(node: Node) -> bool:
    """Return whether a node is of a class outside of this package."""
    return type(node).__module__.partition(".")[0] != __name__.partition(".")[0]


def check_own_step(transform: Callable[[Dataset[Any]], Dataset[Any]], items: Sequence[Any]) -> None:
    """Check a step of the user's own by itself, behind elements of which some fail."""
    for places in ((2, 3), (0, 6)):

        def failing(place: int, places: tuple[int, ...] = places) -> Any:
            if place % 9 in places:
                raise RuntimeError(f"check_transform has element {place} fail")
            return items[place % len(items)]

        check_resumes(lambda failing=failing: Dataset.range(14).map(failing).apply(transform))

    def tiled(place: int) -> Any:
        return items[place % len(items)]

    plan = Dataset.range(TILED).map(tiled).apply(transform).plan
    if runs_by_hand(plan):
        check_tickets(plan)
    for node in nodes_of(plan):
        if is_users(node):
            check_label(node, names_of(node, transform))
        if is_users(node) and isinstance(node, Unary):
            for place in (1, 4):
                check_held(node, place)


def names_of(node: Node, transform: Callable[..., Any]) -> set[str]:
    """Return the names by which a user may call a step: that of its class, or of the function or method."""
    code = getattr(transform, "__code__", None)
    return {snake_case(type(node).__name__), getattr(transform, "__name__", ""), *(code.co_names if code else ())}


def check_reads(
    ds: Dataset[Any], expected: list[Any], read: Callable[[Dataset[Any], int], list[Any]], case: str
) -> None:
    """Check a complete read, and a partial one."""
    for count in (len(expected) + 1, len(expected) // 2):
        with leaves_nothing():
            got = read(ds, count)
        assert same(got, expected[:count]), f"{case}: got {got!r:.400}, but its meaning is {expected[:count]!r:.400}"


def read_plain(ds: Dataset[Any], count: int) -> list[Any]:
    """Read up to `count` elements with a plain loop."""
    return list(islice(ds, count))


def read_async(ds: Dataset[Any], count: int) -> list[Any]:
    """Read up to `count` elements on an event loop, and see that no task is left there."""

    async def read() -> list[Any]:
        found: list[Any] = []
        async with ds.iterate() as elements:
            while len(found) < count and (element := await anext(elements, END)) is not END:
                found.append(element)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            _, left = await asyncio.wait(left, timeout=LEAK_TIMEOUT)
        assert not left, f"tasks left behind: {left}"
        return found

    return asyncio.run(read())


def check_resumes(build: Callable[[], Dataset[Any]], *, ordered: bool = True, places: int = 25) -> None:
    """Check that a pipeline continues from its states as if it had never been stopped.

    `build` builds the pipeline each time, as another process would; it must end, so give an endless one a `take`. The
    pipeline runs once to its end. Then it resumes from at least `places` places, all of them if there are fewer, the
    start and the end included: each time from a state that went through JSON, in a new dataset. From there on its
    elements and errors must be those of the complete run, in the same order, or with `ordered=False` each as often.
    Without a fixed order batches differ, so end such a pipeline with `unbatch()`. Call it outside of an event loop.
    Raises `AssertionError` with the place and the first difference.

    >>> check_resumes(lambda: Dataset.range(40).map(lambda x: x * x).shuffle(10).batch(4))
    >>> check_resumes(lambda: Dataset.range(40).map(abs, num_parallel_calls=4, deterministic=False), ordered=False)
    """
    if isinstance(build, Dataset):
        raise TypeError("check_resumes needs a function that builds the dataset, got a Dataset: put a lambda around it")
    complete, states = run_with_states(build(), places)
    for place, text in states:
        try:
            with build().iterate(state=json.loads(text)) as elements:
                got = list(outcomes(elements))
        except Exception as error:
            raise AssertionError(
                f"it does not continue after {place} elements: {error!r}; the state is {text:.400}"
            ) from error
        difference = (in_order if ordered else as_often)(got, complete[place:])
        assert difference is None, f"stopped after {place} elements, {difference}; the state is {text:.400}"


@dataclasses.dataclass(frozen=True)
class Raised:
    """Stands in the place of an element that failed."""

    error: str


def outcomes(elements: DatasetIterator[Any]) -> Iterator[Any]:
    """Yield an iterator's elements, failures in their places; raise the error that ends the pipeline."""
    for delivered in counting(elements.state_dict()["delivered"]):
        try:
            yield next(elements)
        except StopIteration:
            return
        except Exception as error:
            if elements.state_dict()["delivered"] == delivered:
                raise
            yield Raised(repr(error))


def run_with_states(ds: Dataset[Any], places: int) -> tuple[list[Any], list[tuple[int, str]]]:
    """Return all elements and, at evenly spread places, before the first and after the last, the state as JSON."""
    found: list[Any] = []
    states: dict[int, str] = {}
    every = 1
    with ds.iterate() as elements:
        states[0] = json.dumps(elements.state_dict())
        for element in outcomes(elements):
            found.append(element)
            if len(found) % every == 0:
                states[len(found)] = json.dumps(elements.state_dict())
            if len(states) > 2 * places:
                every *= 2
                states = {place: text for place, text in states.items() if place % every == 0}
        return found, [*states.items(), (len(found), json.dumps(elements.state_dict()))]


def in_order(got: list[Any], expected: list[Any]) -> str | None:
    """Return a sentence about the first difference between two sequences, or `None`."""
    for place, (one, other) in enumerate(zip_longest(got, expected, fillvalue=END)):
        if one is END:
            return f"it ended {place} elements later, but {other!r:.200} should follow"
        if other is END:
            return f"it should end {place} elements later, but {one!r:.200} follows"
        if not same(one, other):
            return f"element {place} after that is {one!r:.200}, but should be {other!r:.200}"
    return None


def as_often(got: list[Any], expected: list[Any]) -> str | None:
    """Return a sentence about the first difference between two multisets, or `None`; most come in about the same
    order."""
    left = list(expected)
    for element in got:
        place = next((place for place, other in enumerate(left) if same(element, other)), None)
        if place is None:
            return f"{element!r:.200} was delivered before, or should not be there"
        del left[place]
    return f"{left[0]!r:.200} is missing, one of {len(left)} missing elements" if left else None


def same(one: Any, other: Any) -> bool:
    """Return whether two structures of arrays and objects are equal, in type and dtype too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray) or is_tensor(one):
        return (
            tensor_content(one) == tensor_content(other) if is_tensor(one) else same_arrays(cast("Array", one), other)
        )
    if isinstance(one, (tuple, list)):
        parts = cast("Sequence[Any]", one)
        return len(parts) == len(other) and all(map(same, parts, other))
    if isinstance(one, dict):
        named = cast("dict[Any, Any]", one)
        return named.keys() == other.keys() and all(same(part, other[key]) for key, part in named.items())
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    number = isinstance(one, (float, complex, np.inexact))
    return bool(one == other) or (number and repr(cast("Any", one)) == repr(other))  # not a number


def same_arrays(one: Array, other: Array) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind in "biufc":
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    return all(map(same, one.ravel().tolist(), other.ravel().tolist()))

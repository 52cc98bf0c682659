"""A Hypothesis strategy for random pipelines: each knows its Dataset and its meaning."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.elements.spec import TensorSpec
from asyncdata.transformations import check_structures
from tests import reference
from tests.laws import functions
from tests.laws.files import file_sources, scratch
from tests.reference import Boom, digest

Epoch: TypeAlias = tuple[int, ...]
Meaning: TypeAlias = Callable[[Epoch], Iterable[Any]]
Step: TypeAlias = Callable[[st.DrawFn, "Pipeline"], "Pipeline"]

FIRST: Epoch = (0,)
"""The epoch of a dataset that is iterated for the first time."""

FEW = 4
"""A step that leaves fewer elements than this is taken back most of the time: little can go wrong after it."""

MANY = 60
"""A pipeline of more elements than this is not multiplied any more."""


@dataclass(frozen=True)
class Pipeline:
    """A dataset, made anew by each call of `build`, and what its elements are in an epoch.

    An epoch is a path: which iteration of the dataset, then which turn of each `repeat` on the way to the source.
    """

    text: str
    build: Callable[[], ad.Dataset]
    meaning: Meaning
    ordered: bool = True
    counted: bool = True
    """Whether `len` counts what is delivered: no failure comes before a batch, beside which it would be delivered, and
    no endless `repeat` turns out to have nothing to repeat."""

    def __repr__(self) -> str:
        return self.text

    def elements(self, iteration: int = 0) -> list[Any]:
        """What an iteration delivers, in a form that can be compared."""
        return self.comparable(self.meaning((iteration,)))

    def comparable(self, elements: Iterable[Any]) -> list[Any]:
        """Elements in a form in which equal lists mean equal results: sorted, where no order is promised."""
        found = [reference.plain(element) for element in elements]
        return found if self.ordered else sorted(found, key=repr)

    def then(self, text: str, apply: Callable[[ad.Dataset], ad.Dataset], meaning: Meaning) -> Pipeline:
        """This pipeline and one more transformation."""
        build = self.build
        return replace(self, text=f"{self.text}.{text}", build=lambda: apply(build()), meaning=meaning)


def of_numbers(pipe: Pipeline) -> Pipeline:
    """The pipeline if its elements are known to be numbers, else a number for each element: for steps of numbers."""
    if pipe.build().plan.signature == TensorSpec((), "int64"):
        return pipe
    return pipe.then(
        "map(number)",
        lambda ds: ds.map(functions.number),
        lambda epoch: reference.map_(pipe.meaning(epoch), functions.number),
    )


class Stream:
    """An async iterable that can be iterated again, and that may fail at its end."""

    def __init__(self, items: list[Any], fails: bool) -> None:
        self.items, self.fails = items, fails

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self.items:
            await asyncio.sleep(0)
            yield item
        if self.fails:
            raise Boom("stream")


def generated(count: int, fails: bool, name: str = "generator") -> Iterator[Any]:
    yield from range(count)
    if fails:
        raise Boom(name)


class Offsets:
    """An iterator, plain and async, that has a state: how many elements it has given."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self.place = items, 0

    def __iter__(self) -> Offsets:
        return self

    def __next__(self) -> Any:
        if self.place == len(self.items):
            raise StopIteration
        self.place += 1
        return self.items[self.place - 1]

    def __aiter__(self) -> Offsets:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        for item in self:
            return item
        raise StopAsyncIteration

    def state_dict(self) -> Any:
        return {"place": [self.place]}

    def load_state_dict(self, state: Any) -> None:
        (self.place,) = state["place"]


class Resuming:
    """An iterable whose iterators have states."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Offsets:
        return Offsets(self.items)

    def __aiter__(self) -> Offsets:
        return Offsets(self.items)


def counts(*likely: int) -> st.SearchStrategy[int]:
    """One of some sizes, each as likely: left to itself Hypothesis likes nothing better than 0."""
    return st.sampled_from(likely)


SIZES = counts(5, 8, 12, 20, 40, 100, 1, 0)


@st.composite
def sources(draw: st.DrawFn) -> Pipeline:
    return draw(st.sampled_from((*SOURCES, rerandomized)))(draw)


@st.composite
def inner_sources(draw: st.DrawFn) -> Pipeline:
    """Sources that give the same in every epoch: an inner dataset's epoch is one of its own."""
    return draw(st.sampled_from(SOURCES))(draw)


def numbers(draw: st.DrawFn) -> Pipeline:
    bounds = draw(st.tuples(SIZES) | st.tuples(*[st.integers(-9, 20)] * 2, st.sampled_from([1, 3, -2])))
    return Pipeline(f"range{bounds}", lambda: ad.Dataset.range(*bounds), lambda epoch: reference.range_(*bounds))


def left_out(draw: st.DrawFn) -> Pipeline:
    """Numbers of which some are left out, or batches of these, with holes or without."""
    count, size, keep = draw(SIZES) + 1, draw(st.sampled_from([0, 2, 3])), draw(st.booleans())
    gone = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5))
    records = [{"source": f"range({count})", "index": number} for number in gone]
    whole = ad.Dataset.range(count)
    keep = keep and size > 0

    def meaning(_: Epoch) -> Iterable[Any]:
        if not size:
            return [number for number in range(count) if number not in gone]
        if not keep:
            return reference.batch([number for number in range(count) if number not in gone], size)
        spans = [range(start, min(start + size, count)) for start in range(0, count, size)]
        rest = [[number for number in span if number not in gone] for span in spans]
        return [reference.stack(batch) for batch in rest if batch]

    return Pipeline(
        f"range({count}){f'.batch({size})' if size else ''}.exclude({sorted(gone)}, keep_steps={keep})",
        lambda: (whole.batch(size) if size else whole).exclude(records, keep_steps=keep),
        meaning,
        counted=not keep,
    )


def slices(draw: st.DrawFn) -> Pipeline:
    rows = draw(SIZES)
    tensors = draw(
        st.sampled_from(
            [
                np.arange(rows) * 3,
                np.arange(rows * 2, dtype=np.float32).reshape(rows, 2),
                (np.arange(rows), np.ones((rows, 3), np.uint8)),
                {"a": np.arange(rows), "b": (np.arange(rows) % 2 == 0, np.zeros((rows, 2)))},
            ]
        )
    )
    return Pipeline(
        f"from_tensor_slices({tensors!r:.40})",
        lambda: ad.Dataset.from_tensor_slices(tensors),
        lambda epoch: reference.from_tensor_slices(tensors),
    )


def one_tensor(draw: st.DrawFn) -> Pipeline:
    rows = draw(counts(5, 1, 20))
    return Pipeline(
        f"from_tensors(arange({rows}))",
        lambda: ad.Dataset.from_tensors(np.arange(rows)),
        lambda epoch: reference.from_tensors(np.arange(rows)),
    )


def counted(draw: st.DrawFn) -> Pipeline:
    start, step, count = draw(st.integers(-3, 3)), draw(st.sampled_from([1, 2, -1])), draw(SIZES)
    return Pipeline(
        f"counter({start}, {step}).take({count})",
        lambda: ad.Dataset.counter(start, step).take(count),
        lambda epoch: reference.take(reference.counter(start, step), count),
    )


def random_numbers(draw: st.DrawFn, anew: bool = False) -> Pipeline:
    count, seed = draw(SIZES), draw(st.integers(0, 3))
    return Pipeline(
        f"random({seed}, {anew}).take({count})",
        lambda: ad.Dataset.random(seed, anew).take(count),
        lambda epoch: reference.random(count, seed, epoch if anew else ()),
    )


def rerandomized(draw: st.DrawFn) -> Pipeline:
    return random_numbers(draw, anew=True)


def from_list(draw: st.DrawFn) -> Pipeline:
    rows, ragged = draw(SIZES) + 1, draw(st.booleans())
    alike: list[list[Any]] = [
        [(np.int64(place), np.ones(2)) for place in range(rows)],
        [{"a": "x" * (place % 4)} for place in range(rows)],
    ]
    tensors = [np.arange(place % 3) for place in range(rows)] if ragged else draw(st.sampled_from(alike))
    return Pipeline(
        f"from_list({tensors!r:.40})",
        lambda: ad.Dataset.from_list(tensors),
        lambda epoch: reference.from_list(tensors),
        counted=not ragged,  # what has many shapes cannot be put into batches
    )


def from_generator(draw: st.DrawFn) -> Pipeline:
    count, fails = draw(SIZES), draw(st.booleans())
    return Pipeline(
        f"from_generator({count}, fails={fails})",
        lambda: ad.Dataset.from_generator(generated, args=(count, fails)),
        lambda epoch: reference.from_generator(generated, (count, fails)),
    )


def from_iterable(draw: st.DrawFn) -> Pipeline:
    size = draw(SIZES)
    items: list[Any] = draw(
        st.lists(
            st.sampled_from([0, 1, 2.5, True, None, "x", b"y", (1, 2), {"k": 1}]), min_size=min(size, 12), max_size=12
        )
    )
    return Pipeline(f"from_iterable({items})", lambda: ad.Dataset.from_iterable(items), lambda epoch: items)


def from_async_iterable(draw: st.DrawFn) -> Pipeline:
    count, fails = draw(SIZES), draw(st.booleans())
    return Pipeline(
        f"from_async_iterable({count}, fails={fails})",
        lambda: ad.Dataset.from_async_iterable(Stream(list(range(count)), fails)),
        lambda epoch: reference.from_generator(generated, (count, fails, "stream")),
    )


def stateful(draw: st.DrawFn) -> Pipeline:
    items, kind = list(range(draw(SIZES))), draw(st.sampled_from(["iterable", "async_iterable", "generator"]))
    source = (lambda: Resuming(items)) if kind == "generator" else Resuming(items)
    return Pipeline(
        f"from_{kind}({len(items)}, stateful)",
        lambda: getattr(ad.Dataset, f"from_{kind}")(source),
        lambda epoch: items,
    )


class Squares:
    """A source with elements by number, some of which cannot be had."""

    def __init__(self, count: int, at_once: bool) -> None:
        self.count = count
        if at_once:
            self.get_batch = lambda indices: [self[index] for index in indices]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if index % 7 == 5:
            raise Boom(index)
        return index * index


class Chunked:
    """An array in chunks of three rows, one in four of which cannot be read."""

    chunks = (3, 2)

    def __init__(self, count: int) -> None:
        self.shape, self.dtype = (count, 2), np.dtype(np.int16)

    def __getitem__(self, rows: slice[int, int, None]) -> Any:
        if rows.start % 12 == 9:
            raise Boom(rows.start)
        return np.arange(2 * rows.start, 2 * min(rows.stop, self.shape[0]), dtype=np.int16).reshape(-1, 2)

    def row(self, index: int) -> Any:
        return self[index // 3 * 3 : index // 3 * 3 + 3][index % 3]


def from_source(draw: st.DrawFn) -> Pipeline:
    count, kind, calls = draw(SIZES), draw(st.sampled_from(["one", "many", "array"])), draw(st.sampled_from([None, 2]))
    if kind == "array":
        return Pipeline(
            f"from_source(array of {count}, {calls})",
            lambda: ad.Dataset.from_source(Chunked(count), num_parallel_calls=calls),
            lambda epoch: reference.map_(range(count), Chunked(count).row),
        )
    return Pipeline(
        f"from_source({count}, {calls})",
        lambda: ad.Dataset.from_source(Squares(count, kind == "many"), num_parallel_calls=calls),
        lambda epoch: reference.from_source(Squares(count, False)),
    )


def from_files(draw: st.DrawFn, kinds: Sequence[str] = ()) -> Pipeline:
    source = draw(file_sources(kinds))
    counted = not any(isinstance(element, reference.Failed) for element in source.elements)
    return Pipeline(source.text, source.build, lambda epoch: source.elements, counted=counted)


SOURCES = (
    numbers,
    numbers,
    numbers,
    from_files,
    from_files,
    from_files,
    from_source,
    left_out,
    slices,
    one_tensor,
    counted,
    random_numbers,
    from_list,
    from_generator,
    from_iterable,
    from_async_iterable,
    stateful,
)


def map_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    fn, is_coroutine = draw(st.sampled_from(functions.MAPPED)), draw(st.booleans())
    run = functions.tried(draw, functions.awaited(fn)) if is_coroutine else fn
    how = draw(ways(is_coroutine))
    mapped = pipe.then(
        f"map({run.__name__}{arguments(how)})",
        lambda ds: ds.map(run, **how),
        lambda epoch: reference.map_(pipe.meaning(epoch), fn),
    )
    return replace(mapped, ordered=pipe.ordered and unordered(how) is False)


def map_batches(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Elements that cannot be stacked, or be had back as they were, are numbered instead."""
    fn, is_coroutine = draw(st.sampled_from([functions.number, functions.fail_sometimes])), draw(st.booleans())
    over = functions.over_rows(fn)
    run, how, size = functions.awaited(over) if is_coroutine else over, draw(ways(is_coroutine)), draw(counts(2, 1, 7))
    return pipe.then(
        f"map(number).map({fn.__name__}, batch={size}{arguments(how)})",
        lambda ds: ds.map(functions.number).map(run, batch=size, **how),
        lambda epoch: reference.map_(reference.map_(pipe.meaning(epoch), functions.number), functions.of_int64(fn)),
    )


def map_vectorized(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Elements are numbered first: the function takes numbers, and batches of them."""
    fn = draw(st.sampled_from([functions.number, functions.array, functions.fail_sometimes]))
    how = {"pure": True} if draw(st.booleans()) else {}
    run, size, drop = functions.vectorized(fn), draw(counts(2, 3, 1, 7)), draw(st.booleans())
    whole = not any(isinstance(fails, reference.Failed) for fails in pipe.meaning(FIRST)) and fn in functions.SOUND
    return replace(pipe, counted=pipe.counted and whole).then(
        f"map(number).map({run.__name__}, vectorized=True{arguments(how)}).batch({size}, {drop})",
        lambda ds: ds.map(functions.number).map(run, vectorized=True, **how).batch(size, drop),
        lambda epoch: reference.batch(
            reference.map_(reference.map_(pipe.meaning(epoch), functions.number), fn), size, drop
        ),
    )


@st.composite
def ways(draw: st.DrawFn, is_coroutine: bool) -> dict[str, Any]:
    """How a map may run: arguments of `map` beside the function."""
    how: dict[str, Any] = {}
    if (calls := draw(st.sampled_from([None, 1, 2, 5, ad.AUTOTUNE]))) is not None:
        how["num_parallel_calls"] = calls
    if (deterministic := draw(st.sampled_from([None, None, True, False]))) is not None:
        how["deterministic"] = deterministic
    executors = (
        [None, ad.AUTOTUNE]
        if is_coroutine
        else [None, "thread"]
        if "num_parallel_calls" in how
        else [None, "inline", "thread"]
    )
    if (executor := draw(st.sampled_from(executors))) is not None:
        how["executor"] = executor
    if draw(st.booleans()):
        how["pure"] = True
    return how


def unordered(how: dict[str, Any]) -> bool:
    return how.get("deterministic") is False and (
        "num_parallel_calls" in how or how.get("executor") in ("thread", ad.AUTOTUNE)
    )


def arguments(how: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in how.items())


def scan(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    known = functions.SCANNED if "within=" not in pipe.text else functions.SCANNED[:-1]  # batches then depend on time
    (initial, fn), is_coroutine = draw(st.sampled_from(known)), draw(st.booleans())
    run = functions.awaited(fn) if is_coroutine else fn
    return pipe.then(
        f"scan({run.__name__})",
        lambda ds: ds.scan(initial(), run),
        lambda epoch: reference.scan(pipe.meaning(epoch), initial(), fn),
    )


def take_while(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    fn = draw(st.sampled_from([functions.go_on, functions.awaited(functions.go_on)]))
    return pipe.then(
        f"take_while({fn.__name__})",
        lambda ds: ds.take_while(fn),
        lambda epoch: reference.take_while(pipe.meaning(epoch), functions.go_on),
    )


def unique(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.then("unique()", lambda ds: ds.unique(), lambda epoch: reference.unique(pipe.meaning(epoch)))


def filter_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    fn, is_coroutine = draw(st.sampled_from([functions.keep_most, *functions.KEPT])), draw(st.booleans())
    run = functions.awaited(fn) if is_coroutine else fn
    how = {name: value for name, value in draw(ways(is_coroutine)).items() if name != "executor"}
    kept = pipe.then(
        f"filter({run.__name__}{arguments(how)})",
        lambda ds: ds.filter(run, **how),
        lambda epoch: reference.filter_(pipe.meaning(epoch), fn),
    )
    return replace(kept, ordered=pipe.ordered and unordered(how) is False)


def map_keeping(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """A map that filters may come before, or that shrinks elements; of elements with fields."""
    fn, keeps = draw(st.sampled_from([(functions.new_value, ("id", "size")), (functions.new_size, "id")]))
    is_coroutine, said = draw(st.booleans()), {"keeps": keeps, "shrinks": draw(st.booleans())}
    how = draw(ways(is_coroutine).filter(lambda how: "pure" in how or "num_parallel_calls" in how))
    run = functions.awaited(fn) if is_coroutine else fn
    return replace(
        pipe.then(
            f"map({run.__name__}{arguments(how)}, {said})",
            lambda ds: ds.map(run, **how, **said),
            lambda epoch: reference.map_(pipe.meaning(epoch), fn),
        ),
        ordered=pipe.ordered and unordered(how) is False,
    )


def filter_reading(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """A filter that may come before other steps, of elements with fields."""
    fn, reads = draw(
        st.sampled_from([(functions.most_numbers, ("id",)), (functions.unlike, ("id", "size"))])
        | st.just((functions.most_numbers, ("size",)))
    )
    is_coroutine = draw(st.booleans())
    run = functions.awaited(fn) if is_coroutine else fn
    how = {name: value for name, value in draw(ways(is_coroutine)).items() if name != "executor"}
    kept = pipe.then(
        f"filter({run.__name__}{arguments(how)}, reads={reads})",
        lambda ds: ds.filter(run, **how, reads=reads),
        lambda epoch: reference.filter_(pipe.meaning(epoch), lambda element: fn(*[element[name] for name in reads])),
    )
    return replace(kept, ordered=pipe.ordered and unordered(how) is False)


def movable(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Elements with fields, and steps that `Options(reorder=True)` moves; none of them fails."""
    pipe = mapped(pipe, functions.fields)
    for step in draw(st.lists(st.sampled_from(MOVABLE_STEPS), min_size=2, max_size=6)):
        pipe = step(draw, pipe)
    return pipe


@dataclass(frozen=True)
class Inner:
    """A function for flat_map and interleave, as the dataset and as the reference want it."""

    text: str
    dataset: Callable[..., Any]
    elements: Callable[..., Any]


def spread(*parts: Any) -> ad.Dataset:
    return ad.Dataset.range(digest(*parts) % 4).map(lambda i: (i, digest(*parts) % 7))


def spread_elements(*parts: Any) -> list[Any]:
    return [(i, digest(*parts) % 7) for i in range(digest(*parts) % 4)]


def spread_or_fail(*parts: Any) -> Any:
    if digest(*parts) % 4 == 0:
        raise Boom(digest(*parts))
    return spread(*parts) if digest(*parts) % 4 < 3 else "not a dataset"


def spread_elements_or_fail(*parts: Any) -> Any:
    if digest(*parts) % 4 == 0:
        raise Boom(digest(*parts))
    if digest(*parts) % 4 == 3:
        raise TypeError
    return spread_elements(*parts)


@st.composite
def inners(draw: st.DrawFn) -> Inner:
    given = [Inner("spread", spread, spread_elements), Inner("spread_or_fail", spread_or_fail, spread_elements_or_fail)]
    chosen = draw(st.sampled_from([*given, None]))
    if chosen is not None:
        return chosen
    pipe = draw(chains(inner_sources(), INNER_STEPS, 2).filter(lambda inner: inner.ordered))  # `take` depends on order
    few = pipe.then("take(4)", lambda ds: ds.take(4), lambda epoch: reference.take(pipe.meaning(epoch), 4))
    return Inner(f"lambda *_: {few}", lambda *_: few.build(), lambda *_: few.meaning(FIRST))


def flat_map(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    inner = draw(inners())
    return pipe.then(
        f"flat_map({inner.text})",
        lambda ds: ds.flat_map(inner.dataset),
        lambda epoch: reference.flat_map(pipe.meaning(epoch), inner.elements),
    )


def interleave(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    inner = draw(inners())
    cycle, block = draw(st.sampled_from([1, 2, 3, 16])), draw(st.integers(1, 3))
    how: dict[str, Any] = {}
    if (calls := draw(st.sampled_from([None, 1, cycle, ad.AUTOTUNE]))) is not None:
        how["num_parallel_calls"] = calls
        if (deterministic := draw(st.sampled_from([None, True, False]))) is not None:
            how["deterministic"] = deterministic
    mixed = pipe.then(
        f"interleave({inner.text}, {cycle}, {block}{arguments(how)})",
        lambda ds: ds.interleave(inner.dataset, cycle_length=cycle, block_length=block, **how),
        lambda epoch: reference.interleave(pipe.meaning(epoch), inner.elements, cycle, block),
    )
    return replace(mixed, ordered=pipe.ordered and unordered(how) is False)


def batch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    how = draw(st.sampled_from([{}, {"num_parallel_calls": 2}, {"num_parallel_calls": ad.AUTOTUNE}, {"within": 1e6}]))
    drop = drop and "within" not in how
    whole = not any(isinstance(element, reference.Failed) for element in pipe.meaning(FIRST))
    return replace(pipe, counted=pipe.counted and whole).then(
        f"batch({size}, {drop}{arguments(how)})",
        lambda ds: ds.batch(size, drop, **how),
        lambda epoch: reference.batch(pipe.meaning(epoch), size, drop),
    )


def padded_batch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    whole = not any(isinstance(element, reference.Failed) for element in pipe.meaning(FIRST))
    return replace(pipe, counted=pipe.counted and whole).then(
        f"padded_batch({size}, drop_remainder={drop})",
        lambda ds: ds.padded_batch(size, drop_remainder=drop),
        lambda epoch: reference.padded_batch(pipe.meaning(epoch), size, drop),
    )


def ragged_batch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    whole = not any(isinstance(element, reference.Failed) for element in pipe.meaning(FIRST))
    return replace(pipe, counted=pipe.counted and whole).then(
        f"ragged_batch({size}, {drop})",
        lambda ds: ds.ragged_batch(size, drop),
        lambda epoch: reference.ragged_batch(pipe.meaning(epoch), size, drop),
    )


def list_batch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """How many are in each list, and the last of them: other steps stack no elements of any kind in lists."""
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    whole = not any(isinstance(element, reference.Failed) for element in pipe.meaning(FIRST))
    return replace(pipe, counted=pipe.counted and whole).then(
        f"list_batch({size}, {drop}).map(counted)",
        lambda ds: ds.list_batch(size, drop).map(counted),
        lambda epoch: map(counted_unless_failed, reference.list_batch(pipe.meaning(epoch), size, drop)),
    )


def counted(elements: list[Any]) -> tuple[int, Any]:
    return len(elements), elements[-1]


def counted_unless_failed(found: Any) -> Any:
    return found if isinstance(found, reference.Failed) else counted(found)


def rejection_resample(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Classes are kept whole or not at all: by chance, what stays depends on tickets."""
    fn, is_coroutine = draw(st.sampled_from(functions.CLASSED)), draw(st.booleans())
    run = functions.awaited(fn) if is_coroutine else fn
    target, initial, kept = draw(st.sampled_from(DISTRIBUTIONS))
    return pipe.then(
        f"rejection_resample({run.__name__}, {target}, {initial})",
        lambda ds: ds.rejection_resample(run, target, initial, seed=1),
        lambda epoch: reference.rejection_resample(pipe.meaning(epoch), fn, kept, 3),
    )


DISTRIBUTIONS: tuple[tuple[list[float], list[float] | None, set[int]], ...] = (
    ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5], {0, 1, 2}),
    ([0.6, 0, 0.4], [0.3, 0.5, 0.2], {0, 2}),
    ([0, 1, 0], None, {1}),
)


def group_by_reducer(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """One in many elements fails to be folded; of the keys of one kind of functions, the last step fails for some."""
    keys = draw(st.sampled_from([functions.class_of, functions.number, functions.text, functions.fail_sometimes_class]))
    is_coroutine = draw(st.booleans())
    how = [functions.awaited(fn) if is_coroutine else fn for fn in (keys, functions.folded, functions.fail_sometimes)]
    return pipe.then(
        f"group_by_reducer({keys.__name__}, coroutines={is_coroutine})",
        lambda ds: ds.group_by_reducer(how[0], ad.Reducer(lambda _: 0, *how[1:])),
        lambda epoch: reference.group_by_reducer(
            pipe.meaning(epoch), keys, 0, functions.folded, functions.fail_sometimes
        ),
    )


def rejoined(*parts: Any) -> ad.Dataset:
    """The elements of a window, which of elements with parts is a structure of datasets."""
    return ad.Dataset.zip(datasets=parts[0] if len(parts) == 1 else parts)


def window(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Windows are read again as their elements, or as batches of them."""
    size, shift, stride = draw(counts(3, 1, 2, 5)), draw(st.sampled_from([None, 1, 2, 4])), draw(counts(1, 1, 2))
    drop, stacked = draw(st.booleans()), draw(st.sampled_from([0, 2, 5]))
    windows = pipe.then(
        f"window({size}, {shift}, {stride}, {drop}).flat_map(rejoined)",
        lambda ds: ds.window(size, shift, stride, drop).flat_map(rejoined),
        lambda epoch: reference.flat_map(reference.window(pipe.meaning(epoch), size, shift, stride, drop), list),
    )
    if not stacked:
        return windows
    return pipe.then(
        f"window({size}, {shift}, {stride}, {drop}).flat_map(rejoined(...).batch({stacked}))",
        lambda ds: ds.window(size, shift, stride, drop).flat_map(lambda *parts: rejoined(*parts).batch(stacked)),
        lambda epoch: reference.flat_map(
            reference.window(pipe.meaning(epoch), size, shift, stride, drop),
            lambda members: reference.batch(members, stacked),
        ),
    )


def group_by_window(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, by_key, few = draw(st.integers(1, 5)), draw(st.booleans()), draw(st.integers(1, 5))
    key = draw(st.sampled_from([functions.key, functions.awaited(functions.key)]))
    how = {"window_size_func": lambda key: size + key} if by_key else {"window_size": size}
    return pipe.then(
        f"group_by_window({key.__name__}, batch({few}), {size}{' + key' if by_key else ''})",
        lambda ds: ds.group_by_window(key, lambda key, window: window.batch(few), **how),
        lambda epoch: reference.group_by_window(
            pipe.meaning(epoch),
            functions.key,
            lambda _, window: reference.batch(window, few),
            lambda key: size + key if by_key else size,
        ),
    )


def group_all(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Every element comes out as it is, whatever the order."""
    size = draw(st.integers(1, 5))
    return pipe.then(
        f"group_by_window(key, as it is, {size})",
        lambda ds: ds.group_by_window(functions.key, lambda key, window: window, size),
        lambda epoch: reference.group_by_window(
            pipe.meaning(epoch), functions.key, lambda _, window: window, lambda _: size
        ),
    )


def bucket_by_sequence_length(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    bounds = draw(st.sampled_from([[3, 8], [5], [1, 2, 3, 12]]))
    sizes = draw(st.lists(st.integers(1, 4), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    drop, bounded = draw(st.booleans()), draw(st.booleans())
    return pipe.then(
        f"bucket_by_sequence_length(length, {bounds}, {sizes}, {bounded=}, {drop=})",
        lambda ds: ds.bucket_by_sequence_length(
            functions.length, bounds, sizes, pad_to_bucket_boundary=bounded, drop_remainder=drop
        ),
        lambda epoch: reference.bucket_by_sequence_length(
            pipe.meaning(epoch), functions.length, bounds, sizes, drop, bounded
        ),
    )


def unbatch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Not of what is known to have no axis: that is refused."""
    try:
        pipe.build().unbatch()
    except ad.PlanError:
        return pipe
    whole = not any(isinstance(element, reference.Failed) for element in pipe.meaning(FIRST))
    return replace(pipe, counted=pipe.counted and whole).then(
        "unbatch()", lambda ds: ds.unbatch(), lambda epoch: reference.unbatch(pipe.meaning(epoch))
    )


def batch_unbatch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return unbatch(draw, batch(draw, pipe))


def rebatch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Mostly of batches: other elements have no rows, and what is known to have none is refused."""
    pipe = batch(draw, pipe) if draw(st.integers(0, 4)) else pipe
    try:
        pipe.build().rebatch(1)
    except ad.PlanError:
        return pipe
    sizes, drop = draw(st.sampled_from([1, 2, 3, 5, [1, 2], [4, 1, 3], [2, 2], [30, 1]])), draw(st.booleans())
    whole = not any(isinstance(row, reference.Failed) for row in reference.unbatch(pipe.meaning(FIRST)))
    return replace(pipe, counted=pipe.counted and whole).then(
        f"rebatch({sizes}, {drop})",
        lambda ds: ds.rebatch(sizes, drop),
        lambda epoch: reference.rebatch(pipe.meaning(epoch), sizes, drop),
    )


def shuffle(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, seed = draw(st.sampled_from([1, 2, 7, 100, ad.UNKNOWN_CARDINALITY])), draw(st.integers(0, 3))
    anew = draw(st.booleans())
    return pipe.then(
        f"shuffle({size}, {seed}, reshuffle_each_iteration={anew})",
        lambda ds: ds.shuffle(size, seed, reshuffle_each_iteration=anew),
        lambda epoch: reference.shuffle(pipe.meaning(epoch), size, seed, epoch if anew else ()),
    )


def shuffle_all(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Only where the elements can be had in any order."""
    if not pipe.build().plan.random_access:
        return shuffle(draw, pipe)
    seed, anew = draw(st.integers(0, 3)), draw(st.booleans())
    return pipe.then(
        f"shuffle(seed={seed}, reshuffle_each_iteration={anew})",
        lambda ds: ds.shuffle(seed=seed, reshuffle_each_iteration=anew),
        lambda epoch: reference.shuffle_all(pipe.meaning(epoch), seed, epoch if anew else ()),
    )


def repeat(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    count = draw(counts(2, 3, 1, 0))
    return pipe.then(f"repeat({count})", lambda ds: ds.repeat(count), repeated(pipe, count))


def repeat_some(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    count = draw(counts(5, 0, 1, 17, 40, 70))
    endless = repeated(pipe, None)
    something = any(True for _ in pipe.meaning(FIRST)) and len(list(reference.take(endless(FIRST), count))) == count
    return replace(pipe, counted=pipe.counted and something).then(
        f"repeat().take({count})",
        lambda ds: ds.repeat().take(count),
        lambda epoch: reference.take(endless(epoch), count),
    )


def repeated(pipe: Pipeline, count: int | None) -> Meaning:
    if count == 1:
        return pipe.meaning
    return lambda epoch: reference.repeat(lambda turn: pipe.meaning((*epoch, turn)), count)


def shuffle_repeat(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return draw(st.sampled_from([repeat, repeat_some]))(draw, shuffle(draw, pipe))


def take(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    count = draw(counts(5, -1, 0, 1, 13, 30, 60))
    return pipe.then(
        f"take({count})", lambda ds: ds.take(count), lambda epoch: reference.take(pipe.meaning(epoch), count)
    )


def skip(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    count = draw(counts(1, 0, 2, 3, 10) | counts(-1, 0, 2, 3, 10))
    return pipe.then(
        f"skip({count})", lambda ds: ds.skip(count), lambda epoch: reference.skip(pipe.meaning(epoch), count)
    )


def shard(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    shards = draw(counts(2, 1, 3)) if "within=" not in pipe.text else 1
    index = draw(st.integers(0, shards - 1))
    rest = draw(st.sampled_from([None, "drop_remainder", "pad_remainder"]))
    how = {rest: True} if rest else {}
    return pipe.then(
        f"shard({shards}, {index}{arguments(how)})",
        lambda ds: ds.shard(shards, index, **how),
        lambda epoch: reference.shard(pipe.meaning(epoch), shards, index, rest),
    )


def balance(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Where something fails, all ranks raise it, and have fewer elements. Only one may read what depends on time."""
    ranks, fn = draw(counts(2, 1, 3)) if "within=" not in pipe.text else 1, draw(st.sampled_from(functions.SIZES))
    rank, drop = draw(st.integers(0, ranks - 1)), draw(st.booleans())
    size, steps = draw(counts(2, 1, 3)), draw(counts(2, 1, 5))
    whole = not any(isinstance(reference.call(fn, one), reference.Failed) for one in pipe.meaning(FIRST))
    return replace(pipe, counted=pipe.counted and whole).then(
        f"balance({fn.__name__}, {size}, {ranks}, {rank}, steps={steps}, drop_remainder={drop})",
        lambda ds: ds.balance(fn, size, ranks, rank, steps=steps, drop_remainder=drop),
        lambda epoch: reference.balance(pipe.meaning(epoch), fn, size, ranks, rank, steps, drop),
    )


def cache(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Whatever the epoch, the elements are those of the first one: the one on whose path everything is a first time.
    Of an input without a fixed order, later epochs have another one."""
    if pipe.ordered and not pipe.build().plan.in_order:  # `within`, of which each batch here is full
        return pipe
    return pipe.then("cache()", lambda ds: ds.cache(), lambda epoch: reference.cache(pipe.meaning(FIRST)))


def ignore_errors(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """A budget says which errors come, so it depends on order."""
    most = draw(st.sampled_from([None, None, 0, 1, 3])) if pipe.ordered else None
    return pipe.then(
        f"ignore_errors(max_errors={most})",
        lambda ds: ds.ignore_errors(max_errors=most),
        lambda epoch: reference.ignore_errors(pipe.meaning(epoch), most),
    )


def assert_cardinality(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Only where it is the same in each epoch."""
    count = pipe.build().cardinality()
    if count < 0 or not pipe.counted:
        return pipe
    return pipe.then(f"assert_cardinality({count})", lambda ds: ds.assert_cardinality(count), pipe.meaning)


def pad_to_cardinality(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Only where the number is the same in each epoch, and there is something to be like."""
    count, elements = pipe.build().cardinality(), list(pipe.meaning(FIRST))
    if count < FEW or not pipe.counted or any(isinstance(element, reference.Failed) for element in elements):
        return pipe
    count += draw(counts(0, 1, 5))
    return pipe.then(
        f"pad_to_cardinality({count})",
        lambda ds: ds.pad_to_cardinality(count),
        lambda epoch: reference.pad_to_cardinality(pipe.meaning(epoch), count),
    )


def cache_in_file(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """All that is built of one pipeline shares a file, begun by whichever comes first."""
    folder, is_snapshot = Path(tempfile.mkdtemp(dir=scratch())), draw(st.booleans())

    def cached(ds: ad.Dataset) -> ad.Dataset:
        return ds.snapshot(folder) if is_snapshot else ds.cache(folder / "kept")

    weakref.finalize(cached, shutil.rmtree, folder)  # it is there as long as the pipeline is
    name = "snapshot(folder)" if is_snapshot else "cache(file)"
    return pipe.then(name, cached, lambda epoch: reference.cache(pipe.meaning(FIRST)))


def rate_limit(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """So fast that nothing waits for long."""
    burst = draw(st.sampled_from([1, 3, 100]))
    return pipe.then(
        f"rate_limit(1e6, {burst})",
        lambda ds: ds.rate_limit(1e6, burst),
        lambda epoch: reference.rate_limit(pipe.meaning(epoch)),
    )


def distinct(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    key, is_coroutine = draw(st.sampled_from([functions.few_keys, functions.keys_or_fail])), draw(st.booleans())
    run, most = functions.awaited(key) if is_coroutine else key, draw(st.sampled_from([None, 1, 3, 20]))
    return pipe.then(
        f"distinct({run.__name__}, {most})",
        lambda ds: ds.distinct(run, most),
        lambda epoch: reference.distinct(pipe.meaning(epoch), key, most),
    )


def pack_sequences(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Of elements as they are, which are seldom sequences, or of sequences that are made of them."""
    if (fn := draw(st.sampled_from([functions.sequence, functions.features, functions.sequence, None]))) is not None:
        pipe = mapped(pipe, fn)
    length = draw(counts(8, 5, 12, 1))
    how: dict[str, Any] = draw(
        st.sampled_from([{}, {"overlong": "truncate"}, {"overlong": "split"}, {"strategy": "concat_then_split"}])
    )
    if "strategy" not in how:
        most, strategy = draw(st.sampled_from([None, 2, 1])), draw(st.sampled_from(["first_fit", "best_fit"]))
        how = {**how, "strategy": strategy, "open_rows": draw(counts(2, 3, 1, 9)), "max_sequences": most}
    return pipe.then(
        f"pack_sequences({length}{arguments(how)})",
        lambda ds: ds.pack_sequences(length, **how),
        lambda epoch: reference.pack_sequences(pipe.meaning(epoch), length, **how),
    )


def mapped(pipe: Pipeline, fn: Callable[..., Any]) -> Pipeline:
    return pipe.then(
        f"map({fn.__name__})", lambda ds: ds.map(fn), lambda epoch: reference.map_(pipe.meaning(epoch), fn)
    )


def bucket_by_token_count(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Lengths are what the function says, whatever the elements are."""
    pipe = mapped(pipe, functions.sequence) if draw(st.booleans()) else pipe
    most, size, fn = draw(counts(12, 7, 30, 1)), draw(counts(5, 3, 8, 40)), draw(st.sampled_from(functions.SIZES))
    overlong = draw(st.sampled_from(["error", "drop", "keep"]))
    return pipe.then(
        f"bucket_by_token_count({most}, {fn.__name__}, {size}, overlong={overlong!r})",
        lambda ds: ds.bucket_by_token_count(most, fn, size, overlong=overlong),
        lambda epoch: reference.bucket_by_token_count(pipe.meaning(epoch), most, fn, size, overlong),
    )


def prefetch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size = draw(st.sampled_from([0, 1, 2, 7, ad.AUTOTUNE]))
    return pipe.then(
        f"prefetch({size})", lambda ds: ds.prefetch(size), lambda epoch: reference.prefetch(pipe.meaning(epoch))
    )


def enumerate_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    start = draw(st.integers(0, 5))
    return pipe.then(
        f"enumerate({start})",
        lambda ds: ds.enumerate(start),
        lambda epoch: reference.enumerate_(pipe.meaning(epoch), start),
    )


def zip_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    other = draw(chains(sources(), ORDERED_STEPS, 2).filter(lambda other: other.ordered))
    return replace(
        pipe,
        text=f"zip({pipe}, {other})",
        build=lambda: ad.Dataset.zip(pipe.build(), other.build()),
        meaning=lambda epoch: reference.zip_(pipe.meaning(epoch), other.meaning(epoch)),
        counted=pipe.counted and other.counted,
    )


def join(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    step, how = draw(counts(2, 1, 3)), draw(st.sampled_from(["inner", "left", "exact"]))
    key = draw(st.sampled_from([functions.number, functions.fail_sometimes_class, functions.awaited(functions.number)]))
    others = ad.Dataset.range(96, -1, -step).map(functions.named)
    plain = functions.number if iscoroutinefunction(key) else key
    joined = pipe.then(
        f"join(range(96, -1, {-step}).map(named), ({key.__name__}, 'value'), {how})",
        lambda ds: ds.join(others, (key, "value"), how),
        lambda epoch: reference.join(
            pipe.meaning(epoch), map(functions.named, range(96, -1, -step)), plain, lambda other: other["value"], how
        ),
    )
    return replace(joined, counted=pipe.counted and how != "inner")


def alike(*pipes: Pipeline) -> bool:
    """Whether elements may be of one structure and dtype: what is known to be of different ones is refused."""
    try:
        check_structures(
            "alike", {f"pipeline {place}": pipe.build().plan.signature for place, pipe in enumerate(pipes)}
        )
    except ad.PlanError:
        return False
    return True


def concatenate(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    others = draw(st.lists(chains(sources(), ORDERED_STEPS, 2), min_size=1, max_size=2))
    if not alike(pipe, *others):
        return pipe
    both = pipe.then(
        f"concatenate({', '.join(map(str, others))})",
        lambda ds: ds.concatenate(*[other.build() for other in others]),
        lambda epoch: reference.concatenate(pipe.meaning(epoch), *[other.meaning(epoch) for other in others]),
    )
    pipes = [pipe, *others]
    return replace(both, ordered=all(one.ordered for one in pipes), counted=all(one.counted for one in pipes))


def sample_from_datasets(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    others = draw(st.lists(chains(sources(), ORDERED_STEPS, 2), min_size=1, max_size=2))
    if not alike(pipe, *others):
        return pipe
    pipes = draw(st.permutations([pipe, *others]))
    rows = [[1.0, 1.0, 1.0], [0.7, 0.1, 0.2], [1e-9, 1, 1], [0.0, 2.5, 0.5]]
    weights = draw(st.sampled_from(rows))[: len(pipes)]
    seed, anew, named = draw(st.integers(0, 3)), draw(st.booleans()), draw(st.booleans())
    later, at = [x + 0.1 for x in draw(st.sampled_from(rows))[: len(pipes)]], draw(st.integers(1, 9))
    ordered = all(one.ordered for one in pipes)
    stop = ordered and draw(st.booleans())  # which elements come before the end depends on order
    form = draw(st.sampled_from(["constant", "constant", "table", "function"]))

    def by_name(row: list[float]) -> Any:
        return {f"d{place}": weight for place, weight in enumerate(row)} if named else row

    def at_step(step: int) -> list[float]:
        return later if form != "constant" and step >= at else first

    first = weights if form == "constant" else [weight + 0.1 for weight in weights]
    given: Any = {
        "constant": by_name(first),
        "table": {0: by_name(first), at: by_name(later)},
        "function": lambda step: by_name(at_step(step)),  # pyright: ignore[reportUnknownLambdaType]
    }[form]

    def build() -> ad.Dataset[Any]:
        datasets = [one.build() for one in pipes]
        mixed: Any = {f"d{place}": dataset for place, dataset in enumerate(datasets)} if named else datasets
        return ad.Dataset.sample_from_datasets(mixed, given, seed, stop, anew)

    return replace(
        pipe,
        text=f"sample_from_datasets({pipes}, {form} {first} {later} {at}, {seed}, {stop}, {anew}, {named})",
        build=build,
        meaning=lambda epoch: reference.sample_from_datasets(
            [one.meaning(epoch) for one in pipes], at_step, seed, epoch if anew else (), stop
        ),
        ordered=ordered,
        counted=all(one.counted for one in pipes),
    )


def choices(draw: st.DrawFn) -> Pipeline:
    """Numbers of three datasets, sound ones alone or others among them."""
    chosen = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2]), max_size=60))
    if draw(st.booleans()):
        chosen = [number if digest(place) % 7 else -1 - digest(place) % 9 for place, number in enumerate(chosen)]
    odd: list[Any] = [*chosen, draw(st.sampled_from([3, "x", None, 1.0, 0]))]
    pipe = Pipeline(f"from_iterable({odd})", lambda: ad.Dataset.from_iterable(odd), lambda epoch: odd)
    return draw(st.sampled_from([lambda _, same: same, map_choice, shuffle, repeat]))(draw, pipe)


def map_choice(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    def remap(choice: Any) -> Any:
        if digest(choice) % 5 == 3:
            raise Boom(choice)
        return choice

    how = draw(st.sampled_from([{}, {"num_parallel_calls": 2}]))
    return pipe.then(
        f"map(remap{arguments(how)})",
        lambda ds: ds.map(remap, **how),
        lambda epoch: reference.map_(pipe.meaning(epoch), remap),
    )


def choose_from_datasets(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    ordered = chains(sources(), ORDERED_STEPS, 2).filter(lambda other: other.ordered)
    others = draw(st.lists(ordered, min_size=1, max_size=2))
    if not alike(pipe, *others):
        return pipe
    pipes = draw(st.permutations([pipe, *others]))
    chosen, stop = choices(draw), draw(st.sampled_from([False, False, True]))
    return replace(
        pipe,
        text=f"choose_from_datasets({pipes}, {chosen}, {stop})",
        build=lambda: ad.Dataset.choose_from_datasets([one.build() for one in pipes], chosen.build(), stop),
        meaning=lambda epoch: reference.choose_from_datasets(
            [one.meaning(epoch) for one in pipes], chosen.meaning(epoch), stop
        ),
        counted=all(one.counted for one in (*pipes, chosen)),
    )


def options(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.then("with_options(Options())", lambda ds: ds.with_options(ad.Options()), pipe.meaning)


INNER_STEPS: tuple[Step, ...] = (
    map_,
    filter_,
    batch,
    padded_batch,
    take,
    skip,
    enumerate_,
    prefetch,
    ignore_errors,
    scan,
    unique,
    take_while,
)
"""What the inner datasets of flat_map and interleave are made of."""

MOVABLE_STEPS: tuple[Step, ...] = (map_keeping, map_keeping, filter_reading, filter_reading, prefetch, shuffle)

UNORDERED_STEPS: tuple[Step, ...] = (
    *(map_, filter_, prefetch, cache, unbatch, options, flat_map, concatenate, shuffle, group_all),
    sample_from_datasets,
    ignore_errors,
    rate_limit,
    rejection_resample,
    join,
)
"""What may follow where order is not promised: the elements that come out depend on no order."""

ORDERED_STEPS: tuple[Step, ...] = (
    *(
        map_,
        map_,
        map_,
        map_batches,
        map_vectorized,
        filter_,
        batch,
        batch_unbatch,
        batch_unbatch,
        shuffle,
        shuffle_all,
        take,
        skip,
    ),
    *(shard, balance, cache, prefetch, enumerate_, options, ignore_errors, assert_cardinality, pad_to_cardinality),
    *(cache_in_file, rate_limit, distinct, pack_sequences, bucket_by_token_count, movable),
)

GROUPING_STEPS: tuple[Step, ...] = (
    *(window, padded_batch, scan, take_while, unique, list_batch, ragged_batch, rebatch, rejection_resample),
    *(group_by_window, group_all, group_by_reducer, bucket_by_sequence_length),
)
"""What makes other elements of several ones, or of what came before."""

GROWING_STEPS: tuple[Step, ...] = (
    flat_map,
    interleave,
    repeat,
    repeat_some,
    shuffle_repeat,
    shuffle_repeat,
    concatenate,
    sample_from_datasets,
    window,
)

ALL_STEPS: tuple[Step, ...] = (
    *(*ORDERED_STEPS, *GROWING_STEPS, *GROUPING_STEPS),
    *(interleave, zip_, join, unbatch, choose_from_datasets),
)


@st.composite
def chains(draw: st.DrawFn, start: st.SearchStrategy[Pipeline], steps: tuple[Step, ...], most: int) -> Pipeline:
    """A pipeline and up to `most` of `steps` after it."""
    pipe = draw(start)
    size = length(pipe)  # counted once, as it takes longer than to draw
    for _ in range(draw(st.integers(0, most))):
        allowed = steps if pipe.ordered else tuple(step for step in steps if step in UNORDERED_STEPS)
        if size > MANY:
            allowed = tuple(step for step in allowed if step not in GROWING_STEPS)
        if allowed:
            longer = draw(st.sampled_from(allowed))(draw, pipe)
            longer_size = length(longer)
            if longer_size >= FEW or size < FEW or draw(st.integers(0, 4)) == 0:
                pipe, size = longer, longer_size
    return pipe


def length(pipe: Pipeline) -> int:
    return len(list(pipe.meaning(FIRST)))


def pipelines() -> st.SearchStrategy[Pipeline]:
    """Random pipelines of up to seven transformations, not counting those inside of them."""
    return chains(sources(), ALL_STEPS, 7)

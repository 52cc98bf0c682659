"""cache(filename): a state is of one file; if that is gone, or was written again, nothing is lost in silence."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count as counting
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.formats.tfrecord import RecordParser, frame
from asyncdata.persistence.header import TAIL
from tests.offset_stream import COUNT, OffsetStream, out_of_turn
from tests.persistence.test_cache import STEPS as READ_AGAIN
from tests.reference import plain

RUNS = counting()


def in_another_order() -> list[int]:
    numbers = [*range(COUNT)]
    random.Random(next(RUNS)).shuffle(numbers)
    return numbers


class Stream:
    async def __aiter__(self) -> AsyncIterator[int]:
        for number in in_another_order():
            yield number


def unordered(ds: ad.Dataset[Any]) -> ad.Dataset[Any]:
    return ds.map(abs, num_parallel_calls=2, deterministic=False)


INPUTS: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "without a seed": lambda: ad.Dataset.range(COUNT).shuffle(COUNT),
    "a generator": lambda: ad.Dataset.from_generator(in_another_order),
    "a stream": lambda: ad.Dataset.from_async_iterable(Stream()),
    "without order": lambda: unordered(ad.Dataset.from_generator(in_another_order)),
    "batches that depend on time": lambda: ad.Dataset.from_async_iterable(Stream()).batch(4, within=60).unbatch(),
}
"""Inputs that differ from run to run."""


def numbers_of(reader: Any, window: Any) -> Any:
    return window.batch(2)


STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    **READ_AGAIN,
    "shuffle": lambda ds: ds.shuffle(5, seed=1),
    "shuffle of all": lambda ds: ds.shuffle(2 * COUNT, seed=1),
    "shuffle by number": lambda ds: ds.shuffle(seed=1),
    "shuffle by number of more": lambda ds: ad.Dataset.range(100, 109).concatenate(ds).shuffle(seed=1),
    "shuffle and repeat": lambda ds: ds.shuffle(2 * COUNT, seed=1).repeat(2),
    "batch": lambda ds: ds.batch(5),
    "window": lambda ds: ds.window(3, 1, drop_remainder=True).flat_map(lambda window: window.batch(3)),
    "group_by_window": lambda ds: ds.group_by_window(lambda x: x % 3, numbers_of, 2),
    "skip": lambda ds: ds.skip(3),
    "shard": lambda ds: ds.shard(1, 0),
    "an unordered map": unordered,
    "two of it": lambda ds: ad.Dataset.zip(ds, ds),
    "a mixture": lambda ds: ad.Dataset.sample_from_datasets([ds, ad.Dataset.range(9)], seed=1),
    "rebatch": lambda ds: ds.batch(5).rebatch(3),
}


def written_anew(path: Path, make: Callable[[], ad.Dataset[Any]]) -> ad.Dataset[Any]:
    path.unlink(missing_ok=True)
    ds = make().cache(path)
    list(ds)
    return make().cache(path)


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_state_is_of_the_file_that_was_read(
    tmp_path: Path, make: Callable[[], ad.Dataset[Any]], step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]
) -> None:
    path = tmp_path / "kept"
    ds = step(written_anew(path, make))
    if step is READ_AGAIN["scan of objects"] and not ds.plan.in_order:
        return  # it has no states
    with ds.iterate() as elements:
        first = [plain(next(elements)) for _ in range(4)]
        state = json.loads(json.dumps(elements.state_dict()))
        rest = sorted(map(repr, map(plain, elements)))
    assert len(first) == 4
    again = sorted(map(repr, map(plain, step(make().cache(path)).iterate(state=state))))
    assert again == rest
    whole = path.read_bytes()
    other = step(written_anew(path, make))
    with pytest.raises(ad.ResumeError, match="written again|another order|existed when the state was saved"):
        list(other.iterate(state=state))
    path.write_bytes(whole)
    assert sorted(map(repr, map(plain, step(make().cache(path)).iterate(state=state)))) == rest


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_an_origin_is_of_the_file_that_was_read(tmp_path: Path, make: Callable[[], ad.Dataset[Any]]) -> None:
    path = tmp_path / "kept"
    ds = written_anew(path, make).shuffle(5, seed=1)
    with ds.iterate() as elements:
        number = next(elements)
        origin = json.loads(json.dumps(elements.origin()))
    assert list(make().cache(path).shuffle(5, seed=1).replay([origin])) == [number]
    other = written_anew(path, make).shuffle(5, seed=1)
    with pytest.raises(ad.ResumeError, match="written again"):
        list(other.replay([origin]))


@pytest.mark.parametrize("name", [name for name in INPUTS if name != "without a seed"])
def test_the_file_of_an_input_that_differs_is_needed(tmp_path: Path, name: str) -> None:
    path, make = tmp_path / "kept", INPUTS[name]
    with written_anew(path, make).iterate() as elements:
        next(elements)
        state = elements.state_dict()
    path.unlink()
    with pytest.raises(ad.ResumeError, match="the file is gone|written again"):
        list(make().cache(path).iterate(state=state))


SAME_ORDER = [name for name in STEPS if not name.startswith("shuffle by number")]


@pytest.mark.parametrize("name", SAME_ORDER)
@pytest.mark.parametrize("written", [False, True])
def test_a_file_of_the_same_elements_will_do(tmp_path: Path, name: str, written: bool) -> None:
    """A generator may give others; if it does not, the file is the same, and may be gone too."""
    path = tmp_path / "kept"

    def build() -> ad.Dataset[Any]:
        return STEPS[name](ad.Dataset.from_generator(lambda: iter(range(COUNT))).cache(path))

    list(build())
    with build().iterate() as elements:
        first = [plain(next(elements)) for _ in range(4)]
        state = json.loads(json.dumps(elements.state_dict()))
        rest = [*map(plain, elements)]
    assert len(first) == 4
    path.unlink()
    if written:
        list(build())
    assert sorted(map(repr, map(plain, build().iterate(state=state)))) == sorted(map(repr, rest))


def test_random_numbers_of_an_element_do_not_depend_on_what_else_is_stored(tmp_path: Path) -> None:
    found: list[list[float]] = []
    for count in (COUNT, COUNT + 1):
        base = ad.Dataset.from_iterable(iter(range(count))).cache(tmp_path / str(count))
        list(base)
        found.append(list(base.map(lambda x, rng: rng.random(), rng=True, seed=1)))
    assert found[0] == found[1][:COUNT]


def test_a_message_names_an_element_by_its_number(tmp_path: Path) -> None:
    ds = ad.Dataset.from_generator(lambda: iter([1, 0])).cache(tmp_path / "kept").map(lambda x: 1 // x)
    for _ in range(2):
        with ds.iterate() as elements:
            assert next(elements) == 1
            with pytest.raises(ZeroDivisionError) as caught:
                next(elements)
        assert caught.value.__notes__[0].endswith(", element 1")
        list(ds.ignore_errors())


def test_a_file_of_a_seed_needs_not_be_the_same(tmp_path: Path) -> None:
    def build() -> ad.Dataset[Any]:
        return ad.Dataset.range(COUNT).shuffle(9, seed=3).cache(tmp_path / "kept").shuffle(5, seed=1)

    list(build())
    with build().iterate() as elements:
        next(elements)
        state = elements.state_dict()
        rest = list(elements)
    assert "written" not in json.dumps(state)
    for _ in range(2):
        assert list(build().iterate(state=state)) == rest
        (tmp_path / "kept").unlink(missing_ok=True)


@pytest.mark.parametrize("step", [STEPS["cache alone"], STEPS["shuffle"], STEPS["batch"]])
def test_while_it_is_written_a_stream_resumes_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]
) -> None:
    def build() -> ad.Dataset[Any]:
        return step(ad.Dataset.from_generator(OffsetStream).cache(tmp_path / "kept"))

    with build().iterate() as elements:
        first = [plain(next(elements)) for _ in range(2)]
        state = json.loads(json.dumps(elements.state_dict()))
        rest = [*map(plain, elements)]
    (tmp_path / "kept").unlink()
    monkeypatch.setattr(OffsetStream, "begin", 7)
    assert [*map(plain, build().iterate(state=state))] == rest
    assert len(first) == 2


def test_a_generator_that_was_left_is_written_by_the_run_that_resumes(tmp_path: Path) -> None:
    runs: list[int] = []

    def numbers() -> Iterator[int]:
        runs.append(0)
        yield from range(COUNT)

    def build() -> ad.Dataset[Any]:
        return ad.Dataset.from_generator(numbers).cache(tmp_path / "kept").repeat(2)

    with build().iterate() as elements:
        first = [next(elements) for _ in range(9)]
        state = elements.state_dict()
    assert first + list(build().iterate(state=state)) == [*range(COUNT)] * 2
    assert len(runs) == 2


def test_what_was_begun_in_order_is_not_completed_without_order(tmp_path: Path) -> None:
    def build(deterministic: bool) -> ad.Dataset[Any]:
        ds = ad.Dataset.range(60).map(out_of_turn, num_parallel_calls=4, deterministic=deterministic)
        return ds.cache(tmp_path / "kept")

    first = build(deterministic=True).iterate()
    assert [next(first) for _ in range(5)] == [*range(5)]
    assert sorted(build(deterministic=False)) == [*range(60)]
    first.close()
    assert sorted(build(deterministic=False)) == [*range(60)]
    assert list(build(deterministic=True)) == [*range(60)]


def test_a_file_without_a_checksum_of_all_is_read(tmp_path: Path) -> None:
    """As one of an earlier version; another one that takes its place is told from it."""
    path, make = tmp_path / "kept", INPUTS["a generator"]
    whole = list(written_anew(path, make))
    parser = RecordParser(str(path))
    parser.feed(path.read_bytes())
    records: list[Any] = parser.parse(100)
    last = records.pop()
    assert len(last.removeprefix(TAIL).split()) == 2
    path.write_bytes(b"".join(map(frame, [*records, TAIL + b"%d" % COUNT])))
    with make().cache(path).iterate() as elements:
        assert next(elements) == whole[0]
        state = elements.state_dict()
    assert list(make().cache(path).iterate(state=state)) == whole[1:]
    other = written_anew(path, make)
    with pytest.raises(ad.ResumeError, match="written again"):
        list(other.iterate(state=state))


def test_a_mixture_of_which_part_of_the_first_window_was_delivered(tmp_path: Path) -> None:
    """Its position is the beginning, and yet of one file."""
    path, make = tmp_path / "kept", INPUTS["a generator"]

    def build(kept: ad.Dataset[Any]) -> ad.Dataset[Any]:
        mixture = ad.Dataset.sample_from_datasets([kept, ad.Dataset.range(9)], seed=1)
        return mixture.group_by_window(lambda x: 0, lambda _, window: window, 1)

    with build(written_anew(path, make)).iterate() as elements:
        next(elements)
        state = elements.state_dict()
        rest = list(elements)
    assert list(build(make().cache(path)).iterate(state=state)) == rest
    other = build(written_anew(path, make))
    with pytest.raises(ad.ResumeError, match="written again"):
        list(other.iterate(state=state))


@pytest.mark.parametrize("size", [100, 5000])
def test_the_buffer_of_a_shuffle_need_not_be_in_a_state(tmp_path: Path, size: int) -> None:
    """It is a function of how many elements of the file came, also where another file may have others."""

    def build() -> ad.Dataset[Any]:
        numbers = ad.Dataset.from_generator(lambda: iter(range(3000)))
        return numbers.cache(tmp_path / "kept").shuffle(size, seed=1).batch(10)

    list(build())
    with build().iterate() as batches:
        for _ in range(50):
            next(batches)
        state = json.loads(json.dumps(batches.state_dict()))
        rest = [batch.tolist() for batch in batches]
    assert len(json.dumps(state)) < 1000
    assert [batch.tolist() for batch in build().iterate(state=state)] == rest

"""Stopping anywhere and going on: what a state says and when, what it is refused by, what is done again, its size."""

from __future__ import annotations

import asyncio
import copy
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import combinations, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import ResumeError
from asyncdata.testing import check_resumes
from asyncdata.testing.checks import same
from tests.marks import first_by_default
from tests.pages import check_examples
from tests.reference import Failed, failed
from tests.states import edited

pytestmark = pytest.mark.usefixtures("nothing_left")

MOST = 10_000


class Way(NamedTuple):
    """A way to read: with `for` or `async for`, in the engine's thread or the consumer's."""

    is_async: bool
    placement: Any


WAYS = [Way(is_async, placement) for is_async in (False, True) for placement in ("thread", "current")]

EACH_WAY = pytest.mark.parametrize(
    "way", WAYS, ids=lambda way: f"{'async' if way.is_async else 'plain'} {way.placement}"
)


def unlucky(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(f"{x} is unlucky")
    return x


def pipeline() -> ad.Dataset:
    """Order, memory, parallel work and failures, in 14 elements."""
    numbers = ad.Dataset.range(40).shuffle(6, seed=3).map(unlucky, num_parallel_calls=3)
    return numbers.filter(lambda x: x % 5).batch(4).prefetch(2)


def read(ds: ad.Dataset, way: Way = WAYS[0], most: int = MOST, state: Any = None) -> tuple[list[Any], dict[str, Any]]:
    """Read some elements, failures in their places, and return them with the state after them, as JSON gives it."""
    ds = ds.with_options(ad.Options(placement=way.placement))
    found: list[Any] = []

    async def collect() -> Any:
        async with ds.iterate(state=state) as elements:
            while len(found) < most:
                try:
                    found.append(await anext(elements))
                except StopAsyncIteration:
                    break
                except ValueError as error:
                    found.append(failed(error))
            return elements.state_dict()

    if way.is_async:
        state = asyncio.run(collect())
    else:
        with ds.iterate(state=state) as elements:
            found += islice(outcomes(elements), most)
            state = elements.state_dict()
    return found, json.loads(json.dumps(state))


def outcomes(elements: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            yield next(elements)
        except StopIteration:
            return
        except ValueError as error:
            yield failed(error)


def rest(ds: ad.Dataset, state: Any) -> list[Any]:
    return read(ds, state=state)[0]


# between any two elements


@EACH_WAY
def test_a_state_from_any_place_and_any_way_is_used_in_any_other(way: Way) -> None:
    whole = rest(pipeline(), None)
    assert Failed in set(map(type, whole))
    for place in range(len(whole) + 1):
        found, state = read(pipeline(), way, place)
        assert same(found, whole[:place])
        for other in WAYS:
            assert same(read(pipeline(), other, state=state)[0], whole[place:])


@EACH_WAY
def test_a_run_that_is_stopped_after_every_element(way: Way) -> None:
    found: list[Any] = []
    state = None
    while (leg := read(pipeline(), way, 1, state))[0]:
        found += leg[0]
        state = leg[1]
        assert state["delivered"] == len(found)
    assert same(found, rest(pipeline(), None))


def test_before_the_first_element_it_is_the_start() -> None:
    elements = pipeline().iterate()
    state = elements.state_dict()
    assert state["delivered"] == 0
    assert same(rest(pipeline(), state), rest(pipeline(), None))


def test_after_the_end_nothing_comes() -> None:
    _, state = read(pipeline())
    for way in WAYS:
        assert read(pipeline(), way, state=state) == ([], state)


def test_the_end_that_was_not_seen_yet_comes_next() -> None:
    whole, _ = read(pipeline())
    _, state = read(pipeline(), most=len(whole))
    assert rest(pipeline(), state) == []


def test_after_close_the_state_stays() -> None:
    elements = pipeline().iterate()
    next(elements)
    state = elements.state_dict()
    elements.close()
    assert elements.state_dict() == state
    with pytest.raises(ad.ClosedError):
        next(elements)
    assert elements.state_dict() == state


def test_after_aclose_the_state_stays() -> None:
    async def body() -> None:
        elements = aiter(pipeline())
        await anext(elements)
        state = elements.state_dict()
        await elements.aclose()
        assert elements.state_dict() == state

    asyncio.run(body())


def test_a_failed_element_was_delivered_and_does_not_come_again() -> None:
    elements = ad.Dataset.range(8).map(unlucky).iterate()
    assert list(islice(elements, 3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="3 is unlucky"):
        next(elements)
    state = elements.state_dict()
    elements.close()
    assert state["delivered"] == 4
    assert list(ad.Dataset.range(8).map(unlucky).iterate(state=state)) == [4, 5, 6, 7]


def test_what_the_consumer_left_with_an_exception_goes_on_after_the_element_that_it_had() -> None:
    elements = ad.Dataset.range(10).iterate()
    with elements, pytest.raises(KeyError):
        for x in elements:
            if x == 4:
                raise KeyError(x)
    assert list(ad.Dataset.range(10).iterate(state=elements.state_dict())) == [5, 6, 7, 8, 9]


def full(number: int, _: bool) -> Any:
    return np.full((1, 2), number)


@pytest.mark.parametrize(
    "taken_apart",
    [
        lambda ds: ds.map(full).unbatch(),
        lambda ds: ds.map(full).flat_map(ad.Dataset.from_tensor_slices),
        lambda ds: ds.map(full).interleave(ad.Dataset.from_tensor_slices),
        lambda ds: ds.map(full).batch(1).rebatch(1).map(lambda rows: rows[0]).unbatch(),
    ],
    ids=["unbatch", "flat_map", "interleave", "rebatch"],
)
def test_elements_of_padding_are_apart_after_going_on(taken_apart: Any) -> None:
    """They have one ticket, by which the buffer of `shuffle` has them made again."""
    ds = taken_apart(ad.Dataset.range(2).pad_to_cardinality(6)).shuffle(5, seed=1)
    with ds.iterate() as elements:
        first = next(elements)
        rest = list(ds.iterate(state=elements.state_dict()))
    assert sorted(int(element[0]) for element in [first, *rest]) == sorted(int(element[0]) for element in ds)
    assert not [pair for pair in combinations(rest, 2) if np.shares_memory(*pair)]


@pytest.mark.parametrize("taken_apart", ["unbatch", "flat_map"])
def test_failures_of_padding_are_raised_each_after_going_on(taken_apart: str) -> None:
    def fails(number: int, valid: bool) -> Any:
        raise KeyError(number, valid)

    padded = ad.Dataset.range(2).pad_to_cardinality(6)
    ds = (padded.map(fails).unbatch() if taken_apart == "unbatch" else padded.flat_map(fails)).shuffle(
        5, seed=1, reshuffle_each_iteration=False
    )

    def read(most: int, state: Any = None) -> tuple[list[str], Any]:
        found: list[str] = []
        with ds.iterate(state=state) as elements:
            while len(found) < most:
                try:
                    next(elements)
                except KeyError as error:
                    found.append(repr(error))
                except StopIteration:
                    break
            return found, elements.state_dict()

    whole, _ = read(99)
    assert len(whole) == 6
    for stop in range(7):
        found, state = read(stop)
        assert found + read(99, state)[0] == whole


def test_a_state_does_not_change_when_the_iterator_goes_on() -> None:
    with pipeline().iterate() as elements:
        states = [(elements.state_dict(), elements.state_dict()) for _ in outcomes(elements)]
        kept = copy.deepcopy(states)
    assert states == kept
    assert all(one == other for one, other in states)


def test_a_state_is_nothing_but_json() -> None:
    with pipeline().repeat(2).iterate() as elements:
        for _ in outcomes(elements):
            state = elements.state_dict()
            assert json.loads(json.dumps(state)) == state


def test_the_note_of_an_error_names_the_same_element_after_going_on() -> None:
    def notes(state: Any) -> list[list[str]]:
        found: list[list[str]] = []
        with ad.Dataset.range(30).map(unlucky, num_parallel_calls=2).iterate(state=state) as elements:
            while True:
                try:
                    next(elements)
                except StopIteration:
                    return found
                except ValueError as error:
                    found.append(error.__notes__)

    _, state = read(ad.Dataset.range(30).map(unlucky, num_parallel_calls=2), most=6)
    assert notes(state) == notes(None)[1:]


def test_the_examples_of_the_documentation() -> None:
    check_examples("resume.md")


# load_state_dict


@EACH_WAY
def test_a_running_iterator_jumps_back_and_forth(way: Way) -> None:
    ds = ad.Dataset.counter().map(abs, num_parallel_calls=2).with_options(ad.Options(placement=way.placement))
    states = [read(ds, most=place)[1] for place in (70, 0, 5)]

    async def body() -> list[int]:
        found: list[int] = []
        async with ds.iterate() as elements:
            for state in states:
                found.append(await anext(elements))
                elements.load_state_dict(state)
                assert elements.state_dict() == {**state, "epoch": elements.state_dict()["epoch"]}
                found.append(await anext(elements))
        return found

    def plain() -> list[int]:
        found: list[int] = []
        with ds.iterate() as elements:
            for state in states:
                found.append(next(elements))
                elements.load_state_dict(state)
                found.append(next(elements))
        return found

    assert (asyncio.run(body()) if way.is_async else plain()) == [0, 70, 71, 0, 1, 5]


def test_a_closed_and_a_finished_iterator_begin_again_at_a_state() -> None:
    ds = ad.Dataset.range(5)
    _, state = read(ds, most=2)
    finished, closed = ds.iterate(), ds.iterate()
    list(finished)
    closed.close()
    for elements in (finished, closed):
        elements.load_state_dict(state)
        assert list(elements) == [2, 3, 4]


def test_a_state_that_is_refused_leaves_the_iterator_where_it_was() -> None:
    _, state = read(ad.Dataset.range(7), most=2)
    with ad.Dataset.range(5).iterate() as elements:
        next(elements)
        with pytest.raises(ResumeError, match=r"step 1 was range\(7\) .* is range\(5\) now"):
            elements.load_state_dict(state)
        assert list(elements) == [1, 2, 3, 4]


def test_an_iterator_of_numpy_values_goes_on_as_such() -> None:
    ds = ad.Dataset.range(5)
    with ds.as_numpy_iterator() as elements:
        next(elements)
        state = elements.state_dict()
    elements = ds.as_numpy_iterator()
    elements.load_state_dict(state)
    assert [type(x) for x in elements] == [np.int64] * 4


# epochs and seeds


def test_the_iteration_after_one_that_went_on_is_the_next_epoch() -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.range(20).shuffle(20, seed=5)

    ds = build()
    epochs = [list(ds) for _ in range(4)]
    assert len(set(map(tuple, epochs))) == 4
    ds = build()
    list(ds)
    _, state = read(build(), most=0)
    with ds.iterate() as elements:
        head = list(islice(elements, 8))
        state = elements.state_dict()
    assert state["epoch"] == 1
    ds = build()
    assert head + list(ds.iterate(state=state)) == epochs[1]
    assert [list(ds), list(ds)] == epochs[2:]


def test_a_shuffle_without_a_seed_goes_on_with_that_of_the_state() -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.range(50).shuffle(50).map(abs).shuffle(9)

    ds = build()
    with ds.iterate() as elements:
        head = list(islice(elements, 20))
        state = json.loads(json.dumps(elements.state_dict()))
        whole = head + list(elements)
    again = build()
    assert head + list(again.iterate(state=state)) == whole
    assert list(again) == list(ds)  # the next epochs too


def test_a_given_seed_must_be_that_of_the_state() -> None:
    _, state = read(ad.Dataset.range(9).shuffle(3, seed=1), most=2)
    with pytest.raises(ResumeError, match=r"shuffle\(3\): the seed was 1 when the state was saved, and is 2 now"):
        ad.Dataset.range(9).shuffle(3, seed=2).iterate(state=state)


# what a state fits


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: ad.Dataset.range(12).map(abs).batch(3), r"step 3 was batch\(2\) .*, and is batch\(3\) now"),
        (lambda: ad.Dataset.range(12).map(str).batch(2), r"step 2 was map\(abs\) .*, and is map\(str\) now"),
        (lambda: ad.Dataset.range(13).map(abs).batch(2), r"step 1 was range\(12\) .*, and is range\(13\) now"),
        (lambda: ad.Dataset.range(12).map(abs), r"step 3 was batch\(2\) .*, and is nothing now"),
        (lambda: ad.Dataset.range(12).map(abs).batch(2).take(9), r"step 4 was nothing .*, and is take\(9\) now"),
        (lambda: ad.Dataset.range(12).map(abs).batch(2, drop_remainder=True), r"step 3 .*drop_remainder=True"),
        (lambda: ad.Dataset.range(12).shuffle(2).map(abs).batch(2), r"step 2 was map\(abs\) .*, and is shuffle\(2\)"),
    ],
)
def test_another_plan_is_refused_by_the_first_step_that_differs(other: Any, said: str) -> None:
    _, state = read(ad.Dataset.range(12).map(abs).batch(2), most=2)
    with pytest.raises(ResumeError, match=said):
        other().iterate(state=state)


async def async_abs(x: int) -> int:
    return abs(x)


async_abs.__qualname__ = "abs"


@pytest.mark.parametrize(
    "other",
    [
        lambda: ad.Dataset.range(30).map(abs, num_parallel_calls=8).batch(2),
        lambda: ad.Dataset.range(30).map(abs).batch(2, num_parallel_calls=3),
        lambda: ad.Dataset.range(30).map(abs, executor="thread").prefetch(3).batch(2).prefetch(1),
        lambda: ad.Dataset.range(30).map(abs).batch(2).with_options(ad.Options(optimize=False)),
        lambda: ad.Dataset.range(30).map(abs).batch(2).with_options(ad.Options(disabled_rules=("inject_prefetch",))),
        lambda: ad.Dataset.range(30).map(async_abs, num_parallel_calls=4).batch(2),
    ],
)
def test_how_it_is_run_may_change(other: Any) -> None:
    expected = [[8, 9], [10, 11]]
    _, state = read(ad.Dataset.range(30).map(abs, num_parallel_calls=3).prefetch(5).batch(2), most=4)
    assert [batch.tolist() for batch in rest(other(), state)[:2]] == expected
    _, state = read(other(), most=4)
    assert [batch.tolist() for batch in rest(ad.Dataset.range(30).map(abs).batch(2), state)[:2]] == expected


@pytest.mark.parametrize("there", [True, False])
def test_an_order_that_is_given_up_or_kept_from_now_on(there: bool) -> None:
    def build(deterministic: bool) -> ad.Dataset:
        return ad.Dataset.range(100).map(abs, num_parallel_calls=4, deterministic=deterministic)

    head, state = read(build(there), most=30)
    assert sorted(head + rest(build(not there), state)) == list(range(100))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"version": "2"},
        {"version": None},
        {"plan": None},
        {"plan": 3},
        {"plan": []},
        {"seeds": []},
        {"seeds": None},
        {"seeds": ["x"]},
        {"seeds": [1, 2]},
        {"epoch": None},
        {"epoch": "x"},
        {"delivered": None},
        {"delivered": "x"},
    ],
    ids=str,
)
def test_a_state_of_which_something_else_was_made_is_refused(change: dict[str, Any]) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.range(10).shuffle(3).batch(2)

    _, state = read(build(), most=1)
    with pytest.raises(ResumeError):
        build().iterate(state=edited(state, **change))


@pytest.mark.parametrize("missing", ["version", "plan", "seeds", "epoch", "delivered", "position"])
def test_a_state_that_lacks_something_is_refused(missing: str) -> None:
    _, state = read(ad.Dataset.range(10), most=1)
    state = edited(state)
    del state[missing]
    with pytest.raises(ResumeError):
        ad.Dataset.range(10).iterate(state=state)


@pytest.mark.parametrize("state", [{}, [], "state", 3, b"", {"step": 7}], ids=str)
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(ResumeError, match="a state is what state_dict\\(\\) returns, got"):
        ad.Dataset.range(10).iterate(state=state)
    with pytest.raises(ResumeError, match="a state is what state_dict\\(\\) returns, got"):
        ad.Dataset.range(10).iterate().load_state_dict(state)


@pytest.mark.parametrize("position", [{"nonsense": 1}, 17, "x", [], [1, 2, 3], {"back": 3, "from": 0}], ids=str)
def test_a_position_of_another_shape_is_refused_and_names_the_step(position: Any) -> None:
    _, state = read(ad.Dataset.range(10).shuffle(3, seed=1), most=1)
    with pytest.raises(ResumeError, match=r"shuffle\(3\)"):
        list(ad.Dataset.range(10).shuffle(3, seed=1).iterate(state=edited(state, position=position)))


# sources that are a user's


def test_a_generator_is_run_again_and_what_was_delivered_is_dropped() -> None:
    given: list[int] = []

    def generate() -> Iterator[int]:
        for x in range(10):
            given.append(x)
            yield x

    _, state = read(ad.Dataset.from_generator(generate), most=6)
    given.clear()
    assert rest(ad.Dataset.from_generator(generate), state) == [6, 7, 8, 9]
    assert given == list(range(10))


def test_a_generator_that_has_become_shorter_is_named_below_a_shuffle() -> None:
    def build(size: int) -> ad.Dataset:
        return ad.Dataset.from_generator(lambda: iter(range(size))).shuffle(4, seed=1)

    _, state = read(build(10), most=3)
    with pytest.raises(
        ResumeError, match=r"from_generator\(<lambda>\).* it ended after 3 elements, and 7 had been read"
    ):
        list(build(3).iterate(state=state))


def test_async_iterables_and_caches() -> None:
    class Ticks:
        async def __aiter__(self) -> Any:
            for i in range(9):
                yield i

    check_resumes(lambda: ad.Dataset.from_async_iterable(Ticks()).map(abs, num_parallel_calls=2))
    check_resumes(lambda: ad.Dataset.from_async_iterable(Ticks()).cache().shuffle(9, seed=1).repeat(3).batch(2))


# what is done again


class Counted:
    """A function that takes a moment, and counts its calls for each element."""

    def __init__(self, size: int) -> None:
        self.calls = [0] * size
        self.lock = threading.Lock()

    def note(self, x: int) -> int:
        with self.lock:
            self.calls[x] += 1
        return x

    def plain(self, x: int) -> int:
        time.sleep(0.001)
        return self.note(x)

    async def awaited(self, x: int) -> int:
        await asyncio.sleep(0.001)
        return self.note(x)


def stop_and_go(build: Callable[[], ad.Dataset], stops: int, most: int) -> Iterator[list[Any]]:
    """Yield the elements of each leg of a run that is stopped so often, after so many elements."""
    state = None
    for _ in range(stops):
        elements, state = read(build(), most=most, state=state)
        yield elements
    yield rest(build(), state)


@pytest.mark.parametrize("kind", ["plain", "awaited"])
def test_a_function_is_called_again_only_for_what_was_in_flight(kind: str) -> None:
    size, stops, batch = 20_000, 9, 32
    counted = Counted(size)

    def build() -> ad.Dataset:
        numbers = ad.Dataset.range(size).map(getattr(counted, kind), num_parallel_calls=64, deterministic=False)
        return numbers.batch(batch).prefetch(8)

    again: list[int] = []
    delivered: list[int] = []
    for leg in stop_and_go(build, stops, most=62):
        delivered += np.concatenate(leg).tolist()
        again.append(sum(counted.calls) - len(delivered) - sum(again))
    window, prefetched = 2 * 64, (8 + 8 // 4) * batch
    assert sorted(delivered) == list(range(size))
    assert max(again) < window + prefetched + batch
    assert again[-1] == 0


def test_in_order_a_function_is_called_again_only_for_what_was_in_flight() -> None:
    counted = Counted(2000)
    legs = stop_and_go(lambda: ad.Dataset.range(2000).map(counted.plain, num_parallel_calls=8).prefetch(4), 9, most=190)
    assert [x for leg in legs for x in leg] == list(range(2000))
    assert sum(counted.calls) <= 2000 + 9 * (2 * 8 + 4 + 1)


def test_without_prefetch_and_parallel_calls_nothing_is_done_again() -> None:
    calls: list[int] = []

    def build() -> ad.Dataset:
        options = ad.Options(disabled_rules=("inject_prefetch",))
        return ad.Dataset.range(50).map(lambda x: calls.append(x) or x).with_options(options)

    assert [x for leg in stop_and_go(build, 9, most=5) for x in leg] == list(range(50))
    assert calls == list(range(50))


# how large a state is


def compact(state: Any) -> int:
    return len(json.dumps(state, separators=(",", ":")))


def largest(ds: ad.Dataset, most: int) -> int:
    with ds.iterate() as elements:
        return max(compact(elements.state_dict()) for _ in islice(elements, most))


@pytest.fixture(scope="module")
def thousand_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for number in range(1000):
        with ad.TFRecordWriter(folder / f"shard-{number:05d}-of-01000.tfrecord") as writer:
            for record in range(5):
                writer.write(b"%d" % (number * 5 + record))
    return folder


@pytest.mark.slow
def test_the_state_of_a_pipeline_over_a_thousand_files_is_small(thousand_files: Path) -> None:
    files = ad.Dataset.list_files(str(thousand_files / "*.tfrecord"), seed=1)
    records = files.interleave(ad.TFRecordDataset, num_parallel_calls=4).map(int, num_parallel_calls=8)
    assert largest(records.batch(32).prefetch(2), 150) <= 4096
    assert largest(ad.TFRecordDataset(files).shuffle(100).batch(32), 150) <= 4096


@pytest.mark.slow
def test_a_run_over_a_thousand_files_with_nine_stops_is_exact(thousand_files: Path) -> None:
    def build() -> ad.Dataset:
        files = ad.Dataset.list_files(str(thousand_files / "*.tfrecord"), seed=1)
        records = files.interleave(ad.TFRecordDataset, num_parallel_calls=4).map(int, num_parallel_calls=8)
        return records.shuffle(64, seed=2).batch(32).prefetch(2)

    legs = [x for leg in stop_and_go(build, 9, most=15) for batch in leg for x in batch.tolist()]
    assert legs == np.concatenate(list(build())).tolist()
    assert sorted(legs) == list(range(5000))


@pytest.mark.parametrize("kind", ["plain", "awaited", "note"], ids=["in threads", "awaited", "cheap in threads"])
def test_the_state_of_a_map_out_of_order_is_small(kind: str) -> None:
    fn = getattr(Counted(100_000), kind)
    ds = ad.Dataset.range(100_000).map(fn, num_parallel_calls=64, deterministic=False).batch(32).prefetch(8)
    assert largest(ds, 200) <= 64 * 1024


# while the engine runs


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.slow
def test_thousands_of_states_while_the_engine_runs(deterministic: bool) -> None:
    """Each of them is taken while the engine's thread and its workers go on."""
    size = 3000

    def build() -> ad.Dataset:
        numbers = ad.Dataset.range(size).map(abs, num_parallel_calls=4, deterministic=deterministic)
        return numbers.filter(lambda x: x % 3).shuffle(50, seed=1).prefetch(16)

    with build().iterate() as elements:
        pairs = [(x, elements.state_dict()) for x in elements]
    whole = [x for x, _ in pairs]
    assert sorted(whole) == [x for x in range(size) if x % 3]
    for place in np.random.default_rng(0).integers(1, len(pairs), 20).tolist():
        found, expected = rest(build(), json.loads(json.dumps(pairs[place - 1][1]))), whole[place:]
        assert found == expected if deterministic else sorted(found) == sorted(expected)


def filtered_between(*ordered: bool) -> ad.Dataset[int]:
    """What is in flight in one map has passed the filters before it; what is in flight in those before has not."""
    ds = ad.Dataset.range(100)
    for divisor, deterministic in zip((3, 5, 7), ordered, strict=True):
        ds = ds.map(lambda x: x, num_parallel_calls=2, deterministic=deterministic)
        ds = ds.filter(lambda x, divisor=divisor: x % divisor != 0, num_parallel_calls=1)
    return ds


@pytest.mark.slow
@pytest.mark.parametrize("switched", [False, True])
def test_filters_between_steps_without_order(switched: bool) -> None:
    dice = random.Random(3)
    for _ in range(40):
        found: list[int] = []
        state = None
        for most in (dice.randrange(20), dice.randrange(12), dice.randrange(12), 1000):
            order = [switched and dice.random() < 0.5 for _ in range(3)]
            with filtered_between(*order).iterate(state=state) as elements:
                found += islice(elements, most)
                state = json.loads(json.dumps(elements.state_dict()))
        assert sorted(found) == [x for x in range(100) if x % 3 and x % 5 and x % 7]


def in_any_order(number: Any) -> ad.Dataset[Any]:
    return ad.Dataset.range(5).map(lambda x: (number, x)).shuffle(3)


def of_several(number: Any) -> ad.Dataset[Any]:
    many = ad.Dataset.random().take(4).map(lambda x, *, rng: (int(x), int(rng.integers(9))), rng=True).shuffle()
    return ad.Dataset.sample_from_datasets([many, in_any_order(number).repeat(2)])


async def in_any_order_later(number: Any) -> ad.Dataset[Any]:
    await asyncio.sleep(0)
    return in_any_order(number)


FROM_FUNCTIONS = [
    lambda ds, fn: ds.flat_map(fn),
    lambda ds, fn: ds.interleave(fn),
    lambda ds, fn: ds.interleave(fn, num_parallel_calls=2),
    lambda ds, fn: ds.flat_map(fn).shuffle(4, seed=1),
    lambda ds, fn: ds.take(2).flat_map(lambda n: ad.Dataset.range(2).interleave(fn)).repeat(2),
]


def check_resumes_at_each_place(build: Callable[[], ad.Dataset[Any]]) -> None:
    with build().iterate() as elements:
        whole, states = [], [elements.state_dict()]
        for element in elements:
            whole.append(element)
            states.append(elements.state_dict())
    for delivered, state in enumerate(states):
        with build().iterate(state=state) as rest:
            assert whole[:delivered] + list(rest) == whole


@pytest.mark.parametrize("fn", first_by_default([in_any_order, in_any_order_later, of_several]))
@pytest.mark.parametrize("build", FROM_FUNCTIONS)
def test_a_dataset_that_a_function_shuffles_without_a_seed_is_made_again(build: Any, fn: Any) -> None:
    check_resumes_at_each_place(lambda: build(ad.Dataset.range(3).shuffle(), fn))
    check_resumes_at_each_place(lambda: build(ad.Dataset.range(3), fn))


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_window_that_is_shuffled_without_a_seed_is_made_again(placement: Any) -> None:
    def build() -> ad.Dataset[Any]:
        ds = ad.Dataset.range(20).shuffle().group_by_window(by_parity, shuffled_batches, 5)
        return ds.with_options(ad.Options(placement=placement))

    check_resumes_at_each_place(lambda: build().map(np.ndarray.tolist))


def by_parity(number: int) -> int:
    return number % 2


def shuffled_batches(key: int, window: ad.Dataset[Any]) -> ad.Dataset[Any]:
    return window.shuffle(5).batch(3)


def test_a_dataset_that_a_function_shuffles_without_a_seed_has_another_order_each_time() -> None:
    def build() -> ad.Dataset[Any]:
        return ad.Dataset.from_list([7, 7]).shuffle().flat_map(lambda n: ad.Dataset.range(50).shuffle())

    ds = build()
    orders = [tuple(order) for found in (list(ds), list(ds), list(build())) for order in (found[:50], found[50:])]
    assert len({*orders}) == 6
    assert all(sorted(order) == list(range(50)) for order in orders)


@pytest.mark.parametrize("build", FROM_FUNCTIONS[:4])
def test_a_dataset_without_a_seed_that_a_function_returns_is_not_resumed_in_another_order(build: Any) -> None:
    def returned() -> ad.Dataset[Any]:
        outside = ad.Dataset.range(5).shuffle(3)
        return build(ad.Dataset.range(3), lambda n: outside.map(lambda x: (n, x)))

    with returned().iterate() as elements:
        unbegun = elements.state_dict()
        for _ in range(7):
            next(elements)
        begun = elements.state_dict()
    with returned().iterate(state=begun) as rest, pytest.raises(ad.ResumeError, match=r"shuffle\(3\) without a seed"):
        list(rest)
    with returned().iterate(state=unbegun) as rest:
        assert len(list(rest)) == 15

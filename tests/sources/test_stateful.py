"""Live streams with an offset of their own go on at it: a growing log, a socket, plain and async."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import ResumeError
from asyncdata.system.checksum import with_checksum
from asyncdata.testing import check_resumes
from tests.marks import first_by_default
from tests.offset_stream import OffsetStream
from tests.reference import Boom, Failed, failed
from tests.running import results
from tests.states import edited

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZE = 60

Build = Callable[[], ad.Dataset]


# a log of JSON lines with byte offsets


class LogReader:
    """An iterator over the entries of a log; it remembers every byte offset that it read from."""

    read: ClassVar[list[int]] = []

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.file: Any = None

    def __iter__(self) -> LogReader:
        return self

    def __next__(self) -> Any:
        if self.file is None:
            self.file = self.path.open("rb")
            self.file.seek(self.offset)
        line = self.file.readline()
        if not line:
            raise StopIteration
        self.read.append(self.offset)
        self.offset = self.file.tell()
        return json.loads(line)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def state_dict(self) -> Any:
        return {"offset": self.offset}

    def load_state_dict(self, state: Any) -> None:
        self.offset = state["offset"]


class Log:
    """An iterable whose iterators have states."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> LogReader:
        return LogReader(self.path)


class Tail:
    """An iterable that has the state itself, and whose iterator is a generator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = {"offset": 0}
        self.loaded: Any = None

    def __iter__(self) -> Iterator[Any]:
        reader = LogReader(self.path)
        self.at, self.loaded = self.loaded or {"offset": 0}, None
        reader.load_state_dict(self.at)
        with closing(reader):
            for entry in reader:
                self.at["offset"] = reader.offset
                yield entry

    def state_dict(self) -> Any:
        return self.at  # always the same dict, and it changes

    def load_state_dict(self, state: Any) -> None:
        self.loaded = state


class AsyncLog(Log):
    """The same, read on an event loop."""

    def __aiter__(self) -> AsyncReader:
        return AsyncReader(self.path)


class AsyncReader(LogReader):
    def __aiter__(self) -> AsyncReader:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self.close()


class AsyncTail(Tail):
    async def __aiter__(self) -> AsyncIterator[Any]:
        for entry in self:
            await asyncio.sleep(0)
            yield entry


def grow(path: Path, start: int, stop: int) -> None:
    with open(path, "ab") as file:
        for number in range(start, stop):
            file.write(json.dumps({"number": number, "text": "x" * (number % 7)}).encode() + b"\n")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    grow(path, 0, SIZE)
    LogReader.read = []
    return path


KINDS: dict[str, Callable[[Path], ad.Dataset]] = {
    "iterable of stateful iterators": lambda path: ad.Dataset.from_iterable(Log(path)),
    "stateful iterator": lambda path: ad.Dataset.from_iterable(LogReader(path)),
    "stateful iterable": lambda path: ad.Dataset.from_iterable(Tail(path)),
    "function that returns an iterator": lambda path: ad.Dataset.from_generator(LogReader, args=(path,)),
    "function that returns an iterable": lambda path: ad.Dataset.from_generator(Log, args=(path,)),
    "function that returns a stateful iterable": lambda path: ad.Dataset.from_generator(Tail, args=(path,)),
    "async iterable of stateful iterators": lambda path: ad.Dataset.from_async_iterable(AsyncLog(path)),
    "async stateful iterator": lambda path: ad.Dataset.from_async_iterable(AsyncReader(path)),
    "async stateful iterable": lambda path: ad.Dataset.from_async_iterable(AsyncTail(path)),
}

EACH_KIND = pytest.mark.parametrize("source", KINDS.values(), ids=KINDS)
READ_AGAIN = [kind for name, kind in KINDS.items() if not name.endswith("stateful iterator")]
AGAIN = pytest.mark.parametrize("source", READ_AGAIN)

WAYS = [(is_async, placement) for is_async in (False, True) for placement in ("thread", "current")]
EACH_WAY = pytest.mark.parametrize("way", WAYS, ids=str)


def number(entry: Any) -> int:
    return entry["number"]


async def awaited(entry: Any) -> int:
    await asyncio.sleep(0)
    return entry["number"]


def leg(ds: ad.Dataset, way: Any, most: int, state: Any) -> tuple[list[Any], Any]:
    """Read some elements one way from a state on; return them and the state after them, as JSON gives it."""
    is_async, placement = way
    ds = ds.with_options(ad.Options(placement=placement))
    found: list[Any] = []

    async def collect() -> Any:
        async with ds.iterate(state=state) as elements:
            while len(found) < most:
                try:
                    found.append(await anext(elements))
                except StopAsyncIteration:
                    break
            return elements.state_dict()

    if is_async:
        after = asyncio.run(collect())
    else:
        with ds.iterate(state=state) as elements:
            for element in elements:
                found.append(element)
                if len(found) == most:
                    break
            after = elements.state_dict()
    return found, json.loads(json.dumps(after))


@EACH_WAY
@EACH_KIND
def test_a_log_that_grows_is_gone_on_with_at_its_offset(source: Any, way: Any, log: Path) -> None:
    found: list[int] = []
    state = None
    for _ in range(5):
        entries, state = leg(source(log).map(number), way, 10, state)
        found += entries
    assert found == list(range(50))
    grow(log, SIZE, SIZE + 20)
    LogReader.read = []
    entries, state = leg(source(log).map(number), way, SIZE + 20, state)
    assert found + entries == list(range(SIZE + 20))
    assert len(LogReader.read) <= 30 + 10  # what follows the state: it was asked for within the last leg
    assert leg(source(log).map(number), way, 1, state)[0] == []
    grow(log, SIZE + 20, SIZE + 21)


@EACH_WAY
def test_without_reading_ahead_one_element_is_read_again(way: Any, log: Path) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.from_iterable(Log(log)).with_options(ad.Options(disabled_rules=("inject_prefetch",)))

    state, found = None, list[Any]()
    for _ in range(6):
        entries, state = leg(build().map(number), way, 7, state)
        found += entries
    assert found == list(range(42))
    assert len(LogReader.read) <= 42 + 5  # the last element, whose order began with the state


STEPS: dict[str, Callable[[ad.Dataset], ad.Dataset]] = {
    "map": lambda ds: ds.map(number),
    "parallel map": lambda ds: ds.map(number, num_parallel_calls=3),
    "awaited map": lambda ds: ds.map(awaited, num_parallel_calls=3),
    "filter": lambda ds: ds.map(number).filter(lambda x: x % 3),
    "batch": lambda ds: ds.map(number).batch(4),
    "batch after filter": lambda ds: ds.map(number).filter(lambda x: x % 5 > 1).batch(7),
    "enumerate": lambda ds: ds.map(number).enumerate(3),
    "skip": lambda ds: ds.map(number).skip(9),
    "shard": lambda ds: ds.map(number).shard(3, 1),
    "take": lambda ds: ds.map(number).take(41),
    "prefetch": lambda ds: ds.map(number).prefetch(5).batch(3).prefetch(2),
    "shuffle": lambda ds: ds.shuffle(9, seed=1).map(number),
    "shuffle of everything": lambda ds: ds.map(number).shuffle(200, seed=1).batch(8),
    "failures, then batch": lambda ds: ds.map(unlucky).batch(4),
}

TWO_READERS: dict[str, Callable[[ad.Dataset], ad.Dataset]] = {
    "batch after take": lambda ds: ds.map(number).take(41).batch(6),
    "batch after shard": lambda ds: ds.map(number).shard(3, 1).batch(4),
    "batch, then shuffle": lambda ds: ds.map(number).batch(4).shuffle(3, seed=1),
    "shuffle, then shuffle": lambda ds: ds.map(number).shuffle(5, seed=2).shuffle(9, seed=1),
    "shuffle, then unbatch": lambda ds: ds.map(number).batch(4).shuffle(5, seed=2).unbatch(),
    "repeat": lambda ds: ds.map(number).shuffle(5, seed=2).repeat(2),
    "cache": lambda ds: ds.map(number).cache().repeat(2),
    "zip": lambda ds: ad.Dataset.zip(ds.map(number), ad.Dataset.range(99).shuffle(3, seed=4)),
    "flat_map": lambda ds: ds.flat_map(lambda entry: ad.Dataset.range(entry["number"] % 4)).batch(3),
    "interleave": lambda ds: ds.interleave(lambda entry: ad.Dataset.range(entry["number"] % 4), 3).batch(3),
}


def unlucky(entry: Any) -> int:
    if entry["number"] % 7 == 3:
        raise Boom(entry["number"])
    return entry["number"]


@EACH_KIND
@pytest.mark.parametrize("step", first_by_default([*STEPS.values()], len(STEPS) // 4), ids=STEPS)
def test_going_on_is_exact_below_each_step(source: Any, step: Any, log: Path) -> None:
    check_resumes(lambda: source(log).apply(step), places=8)


@AGAIN
@pytest.mark.parametrize("step", first_by_default([*TWO_READERS.values()], len(TWO_READERS) // 4), ids=TWO_READERS)
def test_going_on_is_exact_below_steps_that_read_their_input_twice(source: Any, step: Any, log: Path) -> None:
    check_resumes(lambda: source(log).apply(step), places=8)


@pytest.mark.parametrize("source", first_by_default(READ_AGAIN, 2))
def test_going_on_is_exact_where_no_order_is_promised(source: Any, log: Path) -> None:
    def single() -> ad.Dataset:
        return source(log).map(number, num_parallel_calls=3, deterministic=False)

    def batches() -> ad.Dataset:
        return (
            source(log).map(number).batch(4).map(lambda x: x + 1, num_parallel_calls=3, deterministic=False).unbatch()
        )

    for build in (single, lambda: single().batch(8).unbatch(), batches):
        check_resumes(build, ordered=False, places=10)


def test_streams_within_an_interleave_go_on_each_at_its_own_offset(tmp_path: Path) -> None:
    for name in range(4):
        grow(tmp_path / str(name), 100 * name, 100 * name + 30 + name)

    def build(calls: int | None) -> ad.Dataset:
        names = ad.Dataset.range(4).map(lambda name: tmp_path / str(name))
        logs = names.interleave(lambda path: ad.Dataset.from_iterable(Log(path)), 3, num_parallel_calls=calls)
        return logs.map(number).batch(5)

    for calls in (None, 2):
        check_resumes(lambda calls=calls: build(calls))


def test_a_batch_under_construction_is_read_from_a_state_before_it(log: Path) -> None:
    """Elements come one by one, so that three are held when the state is taken: behind a failure, in a batch of ten."""
    ds = ad.Dataset.from_iterable(Log(log)).map(unlucky).batch(10)
    with ds.iterate() as batches:
        for _ in range(3):
            with suppress(Boom):
                next(batches)
        state = batches.state_dict()
    LogReader.read = []
    with ad.Dataset.from_iterable(Log(log)).map(unlucky).batch(10).iterate(state=state) as batches:
        while True:
            try:
                batches_after = next(batches).tolist()
                break
            except Boom:
                continue
    assert batches_after[0] > 10
    assert 0 not in LogReader.read


def test_a_shuffle_reads_only_from_its_oldest_element_on(log: Path) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.from_iterable(Log(log)).shuffle(3, seed=5).map(number)

    whole = list(build())
    found, state = leg(build(), WAYS[0], 50, None)
    LogReader.read = []
    assert found + leg(build(), WAYS[0], SIZE, state)[0] == whole
    assert 0 not in LogReader.read


# a socket


class Server:
    """Sends numbers, one a line, from the one on that a client asks for."""

    def __init__(self, count: int) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.count = count
        self.asked: list[int] = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            with connection, connection.makefile("rb") as stream:
                line = stream.readline()
                if line == b"stop\n":
                    return
                self.asked.append(int(line))
                with suppress(OSError):  # the client has left
                    for number in range(int(line), self.count):
                        connection.sendall(b"%d\n" % number)

    def close(self) -> None:
        with socket.create_connection(self.address) as client:
            client.sendall(b"stop\n")
        self.thread.join()
        self.socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(200)
    yield server
    server.close()


class Client:
    """Connects with the first element, and asks for what follows the last one that it had."""

    def __init__(self, address: Any) -> None:
        self.address = address
        self.next = 0
        self.stream: Any = None

    def __iter__(self) -> Client:
        return self

    def __next__(self) -> int:
        if self.stream is None:
            with socket.create_connection(self.address) as connection:
                self.stream = connection.makefile("rwb")
            self.stream.write(b"%d\n" % self.next)
            self.stream.flush()
        line = self.stream.readline()
        if not line:
            raise StopIteration
        self.next = int(line) + 1
        return int(line)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()

    def state_dict(self) -> Any:
        return self.next

    def load_state_dict(self, state: Any) -> None:
        self.next = state


class AsyncClient:
    def __init__(self, address: Any) -> None:
        self.address = address
        self.next = 0
        self.streams: Any = None

    def __aiter__(self) -> AsyncClient:
        return self

    async def __anext__(self) -> int:
        if self.streams is None:
            self.streams = await asyncio.open_connection(*self.address)
            self.streams[1].write(b"%d\n" % self.next)
        line = await self.streams[0].readline()
        if not line:
            raise StopAsyncIteration
        self.next = int(line) + 1
        return int(line)

    async def aclose(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            with suppress(OSError):
                await self.streams[1].wait_closed()

    def state_dict(self) -> Any:
        return self.next

    def load_state_dict(self, state: Any) -> None:
        self.next = state


@EACH_WAY
@pytest.mark.parametrize("is_async", [False, True], ids=["plain client", "async client"])
def test_a_socket_is_asked_for_what_was_not_delivered_yet(is_async: bool, way: Any, server: Server) -> None:
    def build() -> ad.Dataset:
        if is_async:
            return ad.Dataset.from_async_iterable(AsyncClient(server.address)).batch(8)
        return ad.Dataset.from_iterable(Client(server.address)).batch(8)

    found: list[int] = []
    state = None
    for _ in range(4):
        batches, state = leg(build(), way, 3, state)
        found += [x for batch in batches for x in batch.tolist()]
    assert found == list(range(4 * 3 * 8))
    assert server.asked[0] == 0
    assert all(asked >= 24 * (place - 1) for place, asked in enumerate(server.asked[1:], 1))
    assert len(server.asked) == 4
    batches, _ = leg(build(), way, 200, state)
    assert found + [x for batch in batches for x in batch.tolist()] == list(range(200))


# what a state says, and what goes wrong


def test_a_state_is_a_snapshot_of_what_the_source_goes_on_changing(log: Path) -> None:
    with ad.Dataset.from_iterable(Tail(log)).iterate() as entries:
        states = [(json.dumps(state := entries.state_dict()), state) for _ in entries]
    assert all(json.loads(text) == state for text, state in states)
    positions = [state["position"] for _, state in states]
    offsets = [0 if isinstance(place, int) else place["state"]["offset"] for place in positions]
    assert offsets == sorted(offsets)
    assert offsets[0] < offsets[-1]


def test_a_state_is_asked_for_once_for_each_group_of_elements(log: Path) -> None:
    asked: list[int] = []

    class Counted(LogReader):
        def state_dict(self) -> Any:
            asked.append(1)
            return super().state_dict()

    list(ad.Dataset.from_iterable(Counted(log)).batch(20))
    assert len(asked) <= 6


class Flaky(OffsetStream):
    """Fails now and then, and not again at the same place."""

    failures: ClassVar[set[int]] = set()

    def __init__(self, count: int = 40) -> None:
        super().__init__(count)

    def __next__(self) -> int:
        if self.next % 6 == 4 and self.next not in self.failures and self.next < self.count:
            self.failures.add(self.next)
            raise Boom(self.next)
        return super().__next__()


@pytest.mark.parametrize("most", [1, 4, 5, 6, 11, 12])
def test_a_failure_that_does_not_happen_again_costs_no_element(most: int) -> None:
    Flaky.failures = set()
    found: list[Any] = []
    state = None
    while True:
        with ad.Dataset.from_generator(Flaky).iterate(state=state) as elements:
            before = len(found)
            while len(found) < before + most:
                try:
                    found.append(next(elements))
                except StopIteration:
                    break
                except Boom as error:
                    found.append(failed(error))
            state = json.loads(json.dumps(elements.state_dict()))
        if len(found) < before + most:
            break
    assert [x for x in found if not isinstance(x, Failed)] == list(range(40))


class Emptied:
    """Integers, of which some are removed: an error says so, and the others follow."""

    def __init__(self, removed: set[int]) -> None:
        self.removed = removed
        self.place = 0

    def __iter__(self) -> Emptied:
        return self

    def __next__(self) -> int:
        first = self.place
        while self.place in self.removed:
            self.place += 1
        if self.place > first:
            raise ad.DataLossError(f"{self.place - first} were removed")
        self.place += 1
        return self.place - 1

    def state_dict(self) -> int:
        return self.place

    def load_state_dict(self, state: int) -> None:
        self.place = state


def test_elements_that_cannot_be_read_again_before_the_place_to_resume_at_are_an_error() -> None:
    """The error that takes the place of several would otherwise be skipped, and elements behind them with it."""
    removed: set[int] = set()
    ds = ad.Dataset.from_generator(lambda: Emptied(removed)).take(20)
    with ds.iterate() as elements:
        assert [next(elements) for _ in range(8)] == [*range(8)]
        state = elements.state_dict()
    state["position"][1] |= {"state": 0, "skip": 8}  # as if all were read in one block
    removed.update(range(8))
    with ds.iterate(state=with_checksum(state)) as elements, pytest.raises(ad.ResumeError, match="8 were removed"):
        next(elements)


@pytest.mark.parametrize("taken", [3, 6, 10])
@pytest.mark.parametrize("gone", [{1}, {4}, {9}, {0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}], ids=str)
def test_elements_that_a_step_holds_are_right_or_an_error(taken: int, gone: set[int]) -> None:
    """Behind an error that takes the place of several elements, the others would have other numbers than they had."""
    removed: set[int] = set()
    ds = ad.Dataset.from_generator(lambda: Emptied(removed)).take(20).shuffle(5, seed=0)
    with ds.iterate() as elements:
        found = [next(elements) for _ in range(taken)]
        state = elements.state_dict()
    removed |= gone
    try:
        with ds.iterate(state=state) as elements:
            while True:
                try:
                    found.append(next(elements))
                except StopIteration:
                    break
                except ad.DataLossError as error:
                    assert "removed" in str(error)  # noqa: PT017
    except ad.ResumeError as error:
        assert "were removed" in str(error)  # noqa: PT017
        return
    assert len(found) == len({*found})
    assert {*found} | gone >= {*range(20)}  # more, as an error counts as one element of `take`


def test_a_source_without_states_now_is_refused(log: Path) -> None:
    class Plain:
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    Plain.__name__ = "Log"
    _, state = leg(ad.Dataset.from_iterable(Log(log)), WAYS[0], 3, None)
    with pytest.raises(ResumeError, match=r"from_iterable\(Log\): it had state_dict and load_state_dict when"):
        list(ad.Dataset.from_iterable(Plain()).iterate(state=state))


class Broken(LogReader):
    def state_dict(self) -> Any:
        raise Boom("no state")


class Unjson(LogReader):
    def state_dict(self) -> Any:
        return {"offset": object}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Broken, r"from_iterable\(Broken\): state_dict\(\) failed: Boom\('no state'\)"),
        (
            Unjson,
            r"from_iterable\(Unjson\): state_dict\(\) must return numbers, .* got {'offset': <class 'object'>}",
        ),
    ],
)
def test_a_state_that_cannot_be_told_is_an_error_for_who_asks_for_it(kind: Any, said: str, log: Path) -> None:
    with ad.Dataset.from_iterable(kind(log)).map(number).iterate() as entries:
        assert next(entries) == 0
        for _ in range(2):
            with pytest.raises(ResumeError, match=said) as caught:
                entries.state_dict()
            assert isinstance(caught.value.__cause__, (Boom, TypeError))
        assert list(entries) == list(range(1, SIZE))


@EACH_WAY
@pytest.mark.parametrize("skip", [False, True])
def test_a_source_that_refuses_its_state_ends_the_pipeline(way: Any, skip: bool, log: Path) -> None:
    class Log(LogReader):
        def load_state_dict(self, state: Any) -> None:
            raise Boom("gone")

    Log.__name__ = "LogReader"
    _, state = leg(ad.Dataset.from_iterable(LogReader(log)).batch(2), way, 4, None)
    if not skip:
        state = edited(state, position=[{"state": {"offset": 0}, "skip": 0, "number": 0}])
    with pytest.raises(
        ResumeError, match=r"from_iterable\(LogReader\): load_state_dict\({.*}\) failed: Boom\('gone'\)"
    ):
        leg(ad.Dataset.from_iterable(Log(log)).batch(2), way, 4, state)


def test_a_log_that_was_cut_off_is_named(log: Path) -> None:
    _, state = leg(ad.Dataset.from_iterable(Log(log)).batch(8), WAYS[0], 5, None)
    told = {"state": {"offset": 0}, "skip": 40, "number": 40}  # one of those that may be told
    state = edited(state, position=[told])
    os.truncate(log, 40)
    with pytest.raises(ResumeError, match=r"from_iterable\(Log\): .* one failed that had not failed"):
        leg(ad.Dataset.from_iterable(Log(log)).batch(8), WAYS[0], 5, state)


def test_a_call_that_fails_when_a_generator_is_run_again_is_not_the_end() -> None:
    calls: list[int] = []

    def generate() -> Iterator[int]:
        calls.append(1)
        if len(calls) > 1:
            raise Boom("not again")
        return iter(range(9))

    ds = ad.Dataset.from_generator(generate)
    _, state = leg(ds, WAYS[0], 5, None)
    with pytest.raises(
        ResumeError, match=r"from_generator\(generate\).*: it cannot be started again to resume: not again"
    ) as caught:
        list(ds.iterate(state=state))
    assert isinstance(caught.value.__cause__, Boom)


@pytest.mark.parametrize("stream", [iter, LogReader], ids=["iterator", "stateful iterator"])
def test_an_iterator_below_steps_that_read_twice_is_refused(stream: Any, log: Path) -> None:
    def build() -> ad.Dataset:
        source = stream(log) if stream is LogReader else iter([{"number": x} for x in range(SIZE)])
        return ad.Dataset.from_iterable(source).map(number).take(50).shuffle(4, seed=1)

    _, state = leg(build(), WAYS[0], 5, None)
    with pytest.raises(
        ResumeError, match=r"from_iterable\(.*\): it cannot be started again .* only once.* such as take and shuffle"
    ):
        leg(build(), WAYS[0], SIZE, state)


@pytest.mark.parametrize("name", ["state_dict", "load_state_dict"])
def test_methods_that_would_have_to_be_awaited_are_refused(name: str, log: Path) -> None:
    async def method(self: Any, *_: Any) -> None: ...

    kind = type("Awaited", (AsyncReader,), {name: method})
    with pytest.raises(ad.PlanError, match="from_async_iterable.* must be plain methods"):
        list(ad.Dataset.from_async_iterable(kind(log)))


class OfMosaic:
    """A stream with the methods of `StreamingDataset` of mosaicml-streaming 0.13."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(SIZE))

    def state_dict(self, num_samples: int, from_beginning: bool) -> dict[str, Any]:
        raise AssertionError

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        raise AssertionError


class OfLitData(OfMosaic):
    """A stream with the methods of `StreamingDataset` of litdata 0.2."""

    def state_dict(self, num_samples_yielded: int, num_workers: int, batch_size: int) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError


class OfIterator(OfMosaic):
    """A stream whose iterator has such methods."""

    state_dict = load_state_dict = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[int]:
        class Numbers(OfMosaic):
            numbers = iter(range(SIZE))

            def __iter__(self) -> Iterator[int]:
                return self  # type: ignore[return-value]

            def __next__(self) -> int:
                return next(self.numbers)

        return Numbers()  # type: ignore[return-value]


class Named(OfMosaic):
    """A stream whose `load_state_dict` can be called by name alone."""

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError

    def load_state_dict(self, *, state: Any) -> None:  # type: ignore[override]
        raise AssertionError


@pytest.mark.parametrize("kind", [OfMosaic, OfLitData, OfIterator, Named])
@pytest.mark.parametrize("make", [lambda kind: ad.Dataset.from_iterable(kind()), ad.Dataset.from_generator])
def test_methods_of_another_protocol_are_not_called(kind: Any, make: Any) -> None:
    check_resumes(lambda: make(kind).shuffle(7, seed=1).batch(4), places=4)
    if kind is not OfIterator:
        assert "is run again up to the position: its state_dict needs arguments of its own" in str(make(kind).explain())


class WithDefaults(LogReader):
    """A stream whose methods can be called without their further arguments."""

    def state_dict(self, detail: bool = False, **_: Any) -> Any:
        return {"offset": self.offset}

    def load_state_dict(self, state: Any, strict: bool = True) -> None:
        self.offset = state["offset"]


def test_arguments_with_defaults_are_left_out(log: Path) -> None:
    with ad.Dataset.from_generator(WithDefaults, args=(log,)).iterate() as entries:
        first = [next(entries) for _ in range(9)]
        state = entries.state_dict()
    WithDefaults.read.clear()
    rest = list(ad.Dataset.from_generator(WithDefaults, args=(log,)).iterate(state=state))
    assert len(first) + len(rest) == SIZE
    assert WithDefaults.read[0] > 0, "it went on at its own offset"
    assert "resumes at its own offset" in str(ad.Dataset.from_generator(WithDefaults, args=(log,)).explain())


def test_a_dataset_within_a_dataset_goes_on_at_its_own_place() -> None:
    def inner() -> ad.Dataset[int]:
        return ad.Dataset.range(30).shuffle(7, seed=1)

    check_resumes(lambda: ad.Dataset.from_iterable(inner()).batch(4))
    check_resumes(lambda: ad.Dataset.from_generator(lambda: inner().take(20)).batch(4))


def test_the_protocol_is_public(log: Path) -> None:
    assert isinstance(Tail(log), ad.Stateful)
    assert not isinstance(iter([]), ad.Stateful)


def test_reading_alone_is_as_before(log: Path) -> None:
    for source in KINDS.values():
        assert [entry["number"] for entry in results(source(log))] == list(range(SIZE))


class Rewound:
    """Begins anew in `__iter__`, as streams for torchdata do, and keeps its place in odd values."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Rewound:
        self.place = 0
        return self

    def __next__(self) -> int:
        if self.place == 118:
            raise StopIteration
        self.place += 1
        return self.place - 1

    def state_dict(self) -> Any:
        return {"place": np.array(self.place), "random": (b"12", {3: (1, 2)}, np.float32(0.5), {4})}

    def load_state_dict(self, state: Any) -> None:
        assert state["random"] == (b"12", {3: (1, 2)}, np.float32(0.5), {4})
        assert type(state["random"][2]) is np.float32
        self.place = int(state["place"])


def test_a_stream_that_begins_anew_in_iter_resumes_where_it_was() -> None:
    with ad.Dataset.from_iterable(Rewound()).batch(10).iterate() as batches:
        found = [next(batches).tolist() for _ in range(5)]
        state = json.loads(json.dumps(batches.state_dict()))
    found += [batch.tolist() for batch in ad.Dataset.from_iterable(Rewound()).batch(10).iterate(state=state)]
    assert [number for batch in found for number in batch] == [*range(118)]


def test_a_stream_that_is_its_own_iterator_says_so_when_the_second_epoch_begins() -> None:
    ds = ad.Dataset.from_iterable(Rewound())
    assert list(ds) == [*range(118)]
    with pytest.raises(ad.PlanError, match="can be read only once; for a second epoch"):
        list(ds)

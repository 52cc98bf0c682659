"""What a durable channel acknowledged is there whatever happens, and is read exactly once by a trainer's states."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from asyncdata.web import folder
from asyncdata.web.folder import ChannelFolder, LogReader
from tests.marks import first_by_default
from tests.reference import failed
from tests.running import WAYS, read_plain, results
from tests.states import edited
from tests.web.killing import PROGRAMS, killed

pytestmark = pytest.mark.usefixtures("nothing_left")

Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


def split(body: bytes) -> bytes:
    return body


def fill(path: Path, count: int, each: int = 1, end: bool = True, **how: Any) -> None:
    """Send records of some numbered lines."""

    async def serve() -> None:
        channel = ad.DurableChannel(path, **how)
        try:
            for start in range(0, count, each):
                lines = b"\n".join(b"%d" % number for number in range(start, min(start + each, count)))
                await channel.send(lines, content_type="application/x-ndjson")
        finally:
            channel.end() if end else channel.close()

    asyncio.run(serve())


def numbers(path: Path, **how: Any) -> ad.Dataset[Any]:
    return ad.Dataset.from_channel(path, decode=int, **how)


@pytest.mark.parametrize("read", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("each", [1, 7, 300])
def test_what_was_sent_comes_in_order_in_each_iteration(
    read: Callable[..., list[Any]], each: int, tmp_path: Path
) -> None:
    fill(tmp_path, 300, each, segment_bytes=400)
    assert len([*tmp_path.glob("*.tfrecord")]) > 1
    for _ in range(2):
        assert read(numbers(tmp_path)) == list(range(300))


@pytest.mark.parametrize("each", [1, 7, 50])
def test_it_goes_on_anywhere(each: int, tmp_path: Path) -> None:
    fill(tmp_path, 50, each, segment_bytes=300)
    check_resumes(lambda: numbers(tmp_path))
    check_resumes(lambda: numbers(tmp_path).shuffle(9, seed=1).map(abs, num_parallel_calls=2).batch(4))


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (([1, 2],), {}, "the bytes of a body, got .1, 2."),
    ((5,), {}, "the bytes of a body"),
    (("text",), {}, "the bytes of a body"),
    ((b"x", 17), {}, "key="),
    ((b"x", ""), {}, "key="),
    ((b"x", "\ud800"), {}, "key="),
    ((b"x",), {"version": "new"}, "version="),
    ((b"x",), {"version": -(1 << 63)}, "version="),
    ((b"x",), {"content_type": None}, "content_type="),
]


@pytest.mark.parametrize(("arguments", "how", "what"), WRONG, ids=lambda value: str(value))
def test_what_is_no_body_is_not_stored(
    arguments: tuple[Any, ...], how: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with ad.DurableChannel(tmp_path) as channel, pytest.raises(ad.PlanError, match=what):
        asyncio.run(channel.send(*arguments, **how))
    assert list(ad.Dataset.from_channel(tmp_path, follow=False)) == []


def test_a_reader_waits_for_what_comes(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with ad.DurableChannel(tmp_path) as channel, ad.Dataset.from_channel(channel).iterate() as items:
            for number in range(3):
                assert await channel.send(b"%d" % number)
                assert await anext(items) == b"%d" % number

    run(body)
    assert [*(tmp_path / "wake").iterdir()] == []


def test_a_record_is_read_once_and_on_the_loop_that_waited_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    threads, read = list[int](), LogReader.read

    def noted(self: LogReader) -> Any:
        threads.append(threading.get_ident())
        return read(self)

    async def body() -> None:
        async with ad.DurableChannel(tmp_path) as channel:
            ds = ad.Dataset.from_channel(channel).with_options(ad.Options(placement="current"))
            async with ds.iterate() as items:
                for number in range(20):
                    found = asyncio.ensure_future(anext(items))
                    for _ in range(100):  # so that it waits
                        await asyncio.sleep(0)
                    await channel.send(b"%d" % number)
                    assert await found == b"%d" % number

    monkeypatch.setattr(LogReader, "read", noted)
    asyncio.run(body())
    assert threads.count(threading.get_ident()) >= 10
    assert len(threads) <= 30


def test_a_known_key_is_stored_once(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with ad.DurableChannel(tmp_path, segment_bytes=64) as channel:
            at_once = await asyncio.gather(*[channel.send(b"one", "a") for _ in range(5)])
            assert sorted(at_once) == [False] * 4 + [True]
            assert await channel.send(b"two", "b")
            assert await channel.send(b"three")
        async with ad.DurableChannel(tmp_path) as channel:
            assert not await channel.send(b"one", "a")
            assert await channel.send(b"four", "c")

    run(body)
    assert list(ad.Dataset.from_channel(tmp_path, follow=False)) == [b"one", b"two", b"three", b"four"]


def test_keys_are_known_when_their_records_are_trimmed(tmp_path: Path) -> None:
    async def send(key: str) -> bool:
        async with ad.DurableChannel(tmp_path, segment_bytes=1) as channel:
            return await channel.send(b"x", key)

    assert [asyncio.run(send(key)) for key in "abc"] == [True] * 3
    for segment in sorted(tmp_path.glob("*.tfrecord"))[:-1]:
        segment.unlink()
    assert [asyncio.run(send(key)) for key in "abcd"] == [False, False, False, True]


def test_keys_of_a_small_channel_do_not_fill_it(tmp_path: Path) -> None:
    async def send() -> None:
        async with ad.DurableChannel(tmp_path, max_bytes=2000, segment_bytes=1) as channel:
            for number in range(200):
                assert await channel.send(b"x", str(number))
                if len([*tmp_path.glob("*.tfrecord")]) > 3:
                    min(tmp_path.glob("*.tfrecord")).unlink()
            assert not await channel.send(b"x", "199")
            assert channel.stats()["known_keys"] == 2000 // 256

    asyncio.run(send())


def test_trim_lets_go_of_what_no_state_needs(tmp_path: Path) -> None:
    fill(tmp_path, 100, end=False, segment_bytes=200)
    with numbers(tmp_path).shuffle(10, seed=1).batch(5).iterate() as batches:
        found = [next(batches) for _ in range(8)]
        state = json.loads(json.dumps({"trainer": [1, {"data": batches.state_dict()}]}))
    with ad.DurableChannel(tmp_path, segment_bytes=200) as channel:
        before = channel.stats()["bytes"]
        assert channel.trim({}) == 0
        assert 0 < channel.trim(state) <= before - channel.stats()["bytes"]
        assert channel.trim(state) == 0
        channel.end()
    rest = numbers(tmp_path).shuffle(10, seed=1).batch(5).iterate(state=state["trainer"][1]["data"])
    assert sorted(x for batch in [*found, *rest] for x in batch) == list(range(100))
    with pytest.raises(ad.ResumeError, match="trimmed"):
        old = {"state": {"channel": json.loads((tmp_path / "channel.json").read_text())["id"], "offset": 0}}
        list(numbers(tmp_path).iterate(state=with_position(numbers(tmp_path), {**old, "skip": 0, "number": 0})))


READ_AGAIN: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "cache": lambda ds: ds.cache(),
    "unique": lambda ds: ds.unique(),
    "scan of objects": lambda ds: ds.scan(object(), lambda state, number: (state, number)),
}


@pytest.mark.parametrize("step", READ_AGAIN.values(), ids=READ_AGAIN)
def test_a_step_that_reads_again_what_was_trimmed_is_an_error(
    tmp_path: Path, step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]
) -> None:
    fill(tmp_path, 100, segment_bytes=200)
    with step(numbers(tmp_path)).iterate() as elements:
        _ = next(elements)
        state = elements.state_dict()
        rest = list(elements)
    assert ad.web.trim(tmp_path, state) == 0
    assert list(step(numbers(tmp_path)).iterate(state=state)) == rest
    with numbers(tmp_path).iterate() as elements:
        for _ in range(50):
            next(elements)
        assert ad.web.trim(tmp_path, elements.state_dict())
    with pytest.raises(ad.ResumeError, match="trimmed"):
        list(step(numbers(tmp_path)).iterate(state=state))


GROWING: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "alone": lambda ds: ds,
    "map": lambda ds: ds.map(int, num_parallel_calls=2, deterministic=False),
    "filter": lambda ds: ds.filter(lambda number: number >= 0),
    "batch": lambda ds: ds.batch(4),
    "flat_map": lambda ds: ds.batch(4).flat_map(ad.Dataset.from_tensor_slices),
    "shuffle": lambda ds: ds.shuffle(4, seed=1).shuffle(50),
    "process": lambda ds: ds.shuffle(5, seed=1).with_options(ad.Options(placement="process")),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_run_from_the_end_gives_what_came_since(name: str, tmp_path: Path) -> None:
    found: list[int] = []
    state: dict[str, Any] | None = None
    sent = 0
    for count in (0, 7, 0, 12, 1):
        lines = b"\n".join(b"%d" % number for number in range(sent, sent + count))
        if count:
            with ad.DurableChannel(tmp_path) as channel:
                asyncio.run(channel.send(lines, content_type="application/x-ndjson"))
        elif not sent:
            ad.DurableChannel(tmp_path).close()
        sent += count
        with GROWING[name](numbers(tmp_path, follow=False)).iterate(state=state) as items:
            for item in items:
                found += np.atleast_1d(item).tolist()
                state = items.state_dict()  # also while a shuffle gives what it holds
        assert sorted(found) == list(range(sent))
        state = json.loads(json.dumps(items.state_dict()))
        ad.web.trim(tmp_path, state)


def test_a_shuffle_goes_on_anywhere_where_more_may_come(tmp_path: Path) -> None:
    fill(tmp_path, 20, each=3, end=False)
    check_resumes(lambda: numbers(tmp_path, follow=False).shuffle(6, seed=1).batch(2))
    check_resumes(lambda: numbers(tmp_path, follow=False).shuffle(50, seed=1))


def with_position(ds: ad.Dataset[Any], position: Any) -> Any:
    """A state of a pipeline at another position."""
    with ds.with_options(ad.Options(disabled_rules=("inject_prefetch",))).iterate() as items:
        next(items)
        return edited(items.state_dict(), position=position)


def test_a_full_channel_refuses_until_it_is_trimmed(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with ad.DurableChannel(tmp_path, max_bytes=2000, segment_bytes=500) as channel:
            sent = 0
            with pytest.raises(ad.ChannelFull, match="of 2000 bytes"):
                while True:
                    await channel.send(b"x" * 100)
                    sent += 1
            assert 8 < sent < 20
            async with ad.Dataset.from_channel(channel).iterate() as items:
                for _ in range(sent):
                    await anext(items)
                channel.trim(items.state_dict())
            await channel.send(b"y" * 100)
            with pytest.raises(ad.PlanError, match="does not fit"):
                await channel.send(b"x" * 3000)

    run(body)


def test_a_full_channel_of_one_segment_is_emptied_too(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        channel = ad.DurableChannel(tmp_path, max_bytes=2000)
        async with channel, ad.Dataset.from_channel(channel).iterate() as items:
            sent = 0
            for _ in range(4):
                with pytest.raises(ad.ChannelFull):
                    while True:
                        await channel.send(b"%d" % sent, str(sent))
                        sent += 1
                found = [await anext(items) for _ in range(sent)]
                assert found == [b"%d" % number for number in range(sent)]
                while not channel.trim(items.state_dict()):
                    with pytest.raises(ad.ChannelFull):
                        await channel.send(b"no")
                sent = 0
                assert channel.stats()["bytes"] < 300
        async with ad.DurableChannel(tmp_path, max_bytes=2000) as channel:
            assert not await channel.send(found[-1], found[-1].decode())

    run(body)


def test_delivered_is_given_once_and_removed(tmp_path: Path) -> None:
    fill(tmp_path, 60, end=False, segment_bytes=200)
    ds = numbers(tmp_path, ack="delivered", follow=False).with_options(ad.Options(disabled_rules=("inject_prefetch",)))
    assert read_plain(ds, 25) == list(range(25))
    with ds.iterate() as items:
        assert next(items) == 25
        with pytest.raises(ad.ConcurrentUseError, match="has a reader already"):
            list(ds)
    assert results(ds) == list(range(26, 60))
    assert results(ds) == []
    assert len([*tmp_path.glob("*.tfrecord")]) == 1


def test_only_one_may_send_and_an_end_is_an_end(tmp_path: Path) -> None:
    with ad.DurableChannel(tmp_path) as channel:
        with pytest.raises(ad.PlanError, match="open to send already"):
            ad.DurableChannel(tmp_path)
        with pytest.raises(ad.PlanError, match="Content-Type"):
            asyncio.run(channel.send(b"", content_type="text/html"))
        channel.end()
    with ad.DurableChannel(tmp_path) as channel, pytest.raises(ad.ClosedError, match="it was ended"):
        asyncio.run(channel.send(b"late"))
    with pytest.raises(ad.PlanError, match="is no channel"):
        list(ad.Dataset.from_channel(tmp_path / "other"))


@pytest.mark.parametrize("cut", [1, 5, 13, 40, 60])
def test_a_torn_tail_is_cut_off_and_nothing_else_is_lost(cut: int, tmp_path: Path) -> None:
    fill(tmp_path, 5, end=False)
    (segment,) = tmp_path.glob("*.tfrecord")
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[-60:][:cut])
    assert results(numbers(tmp_path, follow=False)) == list(range(5))
    fill(tmp_path, 2)
    assert results(numbers(tmp_path)) == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_an_error_in_its_place_and_later_segments_are_read(seed: int, tmp_path: Path) -> None:
    fill(tmp_path, 60, 3, segment_bytes=300)
    rng = random.Random(seed)
    segments = sorted(tmp_path.glob("*.tfrecord"))
    hit = rng.choice(segments[:-1])
    data = bytearray(hit.read_bytes())
    for _ in range(rng.choice([1, 1, 3])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    hit.write_bytes(data)
    found = results(numbers(tmp_path))
    good = [item for item in found if isinstance(item, int)]
    assert any(item == failed(ad.DataLossError()) for item in found)
    assert good == sorted(set(good))
    assert found[-1] == 59
    with ad.DurableChannel(tmp_path):
        pass
    assert results(numbers(tmp_path)) == found


def test_a_damaged_last_segment_is_left_for_a_new_one(tmp_path: Path) -> None:
    fill(tmp_path, 9, 3, end=False)
    (segment,) = tmp_path.glob("*.tfrecord")
    data = bytearray(segment.read_bytes())
    data[-70] ^= 1
    segment.write_bytes(data)
    fill(tmp_path, 2)
    found = results(numbers(tmp_path))
    assert found[:3] == [0, 1, 2]
    assert found[-2:] == [0, 1]
    assert failed(ad.DataLossError()) in found


def test_a_disk_that_is_full_refuses_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    async def send(channel: ad.DurableChannel, body: bytes) -> None:
        await channel.send(body)

    path, ballast = small_disk / "channel", small_disk / "ballast"
    ballast.write_bytes(bytes(30_000))
    with ad.DurableChannel(path) as channel:
        sent = 0
        with pytest.raises(ad.ChannelFull, match="the disk is full") as caught:
            while True:
                asyncio.run(send(channel, b"%4d" % sent * 500))
                sent += 1
        assert isinstance(caught.value, ad.AsyncDataError)
        ballast.unlink()
        asyncio.run(send(channel, b"last"))
    found = list(ad.Dataset.from_channel(path, follow=False))
    assert [item[:4] for item in found] == [b"%4d" % number for number in range(sent)] + [b"last"]


def test_a_folder_in_which_nothing_can_be_written_is_read_without_waiting(small_disk: Path) -> None:
    path = small_disk / "spool"
    fill(path, 3, end=False)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with numbers(path, follow=False).iterate() as items:
        assert [next(items), next(items)] == [0, 1]
        state = items.state_dict()
    assert list(numbers(path, follow=False).iterate(state=state)) == [2]
    with pytest.raises(OSError, match=r"spool: who waits .* makes a pipe in it, and cannot: .*follow=False"):
        next(iter(numbers(path)))
    with pytest.raises(OSError, match=r"writer"):
        ad.DurableChannel(path)


def test_nothing_is_acknowledged_that_goes_into_a_file_which_was_removed(tmp_path: Path) -> None:
    with ad.DurableChannel(tmp_path) as channel:
        asyncio.run(channel.send(b"1"))
        (segment,) = tmp_path.glob("*.tfrecord")
        segment.unlink()
        for _ in range(2):
            with pytest.raises(ad.ClosedError, match="somebody has removed it"):
                asyncio.run(channel.send(b"2"))


def test_a_file_that_may_not_grow_refuses(small_files: Path) -> None:
    with ad.DurableChannel(small_files / "channel") as channel:
        asyncio.run(channel.send(b"x" * 1000))
        with pytest.raises(ad.ChannelFull, match="the disk is full"):
            asyncio.run(channel.send(b"x" * 70_000))
        asyncio.run(channel.send(b"y"))
    assert [len(item) for item in ad.Dataset.from_channel(small_files / "channel", follow=False)] == [1000, 1]


def test_a_failing_sync_closes_the_channel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(file: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with ad.DurableChannel(tmp_path) as channel:
        asyncio.run(channel.send(b"x"))
        monkeypatch.setattr(os, "fdatasync", fails)
        with pytest.raises(ad.ClosedError, match="the disk is gone"):
            asyncio.run(channel.send(b"y"))
        with pytest.raises(ad.ClosedError, match="open the channel again"):
            asyncio.run(channel.send(b"z"))


@pytest.mark.parametrize("where", ["asyncdata.web.folder.open_regular", "asyncdata.web.durable.created"])
def test_a_process_that_has_too_many_files_open_refuses_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """As one that serves more connections than it may have descriptors."""

    def refused(*_: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    errors = list[str]()
    with ad.DurableChannel(tmp_path, segment_bytes=2000) as channel:
        for number in range(6):
            send = partial(channel.send, b"%d" % number * 1000)
            try:
                with monkeypatch.context() as patch:
                    patch.setattr(where, refused)
                    asyncio.run(send())
            except ad.ChannelFull as error:
                errors.append(str(error))
                asyncio.run(send())
    assert len(errors) > 1
    assert all("too many files are open" in error for error in errors)
    assert [item[:1] for item in ad.Dataset.from_channel(tmp_path, follow=False)] == [b"%d" % one for one in range(6)]


@pytest.mark.parametrize("follow", [True, False])
def test_a_reader_in_a_process_that_has_too_many_files_open_reads_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    """If it waits for items anyway."""
    monkeypatch.setattr("asyncdata.web.stored.TOO_MANY_SECONDS", 0.0)
    opens, calls = folder.open_regular, iter(range(1000))

    def refused(*arguments: Any) -> int:
        if next(calls) in (2, 3, 5):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opens(*arguments)

    fill(tmp_path, 3, end=True)
    monkeypatch.setattr(folder, "open_regular", refused)
    with nullcontext() if follow else pytest.raises(OSError, match="Too many open files"):
        assert list(numbers(tmp_path, follow=follow)) == [0, 1, 2]
    assert next(calls) > 2


@pytest.mark.parametrize("number", range(1, 5))
def test_a_full_channel_whose_next_segment_cannot_be_made_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The segment before it goes on."""
    sync, calls = ChannelFolder.sync, iter(range(1000))

    def failing(self: ChannelFolder) -> None:
        if next(calls) == number:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        sync(self)

    monkeypatch.setattr(ChannelFolder, "sync", failing)
    sent, found = list[bytes](), list[bytes]()
    with (
        ad.DurableChannel(tmp_path, 300_000, 200_000) as channel,
        ad.Dataset.from_channel(tmp_path).iterate() as items,
    ):
        while len(sent) < 60:
            body = b"%5d" % len(sent) * 4000
            try:
                asyncio.run(channel.send(body))
                sent.append(body)
            except ad.ChannelFull:
                found += [next(items) for _ in range(len(sent) - len(found))]
                channel.trim(items.state_dict())
        found += [next(items) for _ in range(len(sent) - len(found))]
    assert found == sent
    assert next(calls) > number


def test_stale_records_are_dropped(tmp_path: Path) -> None:
    async def serve() -> None:
        async with ad.DurableChannel(tmp_path) as channel:
            for version in (1, 2, None, 3):
                await channel.send(b"%d" % (version or 0), version=version)

    asyncio.run(serve())
    assert list(numbers(tmp_path, min_version=2, follow=False)) == [2, 0, 3]
    with ad.DurableChannel(tmp_path) as channel:
        assert channel.stats()["dropped"] == 1
        assert list(numbers(tmp_path, max_age=1e-9, follow=False)) == []
        assert channel.stats()["dropped"] == 5
    assert len(list(numbers(tmp_path, max_age=1000, follow=False))) == 4


def test_a_state_is_of_one_channel(tmp_path: Path) -> None:
    for name in "ab":
        fill(tmp_path / name, 5)
    with numbers(tmp_path / "a").iterate() as items:
        next(items)
        state = items.state_dict()
    (tmp_path / "a").rename(tmp_path / "c")
    assert list(numbers(tmp_path / "c").iterate(state=state)) == [1, 2, 3, 4]
    with pytest.raises(ad.ResumeError, match="another channel"):
        list(numbers(tmp_path / "b").iterate(state=state))


@pytest.mark.parametrize("kills", first_by_default([1, 10], 1))
def test_a_writer_that_is_killed_loses_nothing_it_acknowledged(kills: int, tmp_path: Path) -> None:
    """A client sends numbers by their keys, again where it got no answer."""
    assert killed(PROGRAMS / "writer.py", tmp_path / "channel", tmp_path / "acknowledged", kills=kills) == 0
    acknowledged = (tmp_path / "acknowledged").read_text().split()
    stored = [item.decode() for item in ad.Dataset.from_channel(tmp_path / "channel")]
    assert len(stored) == len(set(stored)) == 400
    assert set(acknowledged) == set(stored)


@pytest.mark.slow
def test_a_trainer_that_is_killed_goes_on_exactly(tmp_path: Path) -> None:
    fill(tmp_path / "channel", 600, 3, segment_bytes=2000)
    assert killed(PROGRAMS / "trainer.py", tmp_path / "channel", tmp_path / "saved", kills=5) == 0
    trained = json.loads((tmp_path / "saved").read_text())["trained"]
    assert sorted(trained) == list(range(600))

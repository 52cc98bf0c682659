from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.errors import DataLossError
from asyncdata.executors.function_call import PoolExecutor
from asyncdata.runtime.open_files import OpenFiles
from asyncdata.storage.local import NOWAIT, LocalStore, QuickReads
from tests.marks import first_by_default

store = LocalStore()
content = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(content)
    return str(tmp_path / "file")


@pytest.fixture(params=["cached", "disk", "unable"])
def cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a file's bytes are: all in the page cache, never there, or the file system cannot tell."""
    if request.param != "cached":

        def refuse(*_: Any) -> int:
            raise OSError(errno.EAGAIN if request.param == "disk" else errno.EOPNOTSUPP, "no")

        monkeypatch.setattr(os, "preadv", refuse, raising=False)
    return request.param


async def pieces(path: str, **options: Any) -> list[bytes]:
    async with aclosing(store.stream(path, **options)) as stream:
        return [bytes(block) async for block in stream]


class Runner:
    """Who runs what blocks as a test wants it."""

    def __init__(self, run: Callable[[Callable[[], None]], object] = lambda job: job()) -> None:
        self.executor = PoolExecutor(SimpleNamespace(submit=run))  # type: ignore[arg-type]
        self.open_files = OpenFiles()


def descriptors(path: str) -> int:
    """How many descriptors of a file, or of what is in a folder, are open; those of other files may come and go."""
    there = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return sum(one == path or one.startswith(f"{path}/") for one in there)


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")


class TestStream:
    @pytest.mark.parametrize("block_bytes", first_by_default([100, 1024, len(content), 1 << 20, 1], 4))
    @pytest.mark.parametrize("offset", [0, 1, 1023, len(content) - 1, len(content), len(content) + 5])
    async def test_all_bytes_in_blocks(self, path: str, cache: str, block_bytes: int, offset: int) -> None:
        found = await pieces(path, block_bytes=block_bytes, offset=offset)
        assert b"".join(found) == content[offset:]
        assert all(len(block) == block_bytes for block in found[:-1])

    async def test_empty_file(self, tmp_path: Path, cache: str) -> None:
        (tmp_path / "empty").touch()
        assert await pieces(str(tmp_path / "empty")) == []

    async def test_file_that_grows_meanwhile(self, path: str, cache: str) -> None:
        found = b""
        async with aclosing(store.stream(path, block_bytes=1000)) as stream:
            async for block in stream:
                if not found:
                    with open(path, "ab") as file:
                        file.write(b"more")
                found += block
        assert found == content + b"more"

    async def test_file_that_shrinks_meanwhile(self, path: str, cache: str) -> None:
        stream = store.stream(path, block_bytes=1000)
        await anext(stream)
        os.truncate(path, 1500)
        with pytest.raises(DataLossError, match=rf"file: ends at byte 1500, but had {len(content)} bytes"):
            while True:
                await anext(stream)

    async def test_part_of_a_block_is_cached(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real, cached = os.preadv, 2500

        def partly(fd: int, buffers: list[bytearray], offset: int, flags: int) -> int:
            if offset >= cached:
                raise BlockingIOError(errno.EAGAIN, "not cached")
            return real(fd, [memoryview(buffers[0])[: cached - offset]], offset, flags)

        monkeypatch.setattr(os, "preadv", partly, raising=False)
        assert b"".join(await pieces(path, block_bytes=1000)) == content

    async def test_file_without_a_size(self) -> None:
        if not os.path.exists("/proc/self/status"):
            pytest.skip("needs /proc")
        assert b"Name:" in b"".join(await pieces("/proc/self/status"))

    @pytest.mark.parametrize("missing", ["missing", "missing/file"])
    async def test_missing_file(self, tmp_path: Path, missing: str) -> None:
        with pytest.raises(FileNotFoundError, match=missing):
            await pieces(str(tmp_path / missing))

    async def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError, match=tmp_path.name):
            await pieces(str(tmp_path))

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
    async def test_file_that_may_not_be_read(self, path: str) -> None:
        os.chmod(path, 0)
        with pytest.raises(PermissionError, match="file"):
            await pieces(path)

    async def test_error_of_the_disk_is_raised_as_it_is(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = store.stream(path, block_bytes=1000)
        await anext(stream)

        def broken(*_: Any) -> int:
            raise OSError(errno.EIO, "the disk is broken")

        monkeypatch.setattr(os, "preadv", broken, raising=False)
        monkeypatch.setattr("asyncdata.storage.local.FileStream._read", broken)
        with pytest.raises(OSError, match="the disk is broken"):
            await anext(stream)

    async def test_reads_in_the_threads_it_is_given(self, path: str, cache: str) -> None:
        calls: list[Callable[[], Any]] = []

        def run(job: Callable[[], None]) -> None:
            calls.append(job)
            job()

        assert b"".join(await pieces(path, block_bytes=len(content) // 4, runner=Runner(run))) == content
        assert (
            len(calls) == {"cached": 1, "disk": 5, "unable": 5}[cache]
        )  # the first block, what is not cached, the end

    async def test_needs_no_thread_for_what_is_cached(self, path: str, cache: str) -> None:
        calls: list[Callable[[], Any]] = []

        def run(job: Callable[[], None]) -> None:
            calls.append(job)
            job()

        async with aclosing(LocalStore().stream(path, len(content) // 4, runner=Runner(run))) as stream:
            await stream.begin()
            assert b"".join([bytes(block) async for block in stream]) == content
        assert len(calls) == {"cached": 0, "disk": 5, "unable": 5}[cache]

    async def test_what_may_block_is_opened_in_a_thread(self, tmp_path: Path) -> None:
        path = str(tmp_path / "pipe")
        os.mkfifo(path)  # nobody writes into it
        local = LocalStore()
        assert local.quick.read(path, 0, None) is None

        def run(_: Callable[[], None]) -> None:
            raise LookupError("in a thread")

        async with aclosing(local.stream(path, runner=Runner(run))) as stream:
            await stream.begin()
            with pytest.raises(LookupError, match="in a thread"):
                await anext(stream)

    async def test_a_file_that_grows_is_read_to_its_end_one_that_shrinks_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"begin")
        async with aclosing(store.stream(str(path))) as stream:
            await stream.begin()
            assert bytes(await anext(stream)) == b"begin"
            with path.open("ab") as file:
                file.write(b"more")
            assert [bytes(block) async for block in stream] == [b"more"]
        async with aclosing(store.stream(str(path), block_bytes=4)) as stream:
            await stream.begin()
            assert bytes(await anext(stream)) == b"begi"
            path.write_bytes(b"less")
            with pytest.raises(DataLossError, match="ends at byte 4, but had 9 bytes when opened"):
                await anext(stream)


@needs_proc
class TestDescriptors:
    async def test_closed_at_the_end(self, path: str, cache: str) -> None:
        await pieces(path)
        assert descriptors(path) == 0

    async def test_closed_when_left_early(self, path: str, cache: str) -> None:
        stream = store.stream(path, block_bytes=10)
        await anext(stream)
        assert descriptors(path) == 1
        await stream.aclose()
        assert descriptors(path) == 0

    async def test_closed_without_awaiting(self, path: str) -> None:
        stream = store.stream(path, block_bytes=10, runner=Runner())
        await anext(stream)
        assert descriptors(path) == 1
        with pytest.raises(StopIteration):
            stream.aclose().send(None)
        assert descriptors(path) == 0

    async def test_missing_file_opens_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            await pieces(str(tmp_path / "missing"), runner=Runner())
        assert descriptors(str(tmp_path)) == 0

    @pytest.mark.parametrize("started", [False, True], ids=["before the read starts", "while it reads"])
    async def test_cancelled_while_a_thread_reads(
        self, path: str, started: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The thread that still uses the file closes it, and until then no other file gets its descriptor."""
        go, entered, threads = threading.Event(), threading.Event(), []
        real = os.fstat

        def held(fd: int) -> os.stat_result:
            entered.set()
            assert go.wait(120)
            return real(fd)

        def run(work: Callable[[], None]) -> None:
            def job() -> None:
                if not started:
                    entered.set()
                    assert go.wait(120)
                work()

            threads.append(threading.Thread(target=job))
            threads[0].start()

        monkeypatch.setattr("asyncdata.storage.local.os.fstat", held)
        task = asyncio.ensure_future(pieces(path, runner=Runner(run)))
        await asyncio.to_thread(entered.wait, 120)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert descriptors(path) == started
        go.set()
        await asyncio.to_thread(threads[0].join)
        assert descriptors(path) == 0


class TestRead:
    async def test_whole_file(self, path: str) -> None:
        assert await store.read(path) == content

    @pytest.mark.parametrize(("start", "length"), [(0, 5), (100, 0), (1000, 3000), (len(content) - 1, 1)])
    async def test_range(self, path: str, start: int, length: int) -> None:
        assert await store.read(path, start, length) == content[start : start + length]

    async def test_range_beyond_the_end(self, path: str) -> None:
        with pytest.raises(DataLossError, match=rf"file: asked for 10 bytes from byte {len(content) - 4} on, got 4"):
            await store.read(path, len(content) - 4, 10)

    async def test_size(self, path: str) -> None:
        assert store.head(path).size == len(content)

    @pytest.mark.parametrize("use", [store.read, lambda path: store.read(path, 0, 1)])
    async def test_missing_file_and_folder(self, tmp_path: Path, use: Callable[[str], Awaitable[bytes]]) -> None:
        with pytest.raises(FileNotFoundError, match="missing"):
            await use(str(tmp_path / "missing"))
        with pytest.raises(IsADirectoryError, match=tmp_path.name):
            await use(str(tmp_path))

    def test_size_of_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="missing"):
            store.head(str(tmp_path / "missing"))


class TestList:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        for name in ("b.txt", "a.txt", "c.bin", ".hidden.txt", "deep/er/a.txt", "deep/b.txt"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("*.txt", ["a.txt", "b.txt"]),
            ("[b-z].*", ["b.txt", "c.bin"]),
            ("[!a].*", ["b.txt", "c.bin"]),
            ("[^a].*", ["b.txt", "c.bin"]),
            ("[^a-b].*", ["c.bin"]),
            ("[a^].*", ["a.txt"]),
            ("[^]", []),
            ("dee[^a]/[^a].txt", ["deep/b.txt"]),
            ("**/*.txt", ["a.txt", "b.txt", "deep/b.txt", "deep/er/a.txt"]),
            (".*.txt", [".hidden.txt"]),
            ("a.txt", ["a.txt"]),
            ("nothing*", []),
        ],
    )
    def test_patterns(self, tree: Path, pattern: str, names: list[str]) -> None:
        assert [entry.path for entry in store.list(str(tree / pattern))] == [str(tree / name) for name in names]

    @pytest.mark.skipif(os.sep == "\\", reason="a backslash separates folders")
    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            (r"a\[1\].txt", ["a[1].txt"]),
            (r"a[1].txt", ["a1.txt"]),
            (r"a\*", ["a*"]),
            (r"a\?", ["a?"]),
            (r"*\]*", ["]", "a[1].txt"]),
            (r"\[", ["["]),
            (r"[[]", ["["]),
            (r"[\[]", ["["]),
            (r"[]]", ["]"]),
            (r"[!]a]", ["["]),
            (r"[^]a]", ["["]),
            (r"a[^\*]", ["a?"]),
            (r"b\c", ["b\\c"]),
            (r"b\\c", ["b\\c"]),
            (r"b\\*", ["b\\", "b\\c"]),
            ("b\\", ["b\\"]),
        ],
    )
    def test_a_backslash_has_the_next_character_mean_itself(
        self, tmp_path: Path, pattern: str, names: list[str]
    ) -> None:
        for name in ("a[1].txt", "a1.txt", "a*", "a?", "[", "]", "b\\", "b\\c"):
            (tmp_path / name).write_text("")
        assert [entry.path for entry in store.list(f"{tmp_path}/{pattern}")] == [f"{tmp_path}/{name}" for name in names]


@given(st.binary(max_size=300), st.integers(1, 50), st.integers(0, 320))
def test_any_file_in_any_blocks(data: bytes, block_bytes: int, offset: int) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        found = asyncio.run(pieces(file.name, block_bytes=block_bytes, offset=offset, runner=Runner()))
    assert b"".join(found) == data[offset:]


class TestSuspended:
    """Files that are closed between two blocks."""

    pytestmark = needs_proc

    async def streams(self, tmp_path: Path) -> tuple[list[Any], Runner]:
        runner = Runner(lambda job: job())
        runner.open_files.most = 2
        paths = [tmp_path / str(number) for number in range(4)]
        for path in paths:
            path.write_bytes(path.name.encode() * 1000)
        return [store.stream(str(path), block_bytes=100, runner=runner) for path in paths], runner

    async def test_they_are_opened_again_where_they_were(self, tmp_path: Path) -> None:
        streams, runner = await self.streams(tmp_path)
        found = dict.fromkeys(range(4), b"")
        for _ in range(10):
            for number, stream in enumerate(streams):
                found[number] += bytes(await anext(stream))
                assert descriptors(str(tmp_path)) <= 2
        assert found == {number: str(number).encode() * 1000 for number in range(4)}
        for stream in streams:
            await stream.aclose()
        assert not runner.open_files.files

    @pytest.mark.parametrize("change", ["replaced", "longer"])
    async def test_one_that_has_changed_meanwhile_is_an_error(self, tmp_path: Path, change: str) -> None:
        streams, _ = await self.streams(tmp_path)
        for stream in streams:
            await anext(stream)
        if change == "replaced":
            (tmp_path / "new").write_bytes(b"x" * 1000)
            os.replace(tmp_path / "new", tmp_path / "0")
        else:
            (tmp_path / "0").write_bytes(b"0" * 1001)
        with pytest.raises(DataLossError, match="was changed or replaced while it was being read"):
            await anext(streams[0])
        for stream in streams:
            await stream.aclose()


@pytest.mark.skipif(not NOWAIT, reason="only Linux reads without waiting")
def test_a_file_that_became_a_pipe_is_left_to_a_thread(tmp_path: Path) -> None:
    """Opening a pipe waits for its writer, which would block the event loop."""
    os.mkfifo(path := tmp_path / "pipe")
    writer = os.open(path, os.O_RDWR)
    try:
        assert QuickReads().open(str(path)) is None
    finally:
        os.close(writer)
    assert QuickReads().open(str(path)) is None

"""Objects that are kept on this machine: what is requested again, what is removed, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.errors import PlanError
from asyncdata.storage import cache_dir as module
from asyncdata.storage import cached
from asyncdata.storage.base import Entry
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.registry import store_for
from tests.remote.web import Web, web

pytest.importorskip("obstore")

QUICK = {"retry_config": {"max_retries": 2, "backoff": {"init_backoff": 0.001, "max_backoff": 0.01}}}


@pytest.fixture
def server() -> Any:
    with web() as served:
        yield served


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was cached or reported before, and the disk that the tests run on may be nearly full."""
    cached.VERIFIED.clear()
    cached.OUTAGES.clear()
    monkeypatch.setattr(module, "REPORTED", set())
    monkeypatch.setattr(module, "FREE", 1 << 60)


def lines(server: Web, name: str, count: int) -> tuple[str, list[bytes]]:
    rng = random.Random(name)
    made = [rng.randbytes(40).hex().encode() for _ in range(count)]
    return server.put(name, b"\n".join(made)), made


def files(folder: Path) -> list[Path]:
    return sorted((folder / module.FOLDER).glob("*.data"))


def used(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / module.FOLDER).glob("*"))


def test_a_file_is_got_once(server: Web, tmp_path: Path) -> None:
    url, made = lines(server, "a.txt", 50_000)
    for _ in range(3):
        assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == made
    (kept,) = files(tmp_path)
    assert kept.read_bytes() == server.files["/a.txt"]
    gets = len(server.of("GET"))
    cached.VERIFIED.clear()  # as another process: it asks for a byte
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == made
    assert [request.stop - request.start for request in server.of("GET")[gets:]] == [1]
    assert not server.of("HEAD")


ALONE = """
import json, sys
import asyncdata as ad
folder, options, urls, damaged = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:6], sys.argv[6]
for url in [*urls, damaged]:
    if url == damaged:
        open(damaged, "r+b").write(b"-damaged")
        url = urls[0]
    ds = ad.FixedLengthRecordDataset(url, 81, header_bytes=1, cache_dir=folder, storage_options=options)
    for read in (lambda: [*ds], lambda: [ds[0]]):
        try:
            print(len(read()), "records", flush=True)
        except ConnectionRefusedError as error:
            print("refused", flush=True)
"""


def test_what_is_kept_is_read_where_no_server_answers(tmp_path: Path) -> None:
    with web() as server:
        urls = [server.put(f"{name}.bin", b"-" + name.encode() * 81 * 50) for name in "abc"]
        for url in urls[:2]:
            list(ad.FixedLengthRecordDataset(url, 81, header_bytes=1, cache_dir=tmp_path))

    damaged = next(str(path) for path in files(tmp_path) if path.read_bytes().endswith(b"a"))
    command = [sys.executable, "-c", ALONE, str(tmp_path), json.dumps(QUICK), *urls, damaged]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["50 records", "1 records"] * 2 + ["refused"] * 4
    (said,) = told.stderr.splitlines()
    assert said.endswith(f"what {tmp_path} has is read as it is, as no server says whether it is outdated")


class Source:
    """A store whose server may be down; it notes what is asked."""

    def __init__(self, server: Web) -> None:
        self.server = server
        self.store: Any = store_for(server.url, StorageOptions(QUICK))[0]
        self.identity = server.url
        self.down = False
        self.asked = list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def now(self, path: str) -> Entry:
        self.asked.append(path)
        if self.down:
            raise ConnectionRefusedError("no server answers")
        return await self.store.now(path)

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        if self.down:
            raise ConnectionRefusedError("no server answers")
        yield Entry(pattern, 1, "1")


class Outages:
    """A cache folder with four objects, of a store whose server may be down, and a clock."""

    def __init__(self, server: Web, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.source, self.caplog, self.now = Source(server), caplog, 100.0
        self.cached = cached.CachedStore(self.source, ad.CacheDir(folder))
        self.put("old")
        for name in "abcd":
            self.read(name)
        list(self.cached.list("pattern"))

    def monotonic(self) -> float:
        return self.now

    def put(self, content: str) -> None:
        for name in "abcd":
            self.source.server.put(name, content.encode())

    def read(self, name: str) -> str:
        """Read an object as a process that has not read it."""
        cached.VERIFIED.clear()
        return asyncio.run(self.cached.read(name)).decode()

    @property
    def warnings(self) -> int:
        return sum("is read as it is" in record.getMessage() for record in self.caplog.records)


@pytest.fixture
def outages(server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Outages:
    found = Outages(server, tmp_path, caplog)
    monkeypatch.setattr(cached, "time", found)
    return found


def test_an_outage_ends_with_any_answer_and_each_is_warned_of_once(outages: Outages) -> None:
    source = outages.source
    source.down = True
    assert [outages.read(name) for name in "ab"] == ["old"] * 2
    assert [entry.path for entry in outages.cached.list("pattern")] == ["pattern"]
    assert (source.asked, outages.warnings) == (["a"], 1)
    outages.put("new")
    source.down = False
    with pytest.raises(FileNotFoundError):
        outages.read("none")  # it is not kept, so that it is requested, and the server says that there is none
    assert outages.read("b") == "new"
    source.down = True
    assert [outages.read(name) for name in "cd"] == ["old"] * 2
    assert (source.asked, outages.warnings) == (["a", "b", "c"], 2)
    source.down = False
    assert list(outages.cached.list("pattern"))
    assert [outages.read(name) for name in "cd"] == ["new"] * 2
    assert outages.warnings == 2


def test_in_an_outage_the_server_is_asked_again_soon(outages: Outages) -> None:
    source = outages.source
    source.down = True
    for later, asked in ((0.0, 1), (4.9, 1), (0.2, 2), (4.9, 2), (0.2, 3)):
        outages.now += later
        assert outages.read("a") == "old"
        assert len(source.asked) == asked
    assert outages.warnings == 1
    outages.put("new")
    source.down = False
    outages.now += 5
    assert [outages.read(name) for name in "ab"] == ["new"] * 2


async def test_read_file_keeps_what_it_reads(server: Web, tmp_path: Path) -> None:
    content = random.Random(0).randbytes(20_000_000)
    url = server.put("a.bin", content)
    for _ in range(2):
        assert await ad.read_file(url, cache_dir=ad.CacheDir(tmp_path, max_bytes=30_000_000)) == content
    assert len(server.of("GET")) == 5  # of 1, 2, 4, 8 MB and the rest
    assert await ad.read_file(server.put("empty", b""), cache_dir=tmp_path) == b""
    with pytest.raises(FileNotFoundError):
        await ad.read_file(f"{server.url}/none", cache_dir=tmp_path)


def test_read_file_in_a_map_keeps_what_it_reads(server: Web, tmp_path: Path) -> None:
    """As docs/storage.md shows it."""
    ds = ad.Dataset.from_list([server.put(name, name.encode()) for name in "abc"])
    for _ in range(2):
        assert list(ds.map(partial(ad.read_file, cache_dir=tmp_path), num_parallel_calls=32)) == [b"a", b"b", b"c"]
    assert len(server.of("GET")) == 3


@pytest.mark.parametrize("count", [0, 1, 700, 1500, 2000])
def test_goes_on_where_it_was(server: Web, tmp_path: Path, count: int) -> None:
    urls, made = zip(*[lines(server, f"{place}.txt", 1000) for place in range(2)], strict=True)
    ds = ad.TextLineDataset(urls, cache_dir=tmp_path)
    with ds.iterate() as elements:
        found = [next(elements) for _ in range(count)]
        state = json.loads(json.dumps(elements.state_dict()))
    assert found + list(ds.iterate(state=state)) == [*made[0], *made[1]]
    assert found + list(ad.TextLineDataset(urls).iterate(state=state)) == [*made[0], *made[1]]


def records(server: Web, folder: Path, name: str, count: int, size: int = 2000) -> tuple[str, list[bytes]]:
    rng = random.Random(name)
    made = [rng.randbytes(size) for _ in range(count)]
    with ad.TFRecordWriter(folder / "records") as writer:
        for one in made:
            writer.write(one)
    return server.put(name, (folder / "records").read_bytes()), made


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCDATA_CACHE", str(tmp_path / "indexes"))


@pytest.mark.usefixtures("indexes")
@pytest.mark.parametrize("room", [None, 30_000, 0])  # all, one of two objects, none
def test_records_by_number(server: Web, tmp_path: Path, room: int | None) -> None:
    urls, made = zip(*[records(server, tmp_path, f"{place}.tfrecord", 6) for place in range(2)], strict=True)
    folder = ad.CacheDir(tmp_path / "kept", max_bytes=room)
    ds = ad.TFRecordDataset(urls, index=True, cache_dir=folder)
    whole = [*made[0], *made[1]]
    assert len(ds) == 12
    assert [ds[place] for place in (11, 0, 7)] == [whole[11], whole[0], whole[7]]
    shuffled = ds.shuffle(seed=1)
    expected = list(shuffled.iterate(epoch=0))
    assert sorted(expected) == sorted(whole)
    with shuffled.iterate(epoch=0) as elements:
        found = [next(elements) for _ in range(5)]
        state = json.loads(json.dumps(elements.state_dict()))
    assert found + list(shuffled.iterate(state=state)) == expected
    assert room is None or used(tmp_path / "kept") <= room


async def test_records_by_number_in_a_coroutine(server: Web, tmp_path: Path) -> None:
    url = server.put("a.bin", b"aabbcc")
    ds = ad.FixedLengthRecordDataset(url, 2, cache_dir=tmp_path)
    assert len(ds) == 3
    assert ds[1] == b"bb"
    assert sorted([one async for one in ds.shuffle(seed=0)]) == [b"aa", b"bb", b"cc"]


def test_what_was_replaced_is_got_anew(server: Web, tmp_path: Path) -> None:
    url, _ = lines(server, "a.txt", 100)
    list(ad.TextLineDataset(url, cache_dir=tmp_path))
    cached.VERIFIED.clear()
    server.put("a.txt", b"new\n")
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == [b"new"]
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("kind", ["data", "json"])
def test_what_was_damaged_is_got_anew(server: Web, tmp_path: Path, kind: str) -> None:
    url, made = lines(server, "a.txt", 100)
    list(ad.TextLineDataset(url, cache_dir=tmp_path))
    path = files(tmp_path)[0].with_suffix(f".{kind}")
    status, content = path.stat(), bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    cached.VERIFIED.clear()
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == made
    assert path.read_bytes() != bytes(content)


def test_no_more_than_was_told_and_the_oldest_goes_first(server: Web, tmp_path: Path) -> None:
    urls, made = zip(*[lines(server, f"{place}.txt", 1000) for place in range(8)], strict=True)
    folder = ad.CacheDir(tmp_path, max_bytes=300_000)  # three of them, of 81,000 bytes
    own = tmp_path / module.FOLDER / "notes.txt"
    own.parent.mkdir()
    own.write_text("mine")
    (tmp_path / "mine").write_text("mine")
    for place in (0, 1, 2, 0, 3):
        assert list(ad.TextLineDataset(urls[place], cache_dir=folder)) == made[place]
        assert used(tmp_path) <= 300_000
    server.requests.clear()
    for place in (0, 2, 3):
        list(ad.TextLineDataset(urls[place], cache_dir=folder))
    assert not server.requests
    assert list(ad.TextLineDataset(urls, num_parallel_reads=8, cache_dir=folder))
    assert used(tmp_path) <= 300_000
    assert own.read_text() == (tmp_path / "mine").read_text() == "mine"


def test_what_is_being_read_stays(server: Web, tmp_path: Path) -> None:
    urls, made = zip(*[lines(server, f"{place}.txt", 1000) for place in range(2)], strict=True)
    folder = ad.CacheDir(tmp_path, max_bytes=100_000)
    list(ad.TextLineDataset(urls[0], cache_dir=folder))
    with ad.TextLineDataset(urls[0], buffer_size=100, cache_dir=folder).iterate() as elements:
        found = [next(elements)]
        assert list(ad.TextLineDataset(urls[1], cache_dir=folder)) == made[1]  # and is not kept
        assert len(files(tmp_path)) == 1
        assert found + list(elements) == made[0]
    list(ad.TextLineDataset(urls[1], cache_dir=folder))
    assert files(tmp_path)[0].read_bytes() == server.files["/1.txt"]


def test_leaving_early_keeps_nothing(server: Web, tmp_path: Path) -> None:
    url, made = lines(server, "a.txt", 100_000)
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path).take(1)) == made[:1]
    left = {path.name for path in (tmp_path / module.FOLDER).iterdir()}
    assert left == {"account", "CACHEDIR.TAG"}
    cache = ad.CacheDir(tmp_path)
    with cache.account() as account:
        assert account.used == 0


def test_two_readers_at_once(server: Web, tmp_path: Path) -> None:
    url, made = lines(server, "a.txt", 50_000)
    found: list[list[bytes]] = []

    def read() -> None:
        found.append(list(ad.TextLineDataset(url, cache_dir=tmp_path)))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [made] * 4
    assert len(files(tmp_path)) == 1


def test_a_full_disk(server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    url, made = lines(server, "a.txt", 1000)
    for call in ("posix_fallocate", "pwrite", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(module.os, call, full)
            assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == made
        assert not files(tmp_path)
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == made
    assert files(tmp_path)


KILLED = """
import os, signal, sys
import asyncdata as ad
url, folder = sys.argv[1:]
cache = ad.CacheDir(folder, max_bytes=1 << 30)
for number, line in enumerate(ad.TextLineDataset(url, cache_dir=cache)):
    if number == 1000:
        print("reading", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_cache_is_usable_after_a_crash(server: Web, tmp_path: Path) -> None:
    url, made = lines(server, "a.txt", 50_000)
    command = [sys.executable, "-c", KILLED, url, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((tmp_path / module.FOLDER).glob("*.partial"))
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == made
    assert not list((tmp_path / module.FOLDER).glob("*.partial"))
    with ad.CacheDir(tmp_path).account() as account:
        assert account.used == sum(module.disk_bytes(path.stat().st_size) for path in files(tmp_path))


def read_in_child(url: str, folder: Any, out: Any) -> None:
    for _ in range(5):
        out.put(sum(map(len, ad.TFRecordDataset(url, index=True, cache_dir=folder).shuffle(seed=0))))


@pytest.mark.slow
@pytest.mark.usefixtures("indexes")
def test_processes_share_a_folder(server: Web, tmp_path: Path) -> None:
    url, made = records(server, tmp_path, "a.tfrecord", 200)
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    folder = ad.CacheDir(tmp_path / "kept", max_bytes=1_000_000)
    processes = [context.Process(target=read_in_child, args=(url, folder, out)) for _ in range(2)]
    for process in processes:
        process.start()
    assert [out.get(timeout=170) for _ in range(10)] == [sum(map(len, made))] * 10
    for process in processes:
        process.join()
    got = sum(request.stop - request.start for request in server.requests)
    # once, what one had asked for when it saw that the other was at it, and a byte by each
    assert got <= 2 * len(server.files["/a.tfrecord"]) + 10


def test_what_another_has_written_since_it_was_looked_for_is_not_written_again(tmp_path: Path) -> None:
    cache, entry = ad.CacheDir(tmp_path), Entry("http://server/a", 3, "1")
    one, other = (module.CacheWriter(cache, "key", entry) for _ in range(2))
    assert cache.find("key") is None
    assert one.begin()
    one.write(b"abc")
    one.finish()
    other.begin()
    assert (other.busy, other.ended) == (True, True)
    assert cache.holds("key", entry)
    newer = module.CacheWriter(cache, "key", entry._replace(version="2"))
    assert newer.begin()
    newer.abort()


def test_a_folder_without_space_is_reported_once(
    server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FREE", 1)  # all of the file system stays free
    for name in ("a.txt", "b.txt"):
        url, made = lines(server, name, 10)
        assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == made
    assert not files(tmp_path)
    (record,) = caplog.records
    assert "a.txt is read without being cached" in record.getMessage()
    assert "no space" in record.getMessage()
    assert "give max_bytes" in record.getMessage()


def test_who_waits_for_an_object_finds_it_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ad.CacheDir(tmp_path)
    writer = module.CacheWriter(cache, "key", Entry("http://server/a", 3, "1"))
    assert writer.begin()
    writer.write(b"abc")
    found = list[bool]()
    waiting = threading.Thread(target=lambda: (cache.wait("key"), found.append(cache.find("key") is not None)))
    replace = os.replace

    def slow(source: str, target: str) -> None:
        if str(target).endswith(".data"):
            waiting.start()
            waiting.join(0.2)  # it may not end before the object has its name
        replace(source, target)

    monkeypatch.setattr(module.os, "replace", slow)
    writer.finish()
    waiting.join(60)
    assert found == [True]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (lambda: ad.CacheDir("s3://bucket/x"), "local folder"),
        (lambda: ad.CacheDir("x", max_bytes=-1), "number of bytes"),
        (lambda: ad.TextLineDataset("x", cache_dir=3), "cache_dir"),
        (lambda: ad.TFRecordDataset("http://x/y", index=True), "cache_dir"),
    ],
)
def test_mistakes(given: Any, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        given()


@pytest.fixture
def folder_to_read() -> Iterator[Path]:
    """A folder that all users may read."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


AS_NOBODY = """
import os, sys, tempfile
import asyncdata as ad

def read(folder):
    return list(ad.TextLineDataset(sys.argv[1], cache_dir=folder))

read(tempfile.mkdtemp())  # imports what another user may not be able to
os.setgid(65534)
os.setuid(65534)
for _ in range(2):
    print(*read(sys.argv[2]))
"""


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root may become another user")
def test_a_user_who_may_not_write_reads_what_has_changed(server: Web, folder_to_read: Path) -> None:
    folder = folder_to_read
    url = server.put("a.txt", b"old")
    assert list(ad.TextLineDataset(url, cache_dir=folder)) == [b"old"]
    done = as_nobody(url, folder)
    assert done.stdout.split() == ["b'old'"] * 2, done.stderr
    server.put("a.txt", b"new")
    done = as_nobody(url, folder)
    assert done.stdout.split() == ["b'new'"] * 2, done.stderr
    assert "read without being cached" in done.stderr
    cached.VERIFIED.clear()
    assert list(ad.TextLineDataset(url, cache_dir=folder)) == [b"new"]


def as_nobody(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", ["data", "json"])
def test_what_is_no_file_of_the_cache_is_not_read(server: Web, tmp_path: Path, kind: str, name: str) -> None:
    url = server.put("a.txt", b"right")
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == [b"right"]
    (path,) = (tmp_path / module.FOLDER).glob(f"*.{name}")
    other = tmp_path / "other"
    path.rename(other)
    before = other.read_bytes()
    path.symlink_to(other) if kind == "link" else os.mkfifo(path)
    cached.VERIFIED.clear()
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == [b"right"]
    assert other.read_bytes() == before


@pytest.mark.parametrize("note", ["[" * 200_000, '{"format": 99}', "null", "{}"])
def test_a_note_of_the_cache_that_is_none_is_made_anew(server: Web, tmp_path: Path, note: str) -> None:
    url = server.put("a.txt", b"right")
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == [b"right"]
    (path,) = (tmp_path / module.FOLDER).glob("*.json")
    before = path.read_text()
    path.write_text(note)
    cached.VERIFIED.clear()
    assert list(ad.TextLineDataset(url, cache_dir=tmp_path)) == [b"right"]
    assert json.loads(path.read_text()).keys() == json.loads(before).keys()

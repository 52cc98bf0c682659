"""Object stores and web servers, by obstore: its requests, and what is odd about it."""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from asyncdata.errors import DataLossError, PlanError
from asyncdata.runtime.optional_packages import require
from asyncdata.storage.base import BLOCK_BYTES, Entry, Runner, Stream
from asyncdata.storage.limit import Limit
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.patterns import Pattern
from asyncdata.storage.read_ahead import LARGEST_PART, Part, ReadAhead
from asyncdata.storage.retries import (
    NoRangesError,
    NotSatisfiableError,
    RefusedError,
    Retries,
    ShortError,
    Tries,
    explained,
    without_secrets,
)
from asyncdata.storage.without_ranges import RangesOrWhole

__all__ = ("ObjectStore", "Writable", "endpoint_of", "in_this_process")

INSTALL: Final = "'asyncdata[remote]'"

STALL: Final = "30s"
"""How long a connection may give nothing."""

WHOLE: Final = "7d"
"""How long an answer may take: obstore's own 30 s are for the whole body, which a slow line needs longer for."""

EXIT: Final = 0.02
"""Seconds that obstore's threads get at the interpreter's exit to come out of it: one that asks for the interpreter's
lock later aborts the process."""

PAGE: Final = 1000

UPLOAD_PART: Final = 8 << 20
"""Bytes of a part of an upload."""

CHUNK: Final = 1 << 16
"""Bytes at least that come at once where an answer is read as it comes."""


class Process:
    """Which process has made requests, as obstore's threads are not there in one that was forked from it."""

    used: int | None = None
    lock = threading.Lock()


def in_this_process() -> None:
    """Note that this process makes requests; `RuntimeError` in one that was forked from one that did."""
    own = os.getpid()
    if Process.used == own:
        return
    if Process.used is not None:
        raise RuntimeError(
            "this process was forked from one that has read from an object store, whose connections and threads a "
            "fork does not copy: start processes by spawn or forkserver (PyTorch: multiprocessing_context='spawn'), "
            "or read from the object store in the children only"
        )
    with Process.lock:
        if Process.used is None:
            Process.used = own
            atexit.register(time.sleep, EXIT)


class Reached:
    """How far a part has been read, and what the object was then."""

    __slots__ = ("cut", "data", "expected", "start", "stop")

    def __init__(self, start: int, stop: int, expected: Entry | None) -> None:
        self.start = start
        self.stop = stop
        self.expected = expected
        self.data = bytearray()
        self.cut = False
        """Whether an answer has broken off, so that the next one is taken as it comes."""

    @property
    def at(self) -> int:
        """The next byte."""
        return self.start + len(self.data)

    def expect(self, entry: Entry, url: str) -> None:
        """Raise unless this is still the same object."""
        if self.expected is not None and entry[1:] != self.expected[1:]:
            raise DataLossError(f"{url}: the object was replaced while it was read")
        self.expected = entry


class ObjectStore:
    """The objects of one bucket, or of one web server."""

    def __init__(self, root: str, options: StorageOptions, limit: Limit) -> None:
        self.root = root
        self.web = root.startswith("http")
        self.place = f"{endpoint_of(options.values)} {root.partition('?')[0]}"
        """What distinguishes it from all other stores."""
        self.limit = limit
        values = dict(options.values)
        self.retries = Retries.of(values.pop("retry_config", None))
        self.obstore = require("obstore", f"{root}", INSTALL)
        self.store = opened(root, values)

    def __repr__(self) -> str:
        return f"ObjectStore({without_secrets(self.root)!r})"

    def url(self, path: str) -> str:
        """Return the URL of an object."""
        root = self.root.partition("?")[0]
        return f"{root}/{quote(path) if self.web else path}"

    # what blocks

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield the objects that match, sorted, as they are listed a page after the other."""
        if self.web:
            raise PlanError(f"{self.root}: a web server cannot be listed; give the URLs themselves")
        matcher = Pattern(pattern)
        if matcher.plain:
            return self.one(pattern) if pattern > after else iter(())
        return (entry for path, entry in self.below(matcher.prefix, after) if matcher.matches(path))

    def one(self, path: str) -> Iterator[Entry]:
        """Yield an object if it is there."""
        try:
            yield self.head(path)
        except FileNotFoundError:
            return

    def below(self, prefix: str, after: str) -> Iterator[tuple[str, Entry]]:
        """Yield all objects whose paths begin with a prefix; a page that fails is asked for once more."""
        folder = prefix.rpartition("/")[0]
        last, tries = after, Tries(self.retries)
        while True:
            in_this_process()
            try:
                pages = self.obstore.list(self.store, folder or None, offset=last or None, chunk_size=PAGE)
                for page in pages:
                    for meta in page:
                        last = meta["path"]
                        if last.startswith(prefix):
                            yield last, self.entry(last, meta)
                    tries = Tries(self.retries)
            except Exception as error:  # noqa: BLE001  obstore's have no common base but this
                time.sleep(tries.pause(explained(error, self.url(prefix))))
            else:
                return

    def head(self, path: str) -> Entry:
        """Return an object's size and version."""
        tries = Tries(self.retries)
        while True:
            in_this_process()
            try:
                return self.entry(path, self.obstore.head(self.store, checked(path, self.url(path))))
            except Exception as error:  # noqa: BLE001
                time.sleep(tries.pause(explained(error, self.url(path))))

    def entry(self, path: str, meta: Any) -> Entry:
        """Return what obstore says about an object."""
        return Entry(self.url(path), meta["size"], version_of(meta))

    # what runs on an event loop

    def stream(
        self,
        path: str,
        block_bytes: int = BLOCK_BYTES,
        offset: int = 0,
        runner: Runner | None = None,
    ) -> Stream:
        """Return the object's bytes from `offset` on, in blocks; the next parts are requested ahead."""
        parts = ReadAhead(self, path, block_bytes, offset, runner)
        return RangesOrWhole(parts, partial(self.whole, path), offset) if self.web else parts

    async def whole(self, path: str) -> tuple[Entry, AsyncIterator[Any]]:
        """Request a whole object; return what it is, and its bytes as they come."""
        in_this_process()
        try:
            result = await self.obstore.get_async(self.store, path)
            return self.entry(path, result.meta), aiter(result.stream(min_chunk_size=CHUNK))
        except Exception as error:  # noqa: BLE001
            raise explained(error, self.url(path)) from None

    async def now(self, path: str) -> Entry:
        """Return what an object is, by a request for one byte: who may read it may perhaps not ask about it."""
        try:
            return (await self.part(path, 0, 1)).entry
        except NoRangesError:
            return (await self.whole(path))[0]

    async def read(self, path: str, start: int = 0, length: int | None = None, expected: Entry | None = None) -> bytes:
        """Return the object, or `length` bytes from `start` on; a large one in parts, several at once."""
        stop = start + LARGEST_PART if length is None else start + length
        try:
            first = await self.part(path, start, min(stop, start + LARGEST_PART), expected)
        except NoRangesError:
            return (await self.read_whole(path))[start : None if length is None else stop]
        end = first.entry.size if length is None else stop
        if end > first.entry.size:
            raise DataLossError(
                f"{self.url(path)}: asked for {length} bytes from byte {start} on, it has {first.entry.size}"
            )
        done = start + len(first.data)
        if done >= end:
            return bytes(first.data)
        starts = range(done, end, LARGEST_PART)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.part(path, at, min(end, at + LARGEST_PART), first.entry)) for at in starts]
        return b"".join([first.data, *[task.result().data for task in tasks]])

    async def read_whole(self, path: str) -> bytes:
        """Return the object by one request, of a server that gives no parts of it."""
        try:
            async with self.limit.slot():
                return bytes(await (await self.obstore.get_async(self.store, path)).bytes_async())
        except Exception as error:  # noqa: BLE001
            raise explained(error, self.url(path)) from None

    async def part(self, path: str, start: int, stop: int, expected: Entry | None = None) -> Part:
        """Return the bytes from `start` to before `stop`, or to the object's end, of what is `expected` there.

        What fails in a way that may pass is asked for again, from the byte on that was reached.
        """
        checked(path, self.url(path))
        reached, tries = Reached(start, stop, expected), Tries(self.retries)
        while True:
            try:
                async with self.limit.slot():
                    part = await self.answer(path, reached)
                    self.limit.succeeded(len(part.data))
                    return part
            except Exception as error:  # noqa: BLE001
                cause = explained(error, self.url(path))
            if isinstance(cause, NotSatisfiableError):
                return Part(memoryview(b""), await self.head_async(path, start))
            if isinstance(cause, RefusedError):
                self.limit.refused()
            await asyncio.sleep(tries.pause(cause))

    async def answer(self, path: str, reached: Reached) -> Part:
        """Make one request for what is missing."""
        in_this_process()
        url = self.url(path)
        again = bool(reached.data) or reached.cut
        try:
            options = {"range": (reached.at, reached.stop)}
            result = await self.obstore.get_async(self.store, path, options=options)
            entry = self.entry(path, result.meta)
            reached.expect(entry, url)
            if again:
                chunks = aiter(result.stream(min_chunk_size=CHUNK))
                while (chunk := await anext(chunks, None)) is not None:
                    reached.data += chunk
                data = memoryview(reached.data)
            else:
                data = memoryview(await result.bytes_async())
        except Exception:
            reached.cut = reached.cut or reached.expected is not None
            raise
        missing = min(reached.stop, entry.size) - reached.start - len(data)
        if missing > 0:
            reached.cut = True
            raise ShortError(f"{url}: the answer ended {missing} bytes early")
        return Part(data, entry)

    async def head_async(self, path: str, start: int) -> Entry:
        """Return what an object is that has nothing from `start` on."""
        tries = Tries(self.retries)
        while True:
            in_this_process()
            try:
                async with self.limit.slot():
                    meta = await self.obstore.head_async(self.store, path)
            except Exception as error:  # noqa: BLE001
                pause = tries.pause(explained(error, self.url(path)))
            else:
                entry = self.entry(path, meta)
                if entry.size > start:
                    raise DataLossError(f"{self.url(path)}: it is being replaced")
                return entry
            await asyncio.sleep(pause)


def opened(root: str, values: dict[str, Any], retries: Mapping[str, Any] | None = None) -> Any:
    """Return obstore's store, which makes each request once unless told otherwise: retries are ours."""
    client = {"timeout": WHOLE, "read_timeout": STALL, **values.pop("client_options", {})}
    if (endpoint_of(values) or endpoint_around(root) or root).startswith("http://"):
        client.setdefault("allow_http", True)
    make = require("obstore.store", root, INSTALL).from_url
    try:
        return make(root, client_options=client, retry_config=retries or {"max_retries": 0}, **values)
    except Exception as error:  # noqa: BLE001
        words = without_secrets(str(error).partition("\n")[0])
        raise PlanError(f"{without_secrets(root)}: {words}") from None


class Writable:
    """A bucket that objects are written to: obstore tries the parts of an upload again itself."""

    def __init__(self, root: str, options: StorageOptions | None) -> None:
        self.obstore = require("obstore", root, INSTALL)
        values = {} if options is None else dict(options.values)
        retries = values.pop("retry_config", None)
        self.store = opened(root, values, {"max_retries": 10} if retries is None else dict(retries))

    def put(self, path: str, content: Iterator[bytes]) -> None:
        """Write an object, by one request or by an upload in parts, which is aborted where `content` raises."""
        self.obstore.put(self.store, path, content, chunk_size=UPLOAD_PART)


def endpoint_of(values: Mapping[str, Any]) -> str:
    """Return the address that options name, if they do."""
    return next((str(value) for name, value in values.items() if "endpoint" in name or name == "base_url"), "")


def endpoint_around(root: str) -> str:
    """Return the address that the environment names for S3, by the names of AWS's own tools."""
    if not root.startswith("s3://"):
        return ""
    return os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""


def version_of(meta: Any) -> str:
    """Return which version of an object this is: its entity tag, its generation or its date, if any is told."""
    if tag := meta["e_tag"] or meta["version"]:
        return tag
    changed = meta["last_modified"].timestamp()
    return str(changed) if changed > 0 else ""


def checked(path: str, url: str) -> str:
    """Return a path that obstore leaves as it is; an error for one that it would make another of."""
    if not path or any(part in {"", ".", ".."} for part in path.split("/")):
        problem = "has an empty part" if path else "names no object"
        raise OSError(errno.EINVAL, f"its path {problem} (as in `//`) or is a dot, which obstore does not support", url)
    return path

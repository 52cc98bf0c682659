"""ObjectStore: object stores and web servers through obstore, with retries and checks of our own."""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

from asyncdata.errors import DataLossError, PlanError
from asyncdata.redaction import redacted
from asyncdata.storage.base import BLOCK_BYTES, Entry, Runner, Stream
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.patterns import Pattern
from asyncdata.storage.read_ahead import LARGEST_PART, ObjectPart, ReadAhead
from asyncdata.storage.request_limit import Limit
from asyncdata.storage.retries import (
    KeyUnreadableError,
    NoLengthError,
    NoRangesError,
    NotSatisfiableError,
    RefusedError,
    Retries,
    ShortError,
    Tries,
    explained,
)
from asyncdata.storage.servers import check_endpoints, endpoint_of, identity_of, servers_of
from asyncdata.storage.store_options import check_names, unknown_name
from asyncdata.storage.without_ranges import RangesOrDownload, close
from asyncdata.system.optional_packages import require

if TYPE_CHECKING:
    from asyncdata.storage.without_length import ChunkedDownload

__all__ = ("ObjectStore", "Writable", "check_not_forked")

Item: TypeAlias = tuple[str, Entry]
"""The path of an object, and its entry."""

INSTALL: Final = "'asyncdata[remote]'"

STALL: Final = "30s"
"""How long a connection may be silent."""

TIMEOUT: Final = "7d"
"""How long an answer may take: obstore's default of 30 s covers the complete body, too little for a slow line."""

EXIT: Final = 0.02
"""Seconds that obstore's threads get at the interpreter's exit to leave Python: a thread that asks for the
interpreter's lock later aborts the process."""

PAGE: Final = 1000

HEADS: Final = 16
"""How many empty objects of a page are asked for at once."""

UPLOAD_PART: Final = 8 << 20
"""Bytes of a part of an upload."""

CHUNK: Final = 1 << 16
"""The smallest chunk, in bytes, of an answer that is streamed."""


class Process:
    """The process that has made requests: a process forked from it lacks obstore's threads."""

    used: int | None = None
    lock = threading.Lock()


def check_not_forked() -> None:
    """Note that this process makes requests; `RuntimeError` if it was forked from one that did."""
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


class PartProgress:
    """How far a part has been read, and the object's entry at that time."""

    __slots__ = ("cut", "data", "expected", "start", "stop")

    def __init__(self, start: int, stop: int, expected: Entry | None) -> None:
        self.start = start
        self.stop = stop
        self.expected = expected
        self.data = bytearray()
        self.cut = False
        """Whether an answer has broken off, so that the next one is streamed."""

    @property
    def at(self) -> int:
        """The next byte."""
        return self.start + len(self.data)

    def expect(self, entry: Entry, url: str) -> None:
        """Raise unless the object is still the same version."""
        if self.expected is not None and entry[1:] != self.expected[1:]:
            raise DataLossError(f"{url}: the object was replaced while it was read")
        self.expected = entry


class ObjectStore:
    """The objects of one bucket, or of one web server."""

    def __init__(self, root: str, options: StorageOptions, limit: Limit) -> None:
        self.root = root
        self.web = root.startswith("http")
        self.identity = identity_of(root, options.values)
        """A string that identifies the store."""
        self.limit = limit
        self.options = options
        values = dict(options.values)
        check_names(root, values)
        check_endpoints(root, values)
        self.retries = Retries.of(values.pop("retry_config", None))
        self.obstore = require("obstore", f"{root}", INSTALL)
        self.store = open_store(root, values)

    def __repr__(self) -> str:
        return f"ObjectStore({redacted(self.root)!r})"

    def url(self, path: str) -> str:
        if self.web:  # only for messages, as a web server cannot be listed
            return f"{redacted(self.root.partition('?')[0])}/{quote(path)}"
        return f"{self.root}/{path}"

    # blocking

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield the objects that match, sorted, listed page by page."""
        if self.web:
            raise PlanError(f"{self.root}: a web server cannot be listed; give the URLs themselves")
        matcher = Pattern(pattern)
        if matcher.plain:
            return (entry for _, entry in self.find(pattern)) if pattern > after else iter(())
        return self.matching(pattern, matcher, after)

    def matching(self, pattern: str, matcher: Pattern, after: str) -> Iterator[Entry]:
        """Yield the objects that match a pattern with wildcards.

        A page of a listing cannot be had if one of its keys cannot be parsed. Then the folders that the pattern names
        are listed one by one, so that such a key elsewhere does no harm.
        """
        try:
            for page in self.below(matcher.prefix, after):
                after = page[-1][0]
                yield from self.files([item for item in page if matcher.matches(item[0])])
        except KeyUnreadableError:
            for page in self.by_folder(pattern):
                yield from self.files([item for item in page if item[0] > after and matcher.matches(item[0])])

    def by_folder(self, pattern: str, folder: str = "") -> Iterator[list[Item]]:
        """Yield the objects in a folder that a pattern below it may match, sorted, in lists: more than match.

        Only the folders are listed that the pattern matches so far, one request or more for each.
        """
        part, _, rest = pattern.partition("/")
        begin = f"{folder}/" if folder else ""
        if part == "**":
            yield from self.below(begin, "")
        elif (matcher := Pattern(part)).plain:
            yield from self.by_folder(rest, begin + part) if rest else iter([[*self.find(begin + part)]])
        else:
            objects, folders = self.level(folder)
            if not rest:
                yield sorted(objects)
                return
            for inner in sorted(folders, key=lambda path: path + "/"):
                if matcher.matches(inner.removeprefix(begin)):
                    yield from self.by_folder(rest, inner)

    def files(self, found: Sequence[Item]) -> Iterator[Entry]:
        """Yield the entries of objects, without markers of folders.

        The key of a marker ends with a slash, which obstore drops: no object has the path that is left.
        """
        empty = [path for path, entry in found if not entry.size]
        missing = set[str]()
        if empty:
            with ThreadPoolExecutor(min(HEADS, len(empty))) as threads:
                found_ones = threads.map(self.exists, empty)
                missing.update(path for path, there in zip(empty, found_ones, strict=True) if not there)
        return (entry for path, entry in found if path not in missing)

    def exists(self, path: str) -> bool:
        """Return whether there is an object of this path; `True` if it may not be asked for."""
        try:
            self.head(path)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True
        return True

    def find(self, path: str) -> Iterator[Item]:
        """Yield an object if it is there."""
        try:
            yield path, self.head(path)
        except FileNotFoundError:
            return

    def below(self, prefix: str, after: str) -> Iterator[list[Item]]:
        """Yield all objects whose paths begin with a prefix, by page; a page that fails is requested again."""
        folder = prefix.rpartition("/")[0]
        last, tries = max(after, before(prefix)), Tries(self.retries)
        while True:
            check_not_forked()
            try:
                pages = self.obstore.list(self.store, folder or None, offset=last or None, chunk_size=PAGE)
                for page in pages:
                    if found := [self.item(meta) for meta in page if meta["path"].startswith(prefix)]:
                        yield found
                    last = page[-1]["path"] if page else last
                    tries = Tries(self.retries)
            except Exception as error:  # noqa: BLE001  obstore's errors have no other common base
                time.sleep(tries.pause(explained(error, self.url(prefix))))
            else:
                return

    def level(self, folder: str) -> tuple[list[Item], list[str]]:
        """Return the objects directly in a folder, and the paths of the folders in it."""
        found = self.tried(lambda: self.obstore.list_with_delimiter(self.store, folder or None), folder)
        return [self.item(meta) for meta in found["objects"]], list(found["common_prefixes"])

    def item(self, meta: Any) -> Item:
        """Return the path and the entry of an object that obstore describes."""
        return meta["path"], self.entry(meta["path"], meta)

    def head(self, path: str) -> Entry:
        """Return an object's size and version."""
        return self.entry(path, self.tried(lambda: self.obstore.head(self.store, checked(path, self.url(path))), path))

    def tried(self, request: Callable[[], Any], path: str) -> Any:
        """Return the answer to a request, which is made again after transient errors."""
        tries = Tries(self.retries)
        while True:
            check_not_forked()
            try:
                return request()
            except Exception as error:  # noqa: BLE001  obstore's errors have no other common base
                time.sleep(tries.pause(explained(error, self.url(path))))

    def entry(self, path: str, meta: Any) -> Entry:
        """Return the entry of an object that obstore describes."""
        return Entry(self.url(path), meta["size"], version_of(meta))

    # on an event loop

    def stream(
        self,
        path: str,
        block_bytes: int = BLOCK_BYTES,
        offset: int = 0,
        runner: Runner | None = None,
    ) -> Stream:
        """Return the object's bytes from `offset` on, in blocks; the next parts are requested ahead."""
        parts = ReadAhead(self, path, block_bytes, offset, runner)
        return RangesOrDownload(parts, partial(self.download, path), offset) if self.web else parts

    async def download(self, path: str) -> tuple[Entry, AsyncIterator[Any]]:
        """Request a complete object; return its entry, and its bytes as they arrive."""
        check_not_forked()
        try:
            result = await self.obstore.get_async(self.store, path)
            return self.entry(path, result.meta), aiter(result.stream(min_chunk_size=CHUNK))
        except Exception as error:  # noqa: BLE001
            cause = explained(error, self.url(path))
        if not isinstance(cause, NoLengthError):
            raise cause
        return Entry(self.url(path)), await self.chunked(path).begin()

    def chunked(self, path: str) -> ChunkedDownload:
        """Return a request for a file of a web server that does not say how long it is."""
        from asyncdata.storage.without_length import ChunkedDownload

        root, sign, query = self.root.partition("?")
        options: Mapping[str, Any] = self.options.values.get("client_options") or {}
        return ChunkedDownload(f"{root}/{quote(path)}{sign}{query}", options)

    async def now(self, path: str) -> Entry:
        """Return the entry of an object, by a request for one byte: some users may read objects but not query them."""
        try:
            return (await self.read_part(path, 0, 1)).entry
        except NoRangesError:
            entry, chunks = await self.download(path)
            close(chunks)
            return entry

    async def read(self, path: str, start: int = 0, length: int | None = None, expected: Entry | None = None) -> bytes:
        """Return the object, or `length` bytes from `start` on; a large one in parts, several at once."""
        stop = start + LARGEST_PART if length is None else start + length
        try:
            first = await self.read_part(path, start, min(stop, start + LARGEST_PART), expected)
        except NoRangesError:
            return (await self.read_in_one_request(path))[start : None if length is None else stop]
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
            tasks = [
                group.create_task(self.read_part(path, at, min(end, at + LARGEST_PART), first.entry)) for at in starts
            ]
        return b"".join([first.data, *[task.result().data for task in tasks]])

    async def read_in_one_request(self, path: str) -> bytes:
        """Return the object by one request, from a server without range requests."""
        try:
            async with self.limit.slot():
                return bytes(await (await self.obstore.get_async(self.store, path)).bytes_async())
        except Exception as error:  # noqa: BLE001
            cause = explained(error, self.url(path))
        if not isinstance(cause, NoLengthError):
            raise cause
        return await (await self.chunked(path).begin()).whole()

    async def read_part(self, path: str, start: int, stop: int, expected: Entry | None = None) -> ObjectPart:
        """Return the bytes from `start` to before `stop`, or to the object's end, of the version that is `expected`.

        After a transient failure the rest is requested again, from the byte that was reached.
        """
        checked(path, self.url(path))
        progress, tries = PartProgress(start, stop, expected), Tries(self.retries)
        while True:
            try:
                async with self.limit.slot():
                    part = await self.answer(path, progress)
                    self.limit.succeeded(len(part.data))
                    return part
            except Exception as error:  # noqa: BLE001
                cause = explained(error, self.url(path))
            if isinstance(cause, NotSatisfiableError):
                return ObjectPart(memoryview(b""), await self.head_async(path, start))
            if isinstance(cause, RefusedError):
                self.limit.refused()
            await asyncio.sleep(tries.pause(cause))

    async def answer(self, path: str, progress: PartProgress) -> ObjectPart:
        """Make one request for the missing bytes."""
        check_not_forked()
        url = self.url(path)
        again = bool(progress.data) or progress.cut
        try:
            options = {"range": (progress.at, progress.stop)}
            result = await self.obstore.get_async(self.store, path, options=options)
            entry = self.entry(path, result.meta)
            progress.expect(entry, url)
            if again:
                chunks = aiter(result.stream(min_chunk_size=CHUNK))
                while (chunk := await anext(chunks, None)) is not None:
                    progress.data += chunk
                data = memoryview(progress.data)
            else:
                data = memoryview(await result.bytes_async())
        except Exception:
            progress.cut = progress.cut or progress.expected is not None
            raise
        missing = min(progress.stop, entry.size) - progress.start - len(data)
        if missing > 0:
            progress.cut = True
            raise ShortError(f"{url}: the answer ended {missing} bytes early")
        return ObjectPart(data, entry)

    async def head_async(self, path: str, start: int) -> Entry:
        """Return the entry of an object that has no bytes from `start` on."""
        tries = Tries(self.retries)
        while True:
            check_not_forked()
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


def open_store(root: str, values: dict[str, Any], retries: Mapping[str, Any] | None = None) -> Any:
    """Return obstore's store, by default without its own retries, as we retry ourselves."""
    client = {"timeout": TIMEOUT, "read_timeout": STALL, **values.pop("client_options", {})}
    urls = (endpoint_of(values), *servers_of(root, values).values(), root)
    if any(url.startswith("http://") for url in urls):
        client.setdefault("allow_http", True)
    make = require("obstore.store", root, INSTALL).from_url
    try:
        return make(root, client_options=client, retry_config=retries or {"max_retries": 0}, **values)
    except Exception as error:  # noqa: BLE001
        if (wrong := unknown_name(root, error)) is not None:
            raise wrong from None
        words = redacted(str(error).partition("\n")[0])
        raise PlanError(f"{redacted(root)}: {words}") from None


class Writable:
    """A bucket that objects are written to: obstore itself retries the parts of an upload."""

    def __init__(self, root: str, options: StorageOptions | None) -> None:
        self.obstore = require("obstore", root, INSTALL)
        values = {} if options is None else dict(options.values)
        check_names(root, values)
        retries = values.pop("retry_config", None)
        self.store = open_store(root, values, {"max_retries": 10} if retries is None else dict(retries))

    def put(self, path: str, content: Iterator[bytes]) -> None:
        """Write an object, by one request or a multipart upload, which is aborted if `content` raises."""
        self.obstore.put(self.store, path, content, chunk_size=UPLOAD_PART)


def before(prefix: str) -> str:
    """Return a path after which all that begins with a prefix comes; empty if there is none that obstore can parse."""
    path = prefix[:-1].rstrip("/")
    return "" if any(part in {"", ".", ".."} or not part.isprintable() for part in path.split("/")) else path


def version_of(meta: Any) -> str:
    """Return the version of an object: its entity tag, its generation or its date, if the store reports one."""
    if tag := meta["e_tag"] or meta["version"]:
        return tag
    changed = meta["last_modified"].timestamp()
    return str(changed) if changed > 0 else ""


def checked(path: str, url: str) -> str:
    """Return a path that obstore uses as it is; raise for a path that it would change."""
    if not path or any(part in {"", ".", ".."} for part in path.split("/")):
        problem = "its path has an empty part (as in `//`) or a dot, which obstore does not support"
        raise OSError(errno.EINVAL, problem if path else "it names no object", redacted(url))
    return path

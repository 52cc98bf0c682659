"""Local files: bytes in the page cache are read at once on the event loop's thread, others in a reader thread.

Reasons and measurements: docs/design.md, "Files and formats".
"""

from __future__ import annotations

import asyncio
import errno
import glob
import io
import os
import re
import stat
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from threading import Lock
from typing import Any, Final, cast

from aiofiles.threadpool.binary import AsyncFileIO

from asyncdata.errors import DataLossError
from asyncdata.runtime.open_files import OpenFiles
from asyncdata.storage.base import BLOCK_BYTES, AnyPart, Entry, Runner, Status, Stream

__all__ = ("FileStream", "LocalStore", "RandomFile")

READ_AHEAD_BLOCKS: Final = 4
"""How many blocks ahead the kernel is asked to load."""

SPECIAL: Final = re.compile(r"\[([!^]?)([^/][^]/]*)]|\\([][*?\\])")
"""A character class, in which a backslash stands for itself; or a special character that a backslash escapes."""

ANY_DEPTH: Final = re.compile(
    r"(?:(?:^|(?<=[/\\]))\*\*(?:[/\\]|$))+" if os.sep == "\\" else r"(?:(?:^|(?<=/))\*\*(?:/+|$))+"
)
"""Parts of a pattern that match folders of any depth."""

NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""The flag to read from the page cache only; 0 where the system has none."""


LARGEST_QUICK: Final = 1 << 20
"""The largest file, in bytes, that is read in the caller's thread, as others may wait for that thread."""

SLOW: Final = 2e-3
"""Opening a file is slow from this many seconds on."""
AFTER_SLOW: Final = 256
"""How many files are left to threads after slow ones."""

WATCHED: Final = 8
"""Two of this many successive files must be slow for that."""


class LocalStore:
    """Local files."""

    def __init__(self) -> None:
        self.quick = QuickReads()

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield the files and folders that match, sorted; `**` descends into folders, and `*` matches no hidden files.

        A backslash escapes a special character, except where backslashes separate folders. `[^a]` is `[!a]`, any
        character but `a`. `**` follows links, except to a folder that it is in.
        """
        found = sorted(filter(is_path, matches(SPECIAL.sub(glob_syntax, pattern))))
        return map(Entry, [path for path in found if path > after] if after else found)

    def open(self, path: str) -> RandomFile:
        """Return the file, to read parts of it."""
        return RandomFile(path)

    def head(self, path: str) -> Entry:
        """Return the file's size; `IsADirectoryError` for a folder."""
        return Entry(path, path_status(path).st_size)

    def stream(
        self,
        path: str,
        block_bytes: int = BLOCK_BYTES,
        offset: int = 0,
        runner: Runner | None = None,
    ) -> FileStream:
        """Return the file's bytes from `offset` on, in blocks; blocking calls run in threads of `runner`, or in
        asyncio's executor.

        `DataLossError` if the file becomes shorter meanwhile.
        """
        if runner is None:
            return FileStream(path, block_bytes, offset, None, quick=self.quick)
        return FileStream(path, block_bytes, offset, runner.executor, open_files=runner.open_files, quick=self.quick)

    async def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the file, or `length` bytes from `start` on; `DataLossError` if it ends before.

        Bytes in the page cache are read at once, others in a thread.
        """
        data = self.quick.read(path, start, length)
        if data is None:
            data = await asyncio.to_thread(read_part, path, start, length)
        if length is not None and len(data) < length:
            raise DataLossError(f"{path}: asked for {length} bytes from byte {start} on, got {len(data)}")
        return data


class QuickReads:
    """Reads small files from the page cache in the caller's thread, as long as opening them is fast.

    Opening is slow where a file system must first read a directory or ask another machine. Then the next files are
    left to threads.
    """

    def __init__(self) -> None:
        self.others = 0
        """How many files are left to threads before the next try."""
        self.watched = 0
        """While this is positive, the next slow file causes others to be left to threads."""

    def read(self, path: str, start: int, length: int | None) -> bytes | None:
        """Return a file's content, or `None` if a thread should read it."""
        size = self.size_of(path)
        if size is None or (descriptor := self.open(path)) is None:
            return None
        wanted = size - start if length is None else length
        try:
            if not 0 < wanted <= LARGEST_QUICK:
                return None
            buffer = bytearray(wanted + (length is None))  # one byte more, as the file may be another one by now
            complete = os.preadv(descriptor, [buffer], start, NOWAIT) == wanted
            return bytes(memoryview(buffer)[:wanted]) if complete else None
        except OSError:  # it is not in the page cache, or the file system cannot say
            return None
        finally:
            os.close(descriptor)

    def size_of(self, path: str) -> int | None:
        """Return the size of a regular file; `None` for what may block when it is opened, or cannot be."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):  # the thread raises it again
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def open(self, path: str) -> int | None:
        """Return a descriptor of a regular file, or `None` if a thread should open it."""
        if not NOWAIT or self.others > 0:
            self.others -= 1
            return None
        begin = time.perf_counter()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):  # the thread raises it again
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # replaced since: a thread may wait for a pipe's writer
            os.close(descriptor)
            return None
        if time.perf_counter() - begin > SLOW:  # a single slow call may be due to another program
            self.others = AFTER_SLOW if self.watched > 0 else 0
            self.watched = WATCHED
        else:
            self.watched -= 1
        return descriptor


def read_part(path: str, start: int, length: int | None) -> bytes:
    with io.FileIO(path) as file:
        file.seek(start)
        return file.read() if length is None else file.read(length)


def matches(pattern: str) -> Iterator[str]:
    """Yield what `glob` gives, without what it would find again through links to folders above."""
    parts = ANY_DEPTH.split(pattern, 1)
    if len(parts) == 1:
        yield from glob.iglob(pattern)
        return
    before, below = parts
    for top in glob.iglob(before) if before else ("",):
        for folder in folders_in(top, frozenset()):
            if below:
                yield from matches(os.path.join(glob.escape(folder), below))
                continue
            if folder and (folder == top or pattern.endswith(os.sep)):
                yield os.path.join(folder, "")
            if not pattern.endswith(os.sep):
                yield from glob.iglob(os.path.join(glob.escape(folder), "*"))


def folders_in(folder: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Yield a folder and those in it, at any depth, but no hidden ones, and none that is `above` itself."""
    try:
        status = os.stat(folder or os.curdir)
        here = above | {(status.st_dev, status.st_ino)}
        if len(here) == len(above):
            return
        with os.scandir(folder or os.curdir) as entries:
            inner = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:  # it is no folder, or cannot be read
        return
    yield folder
    for name in inner:
        yield from folders_in(os.path.join(folder, name), here)


def is_path(found: str) -> bool:
    """Return whether something that `glob` gives is there: before Python 3.13 it gives `file/` for `file/**`."""
    return not found.endswith(os.sep) or os.path.isdir(found)


def glob_syntax(found: re.Match[str]) -> str:
    """Return a special part of a pattern in the syntax of the module `glob`."""
    negated, characters, escaped = found.groups()
    if characters:
        return f"[{'!' if negated else ''}{characters}]"
    return glob.escape(escaped) if os.sep != "\\" else found[0]


class FileStream(Stream):
    """Reads a file in blocks into one buffer, opening it at the first read; safe to close while a thread reads.

    What is not in the page cache is awaited: aiofiles calls `read` in a thread of `executor`, by default of the loop's.
    A `descriptor` of the file is closed with the stream. A regular file is opened by `quick` after `begin`, as long as
    that is fast, so that a small one in the page cache needs no thread. If more files are open than `open_files`
    allows, it is closed between two blocks, and opened again.
    """

    def __init__(
        self,
        path: str,
        block_bytes: int,
        offset: int,
        executor: Executor | None,
        descriptor: int = -1,
        open_files: OpenFiles | None = None,
        quick: QuickReads | None = None,
    ) -> None:
        self._path = path
        self._file: io.FileIO | None = None if descriptor < 0 else io.FileIO(descriptor)
        self._block_bytes = block_bytes
        self._offset = offset
        self._awaited: Any = cast("Any", AsyncFileIO)(self, None, executor)
        self._size = 0
        self._buffer = bytearray()
        self._cached_reads = hasattr(os, "RWF_NOWAIT")
        self._closing = False
        self._open_files = open_files
        self._quick = quick
        self._regular = False
        self._suspended: os.stat_result | None = None
        """What the file was like when it was closed between two blocks."""
        self._busy = Lock()  # held while a thread uses the file

    async def begin(self) -> Entry:
        """Return the file's entry; its size is -1 if it cannot be had, and the first read raises the reason."""
        try:
            status = path_status(self._path)
        except OSError:
            return Entry(self._path)
        self._regular = stat.S_ISREG(status.st_mode)
        return Entry(self._path, status.st_size)

    async def __anext__(self) -> memoryview:
        try:
            if self._open_files is not None:
                self._open_files.use(self)
            block = self._read_cached()
            if block is None:
                block = cast("memoryview", await self._awaited.read())
        except BaseException:
            self.close()
            raise
        if not block:
            self.close()
            raise StopAsyncIteration
        return block

    async def aclose(self) -> None:
        self.close()

    def peek(self, buffer: bytearray | memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on with bytes in the page cache; return how many there were."""
        return max(0, self._fill_cached(buffer, offset))

    def _fill_cached(self, buffer: bytearray | memoryview, offset: int) -> int:
        """Do what `peek` does; return -1 if a thread should read, 0 only at the end of the file."""
        if self._file is None or not self._cached_reads:
            return -1
        try:
            return os.preadv(self._file.fileno(), [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return -1
        except OSError:  # the file system does not support it; `read` raises any other error again
            self._cached_reads = False
            return -1

    def _read_cached(self) -> memoryview | None:
        """Return the next block, an empty one at the end of the file, or `None` if a thread should read it."""
        if self._file is None and self._regular and self._quick is not None and not self._closing:
            descriptor = self._quick.open(self._path)
            if descriptor is not None:
                self._file = io.FileIO(descriptor)
                self._open()
        size = self._fill_cached(self._buffer, self._offset) if self._buffer else -1
        return self._advanced(size) if size > 0 or (size == 0 and self._offset >= self._size) else None

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, fewer at the end or where they cannot be read; in the caller's thread."""
        if self._file is None:
            return b""
        try:
            return os.pread(self._file.fileno(), size, offset)
        except OSError:  # `read` raises it again
            return b""

    def seek(self, offset: int) -> None:
        """Read the next block at `offset`."""
        self._offset = offset

    def read(self) -> memoryview:
        """Return the next block, an empty one at the end of the file. May block; thread-safe."""
        with self._busy:
            block = memoryview(b"") if self._closing else self._read()
        if self._closing:
            self.close()  # a `close` during the read left this to us
        return block

    def close(self) -> None:
        """Close the file without waiting: if a thread is reading, it closes the file afterwards."""
        self._closing = True
        if self._open_files is not None:
            self._open_files.forget(self)
        if self._busy.acquire(blocking=False):
            try:
                if self._file is not None:
                    self._file.close()
            finally:
                self._busy.release()

    def suspend(self) -> bool:
        """Close the file until the next block is read, unless a thread is reading it; return whether it is closed."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            if self._file is not None:
                self._suspended = os.fstat(self._file.fileno())
                self._file.close()
                self._file = None
        finally:
            self._busy.release()
        return True

    def _check_same(self, before: os.stat_result, now: os.stat_result) -> None:
        """Raise if the file is another one than it was when it was closed between two blocks."""
        if any(getattr(before, name) != getattr(now, name) for name in ("st_dev", "st_ino", "st_size", "st_mtime_ns")):
            raise DataLossError(
                f"{self._path}: it was changed or replaced while it was being read. With more files open than half of "
                "`ulimit -n` they are closed and opened again: raise that limit, or read fewer files at once"
            )

    def _read(self) -> memoryview:
        file = self._file if self._file is not None and self._buffer else self._open()
        self._ask_ahead(file)
        file.seek(self._offset)
        size = file.readinto(self._buffer)
        if not size and self._offset < self._size:
            raise DataLossError(f"{self._path}: ends at byte {self._offset}, but had {self._size} bytes when opened")
        return self._advanced(size)

    def _open(self) -> io.FileIO:
        self._file = io.FileIO(self._path) if self._file is None else self._file
        status = os.fstat(self._file.fileno())
        if self._suspended is not None:
            self._check_same(self._suspended, status)
            self._suspended = None
        self._size = status.st_size
        rest = self._size - self._offset
        self._buffer = bytearray(min(self._block_bytes, rest) if rest > 0 else self._block_bytes)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return self._file

    def _ask_ahead(self, file: io.FileIO) -> None:
        """Ask the kernel to load the next blocks while this one is being used."""
        if hasattr(os, "posix_fadvise"):
            span = (1 + READ_AHEAD_BLOCKS) * self._block_bytes
            os.posix_fadvise(file.fileno(), self._offset, span, os.POSIX_FADV_WILLNEED)

    def _advanced(self, size: int) -> memoryview:
        self._offset += size
        return memoryview(self._buffer)[:size]


def path_status(path: str) -> os.stat_result:
    """Return the status of a file; `IsADirectoryError` for a folder, whose size says nothing."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return status


class RandomFile(AnyPart):
    """A local file for reads of parts."""

    def __init__(self, path: str | int) -> None:
        """Open a path; a descriptor is closed with the file."""
        self._file = io.FileIO(path)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def status(self) -> Status:
        status = os.fstat(self._file.fileno())
        return Status(status.st_size, status.st_mtime_ns)

    def read_at(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)

    def fill_at(self, offset: int, buffer: memoryview) -> int:
        done = 0
        self._file.seek(offset)
        while done < len(buffer) and (more := self._file.readinto(buffer[done:])):
            done += more
        return done

    def peek_at(self, offset: int, buffer: memoryview) -> int:
        """Do what `fill_at` does if all bytes are in the page cache; else ask the kernel to load them, and return 0."""
        if NOWAIT:
            try:
                if os.preadv(self._file.fileno(), [buffer], offset, NOWAIT) == len(buffer):
                    return len(buffer)
            except OSError:  # not in the page cache, or the file system cannot say
                pass
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file.fileno(), offset, len(buffer), os.POSIX_FADV_WILLNEED)
        return 0

"""CacheDir: a folder that keeps whole objects, of several processes, and never grows beyond its limit."""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Final, final

from asyncdata.errors import PlanError
from asyncdata.runtime import forks
from asyncdata.runtime.checksum import has_checksum, with_checksum
from asyncdata.runtime.crc32c import crc32c
from asyncdata.storage.base import Buffer, Entry
from asyncdata.storage.locks import module

__all__ = ("CacheDir", "Found", "Keeping")

FOLDER: Final = "asyncdata-objects"

OWN: Final = re.compile(r"([0-9a-f]{40})\.(data|json|partial)")
"""The names of what is written here: the object, what is noted about it, and an object that is being written."""

TAG: Final = b"Signature: 8a477f597d28d172789f06886806bc55\n# Objects that asyncdata keeps; they may be deleted.\n"
"""What tells programs that make backups to leave the folder out (https://bford.info/cachedir/)."""

UNIT: Final = 4096
"""File systems give room in units of so many bytes."""

FREE: Final = 10
"""Without a limit one part in so many of the file system stays free."""

MANY: Final = 1000
"""Of so many objects a twentieth more is removed than must be, since each time all of them are looked at."""

PIECE: Final = 4 << 20

ACCOUNT: Final = struct.Struct("<8sQ")
MAGIC: Final = b"ad-cache"

OPENING: Final = os.O_CLOEXEC if hasattr(os, "O_CLOEXEC") else 0

GUARD: Final = forks.lock()
"""Held with the folder's lock, which a forked child would inherit."""


@final
class CacheDir:
    """A folder of this machine that keeps objects of stores as whole files: `cache_dir=` of readers and `read_file`.

    `path` may be a folder that has other files, which are left alone. No more than `max_bytes` are used; without a
    limit all but a tenth of the file system. Those that were not read for longest are removed to make room. Any number
    of processes may share the folder; give all the same limit.

    >>> CacheDir("/scratch/objects", max_bytes=100 << 30)
    CacheDir('/scratch/objects', max_bytes=107374182400)
    """

    __slots__ = ("flock", "folder", "max_bytes", "path")

    def __init__(self, path: str | os.PathLike[str], max_bytes: int | None = None) -> None:
        try:
            self.path = os.fspath(path)
        except TypeError:
            raise PlanError(f"CacheDir(path=) is a folder of this machine, got {path!r:.80}") from None
        if not isinstance(self.path, str) or "://" in self.path:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"CacheDir(path=) is a folder of this machine, got {self.path!r:.80}")
        if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 0):
            raise PlanError(f"CacheDir(max_bytes=) is a number of bytes, or None, got {max_bytes!r}")
        self.max_bytes = max_bytes
        self.folder = Path(os.path.abspath(self.path), FOLDER)
        self.flock: Any = module("fcntl")
        if self.flock is None:
            raise PlanError("objects are kept only where the system has flock, which this one has not")

    def __repr__(self) -> str:
        return f"CacheDir({self.path!r}, max_bytes={self.max_bytes})"

    def __reduce__(self) -> tuple[Any, ...]:
        return CacheDir, (self.path, self.max_bytes)

    def place(self, key: str, kind: str) -> str:
        """Return where something of an object lies."""
        return os.path.join(self.folder, f"{key}.{kind}")

    # reading

    def find(self, key: str) -> Found | None:
        """Return an object that is kept, which nobody removes while it is open."""
        try:
            found = Found(os.open(self.place(key, "data"), os.O_RDONLY | OPENING))
        except FileNotFoundError:
            return None
        try:
            self.flock.flock(found.descriptor, self.flock.LOCK_SH | self.flock.LOCK_NB)
        except BlockingIOError:
            return None
        status = os.fstat(found.descriptor)
        if not status.st_nlink:
            return None
        with suppress(OSError):  # another user's
            os.utime(found.descriptor, ns=(time.time_ns(), status.st_mtime_ns))
        found.size, found.changed, found.number = status.st_size, status.st_mtime_ns, status.st_ino
        return found

    def metadata(self, key: str, found: Found) -> dict[str, Any] | None:
        """Return the metadata of an object that was found; `None` if they are of another object, or damaged."""
        try:
            metadata: dict[str, Any] = json.loads(Path(self.place(key, "json")).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        whole = type(metadata) is dict and has_checksum(metadata)
        return metadata if whole and (metadata["size"], metadata["changed"]) == (found.size, found.changed) else None

    def remove(self, key: str) -> None:
        """Remove an object that is damaged, or no longer the newest; who reads it reads on."""
        with self.account() as account:
            with suppress(FileNotFoundError):
                size = os.stat(self.place(key, "data")).st_size
                os.unlink(self.place(key, "data"))
                account.used -= room_of(size)
            Path(self.place(key, "json")).unlink(missing_ok=True)

    # room

    @contextmanager
    def account(self) -> Generator[Account]:
        """Have the folder's lock, and know how much of it is used."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with GUARD:
            descriptor = os.open(self.folder / "account", os.O_RDWR | os.O_CREAT | OPENING, 0o666)
            try:
                self.flock.flock(descriptor, self.flock.LOCK_EX)
                account = Account(descriptor)
                if account.used < 0:
                    (self.folder / "CACHEDIR.TAG").write_bytes(TAG)
                    account.used = self.emptied(None)
                try:
                    yield account
                finally:
                    account.write()
            finally:
                os.close(descriptor)

    def limit(self, used: int) -> int:
        """Return how many bytes may be used."""
        if self.max_bytes is not None:
            return self.max_bytes - 2 * UNIT  # for the account and the tag
        status = os.statvfs(self.folder)
        return used + status.f_frsize * (status.f_bavail - status.f_blocks // FREE)

    def holds(self, key: str, entry: Entry) -> bool:
        """Return whether an object is kept in this version."""
        found = self.find(key)
        metadata = None if found is None else self.metadata(key, found)
        return metadata is not None and (metadata["size"], metadata["version"]) == (entry.size, entry.version)

    def reserve(self, key: str, entry: Entry) -> int:
        """Return a descriptor of a file that has room for an object, and is this process's alone.

        `BlockingIOError` if somebody has begun it already, or written it since it was looked for; another `OSError` if
        there is no room.
        """
        size = entry.size
        path, needed = self.place(key, "partial"), room_of(size)
        if self.max_bytes is not None and needed > self.limit(0):
            raise OSError(errno.ENOSPC, f"{self!r} is too small for {size} bytes", path)
        with self.account() as account:
            if self.holds(key, entry):
                raise BlockingIOError(errno.EAGAIN, "another process has written it", path)
            with suppress(FileNotFoundError):
                left = os.stat(path).st_size
                if not self.removed(path):
                    raise BlockingIOError(errno.EAGAIN, "another process is writing it", path)
                account.used -= room_of(left)  # by one that was killed
            limit = self.limit(account.used)
            if account.used + needed > limit and needed <= limit:
                account.used = self.emptied(limit - needed)
            if account.used + needed > limit:
                raise OSError(errno.ENOSPC, f"{self!r} has no room for {size} bytes", path)
            account.used += needed
            account.write()  # before the file is there: what is killed in between leaves too large a number
            try:
                return self.created(path, size)
            except OSError:
                account.used -= needed
                raise

    def created(self, path: str, size: int) -> int:
        """Return the descriptor of a new file that is this process's alone and has room for so many bytes."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPENING, 0o666)
        try:
            self.flock.flock(descriptor, self.flock.LOCK_EX | self.flock.LOCK_NB)
            if size:
                os.posix_fallocate(descriptor, 0, size)
        except BaseException:
            os.unlink(path)
            os.close(descriptor)
            raise
        return descriptor

    def emptied(self, most: int | None) -> int:
        """Remove what was not read for longest until no more than `most` bytes are used; return how many are.

        What processes left that were killed goes first, and nothing that is being read or written.
        """
        kept = sorted(self.looked_through())
        used = sum(size for _, _, size in kept)
        if most is None or used <= most:
            return used
        goal = most - most // 20 if len(kept) > MANY else most
        for since, path, size in kept:
            if used <= goal:
                break
            if since >= 0 and self.removed(path):
                used -= size
                Path(path).with_suffix(".json").unlink(missing_ok=True)
        return used

    def looked_through(self) -> Iterator[tuple[int, str, int]]:
        """Yield since when each object was not read, its path and its room; -1 for one that is being written.

        Remove what nobody writes any more, and what is noted about objects that are not there.
        """
        removable: list[Path] = []
        with os.scandir(self.folder) as files:
            for file in files:
                own = OWN.fullmatch(file.name)
                if own is None or not file.is_file(follow_symlinks=False):
                    continue
                if own[2] == "json":
                    removable.append(Path(file.path))
                elif own[2] == "data" or not self.removed(file.path):
                    status = file.stat(follow_symlinks=False)
                    yield status.st_atime_ns if own[2] == "data" else -1, file.path, room_of(status.st_size)
        for path in removable:
            if not path.with_suffix(".data").exists() and not path.with_suffix(".partial").exists():
                path.unlink(missing_ok=True)

    def removed(self, path: str) -> bool:
        """Remove a file unless somebody has it open; return whether it is gone."""
        try:
            descriptor = os.open(path, os.O_RDONLY | OPENING)
        except FileNotFoundError:
            return True
        try:
            self.flock.flock(descriptor, self.flock.LOCK_EX | self.flock.LOCK_NB)
            os.unlink(path)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait(self, key: str) -> None:
        """Wait until nobody writes an object any more."""
        with suppress(FileNotFoundError):
            descriptor = os.open(self.place(key, "partial"), os.O_RDONLY | OPENING)
            try:
                self.flock.flock(descriptor, self.flock.LOCK_SH)
            finally:
                os.close(descriptor)
            with self.account():  # what is complete has its own name only then
                pass


class Account:
    """How many bytes of a folder are used, as its file tells; -1 if that does not tell."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        content = os.pread(descriptor, ACCOUNT.size, 0)
        magic, used = ACCOUNT.unpack(content) if len(content) == ACCOUNT.size else (b"", 0)
        self.used: int = used if magic == MAGIC else -1

    def write(self) -> None:
        """Write it down."""
        os.pwrite(self.descriptor, ACCOUNT.pack(MAGIC, max(0, self.used)), 0)


class Found:
    """An object that is kept and open, until its descriptor is closed or taken."""

    __slots__ = ("changed", "descriptor", "number", "size")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = self.changed = self.number = 0

    def take(self) -> int:
        """Return the descriptor, which is somebody else's from now on."""
        descriptor, self.descriptor = self.descriptor, -1
        return descriptor

    def checksum(self) -> int:
        """Return the CRC32C of the object."""
        crc = 0
        for offset in range(0, self.size, PIECE):
            crc = crc32c(os.pread(self.descriptor, PIECE, offset), crc)
        return crc

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class Keeping:
    """An object that is being written: it is there for others when it is complete. Any thread may use it."""

    def __init__(self, cache: CacheDir, key: str, entry: Entry) -> None:
        self.cache = cache
        self.key = key
        self.entry = entry
        self.descriptor = -1
        self.crc = self.size = self.number = 0
        self.busy = self.ended = self.kept = False
        """Whether somebody else has begun it; whether it is over; whether it is there now."""
        self.lock = Lock()
        forks.register(self)

    def disown(self) -> None:
        """Let go of the file in a forked child."""
        self.close()
        self.lock = Lock()
        self.ended = True

    def begin(self) -> bool:
        """Find room for it; return whether there is some."""
        with self.lock:
            if not self.ended and self.entry.size >= 0:
                try:
                    self.descriptor = self.cache.reserve(self.key, self.entry)
                except BlockingIOError:
                    self.busy = True
                except OSError:  # there is no room, or the folder cannot be written to
                    pass
            if self.descriptor < 0:
                self.ended = True
        return not self.ended or self.settled()

    def write(self, data: Buffer) -> None:
        """Append bytes; where the disk is full after all it is not kept."""
        with self.lock:
            if self.ended:
                return
            try:
                view = memoryview(data)
                while view:
                    done = os.pwrite(self.descriptor, view, self.size)
                    self.crc = crc32c(view[:done], self.crc)
                    self.size += done
                    view = view[done:]
            except OSError:
                self.drop()
        self.settled()

    def finish(self) -> None:
        """Give it its name, if all of it is there."""
        with self.lock:
            if self.ended:
                return
            try:
                if self.size == self.entry.size:
                    self.publish()
                self.drop()
            except OSError:
                self.drop()

    def publish(self) -> None:
        """Write what is noted about it, and then give it its name."""
        changed, self.number = changed_of(self.entry), os.fstat(self.descriptor).st_ino
        os.utime(self.descriptor, ns=(time.time_ns(), changed))
        url, size, version = self.entry
        metadata = {"url": url, "size": size, "version": version, "changed": changed, "crc32c": self.crc}
        with self.cache.account() as account:
            with suppress(FileNotFoundError):
                account.used -= room_of(os.stat(self.cache.place(self.key, "data")).st_size)
            Path(self.cache.place(self.key, "json")).write_text(json.dumps(with_checksum(metadata)))
            self.cache.flock.flock(self.descriptor, self.cache.flock.LOCK_SH)  # others may read it once it has its name
            os.replace(self.cache.place(self.key, "partial"), self.cache.place(self.key, "data"))
        self.kept = True

    def abort(self) -> None:
        """Leave nothing of it, without waiting: a thread that is at it does so afterwards."""
        self.ended = True
        self.settled()

    def settled(self) -> bool:
        """Drop it if it is over and nobody is at it; return whether that was so."""
        if self.ended and self.lock.acquire(blocking=False):
            try:
                self.drop()
            finally:
                self.lock.release()
        return False

    def drop(self) -> None:
        """Let go of the file; remove what is not whole."""
        self.ended = True
        if self.descriptor < 0:
            return
        if not self.kept:
            with self.cache.account() as account:
                os.unlink(self.cache.place(self.key, "partial"))
                account.used -= room_of(self.entry.size)
        self.close()

    def close(self) -> None:
        """Close the descriptor, and with it let go of the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


def room_of(size: int) -> int:
    """Return how many bytes an object takes, with what is noted about it."""
    return UNIT * (2 + (size - 1) // UNIT)


def changed_of(entry: Entry) -> int:
    """Return the time of change that a version of an object gets here, in nanoseconds: the same wherever it is kept."""
    number = int.from_bytes(blake2b(f"{entry.size} {entry.version}".encode(), digest_size=8).digest(), "little")
    return (number >> 34) * 10**9 + (number & ((1 << 34) - 1)) % 10**9

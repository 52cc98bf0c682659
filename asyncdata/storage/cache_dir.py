"""CacheDir: a local folder of complete objects, which processes may share and which never grows beyond its limit."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import struct
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Final, final

from asyncdata.errors import PlanError
from asyncdata.redaction import redacted
from asyncdata.runtime.json_text import parse_json
from asyncdata.storage.atomic_write import write_atomically
from asyncdata.storage.base import Buffer, Entry
from asyncdata.storage.locks import module
from asyncdata.storage.regular_file import open_regular, read_regular
from asyncdata.system import forks
from asyncdata.system.checksum import has_checksum, with_checksum
from asyncdata.system.crc32c import crc32c

__all__ = ("CacheDir", "CacheWriter", "CachedFile")

FOLDER: Final = "asyncdata-objects"
LISTINGS: Final = "asyncdata-listings"

OWN: Final = re.compile(r"([0-9a-f]{40})\.(data|json|partial)")
"""The names of files: an object, its metadata, and an object that is being written."""

TAG: Final = b"Signature: 8a477f597d28d172789f06886806bc55\n# Objects that asyncdata has cached; they may be deleted.\n"
"""The content of a file that excludes the folder from backups (https://bford.info/cachedir/)."""

UNIT: Final = 4096
"""File systems allocate space in units of this many bytes."""

FREE: Final = 10
"""Without a limit, this fraction (1 / FREE) of the file system stays free."""

MANY: Final = 1000
"""With more objects than this, eviction frees a twentieth more than needed, as each eviction scans all of them."""

PIECE: Final = 4 << 20

ACCOUNT: Final = struct.Struct("<8sQ")
MAGIC: Final = b"ad-cache"

OPENING: Final = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
"""Links are not followed, and a pipe does not block: others may write to a folder that is shared."""

REPORTED: Final[set[str]] = set()
"""The folders of which this process has said that they have no space."""

log = logging.getLogger("asyncdata")

GUARD: Final = forks.lock()
"""Held together with the folder's lock, which a forked child would inherit."""


@final
class CacheDir:
    """A local folder that caches complete objects of stores as files: `cache_dir=` of readers and `read_file`.

    `path` may be a folder that has other files, which are not touched. The cache uses at most `max_bytes`; without a
    limit, all but a tenth of the file system. The least recently read objects are evicted first. Any number of
    processes may share the folder; give all of them the same limit.

    >>> CacheDir("/scratch/objects", max_bytes=100 << 30)
    CacheDir('/scratch/objects', max_bytes=107374182400)
    """

    __slots__ = ("flock", "folder", "max_bytes", "path")

    def __init__(self, path: str | os.PathLike[str], max_bytes: int | None = None) -> None:
        try:
            self.path = os.fspath(path)
        except TypeError:
            raise PlanError(f"CacheDir(path=) must be a local folder, got {path!r:.80}") from None
        if not isinstance(self.path, str) or "://" in self.path:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"CacheDir(path=) must be a local folder, got {self.path!r:.80}")
        if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 0):
            raise PlanError(f"CacheDir(max_bytes=) must be a number of bytes, or None, got {max_bytes!r}")
        self.max_bytes = max_bytes
        self.folder = Path(os.path.abspath(self.path), FOLDER)
        self.flock: Any = module("fcntl")
        if self.flock is None:
            raise PlanError("cache_dir= needs a system with flock, which this one does not have")

    def __repr__(self) -> str:
        return f"CacheDir({self.path!r}, max_bytes={self.max_bytes})"

    def __reduce__(self) -> tuple[Any, ...]:
        return CacheDir, (self.path, self.max_bytes)

    def path_of(self, key: str, kind: str) -> str:
        """Return the path of a file of an object."""
        return os.path.join(self.folder, f"{key}.{kind}")

    # reading

    def find(self, key: str) -> CachedFile | None:
        """Return an object that is cached, which no process evicts while it is open."""
        try:
            found = CachedFile(os.open(self.path_of(key, "data"), os.O_RDONLY | OPENING))
        except OSError:  # there is none, or it may not be read, or it is a link
            return None
        try:
            self.flock.flock(found.descriptor, self.flock.LOCK_SH | self.flock.LOCK_NB)
        except BlockingIOError:
            return None
        status = os.fstat(found.descriptor)
        if not status.st_nlink or not stat.S_ISREG(status.st_mode):
            return None
        with suppress(OSError):  # another user's
            os.utime(found.descriptor, ns=(time.time_ns(), status.st_mtime_ns))
        found.size, found.changed, found.number = status.st_size, status.st_mtime_ns, status.st_ino
        return found

    def metadata(self, key: str, found: CachedFile) -> dict[str, Any] | None:
        """Return the metadata of an object that was found; `None` if they belong to another version, or are damaged."""
        try:
            metadata: dict[str, Any] = parse_json(read_regular(self.path_of(key, "json")))
        except (OSError, ValueError):
            return None
        intact = type(metadata) is dict and has_checksum(metadata)
        return metadata if intact and (metadata["size"], metadata["changed"]) == (found.size, found.changed) else None

    def remove(self, key: str) -> None:
        """Remove an object that is damaged or outdated; readers that have it open can continue.

        `OSError` if it is another user's.
        """
        with self.account() as account:
            with suppress(FileNotFoundError):
                size = os.lstat(self.path_of(key, "data")).st_size
                os.unlink(self.path_of(key, "data"))
                account.used -= disk_bytes(size)
            Path(self.path_of(key, "json")).unlink(missing_ok=True)

    # listings

    def listing(self, key: str) -> list[Entry] | None:
        """Return the objects of a listing that was kept; `None` if there is none, or it is damaged."""
        try:
            kept: dict[str, Any] = parse_json(read_regular(self.path_of_listing(key)))
            return [Entry(*entry) for entry in kept["entries"]] if has_checksum(kept) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep_listing(self, key: str, entries: Sequence[Entry]) -> None:
        """Keep a listing, unless its URLs have passwords."""
        if any(redacted(entry.path) != entry.path for entry in entries[:1]):
            return
        path = self.path_of_listing(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(with_checksum({"entries": entries})).encode(), durable=False)
        except OSError as error:
            self.report(str(path), error)

    def path_of_listing(self, key: str) -> Path:
        """Return the file of a listing, beside the folder whose size has a limit."""
        return Path(self.folder).with_name(LISTINGS) / f"{key}.json"

    # space

    @contextmanager
    def account(self) -> Generator[Account]:
        """Hold the folder's lock, and yield how many bytes are used."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with GUARD:
            descriptor = open_regular(self.folder / "account", os.O_RDWR | os.O_CREAT)
            try:
                self.flock.flock(descriptor, self.flock.LOCK_EX)
                account = Account(descriptor)
                if account.used < 0:
                    write_atomically(self.folder / "CACHEDIR.TAG", TAG, durable=False)
                    account.used = self.evict(None)
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
        """Return whether an object is cached in this version."""
        found = self.find(key)
        metadata = None if found is None else self.metadata(key, found)
        return metadata is not None and (metadata["size"], metadata["version"]) == (entry.size, entry.version)

    def reserve(self, key: str, entry: Entry) -> int:
        """Return a descriptor of a new file with space for an object, which only this process writes.

        `BlockingIOError` if another process writes it, or has written it since the caller looked for it; another
        `OSError` if there is no space.
        """
        size = entry.size
        path, needed = self.path_of(key, "partial"), disk_bytes(size)
        if self.max_bytes is not None and needed > self.limit(0):
            raise OSError(errno.ENOSPC, f"{self!r} is too small for {size} bytes", path)
        with self.account() as account:
            if self.holds(key, entry):
                raise BlockingIOError(errno.EAGAIN, "another process has written it", path)
            with suppress(FileNotFoundError):
                left = os.stat(path).st_size
                if not self.remove_unused(path):
                    raise BlockingIOError(errno.EAGAIN, "another process is writing it", path)
                account.used -= disk_bytes(left)  # it was left by a process that was killed
            limit = self.limit(account.used)
            if account.used + needed > limit and needed <= limit:
                account.used = self.evict(limit - needed)
            if account.used + needed > limit:
                raise OSError(errno.ENOSPC, f"{self!r} has no space for {size} bytes", path)
            account.used += needed
            account.write()  # before the file exists: a process killed in between leaves a number that is too large
            try:
                return self.created(path, size)
            except OSError:
                account.used -= needed
                raise

    def report(self, url: str, error: OSError) -> None:
        """Log, once for a folder in each process, that an object is read without being cached."""
        if self.path not in REPORTED:
            REPORTED.add(self.path)
            is_reserve = self.max_bytes is None and error.errno == errno.ENOSPC
            advice = "; a tenth of the file system stays free, or give max_bytes" if is_reserve else ""
            log.warning("%s is read without being cached, as others may be: %s%s", redacted(url), error, advice)

    def warn_unanswered(self, error: Exception, warned: set[str]) -> None:
        """Log, unless `warned` has the folder, that what it has is read without a comparison with the store."""
        if self.path not in warned:
            warned.add(self.path)
            log.warning("%s; what %s has is read as it is, as no server says whether it is outdated", error, self.path)

    def created(self, path: str, size: int) -> int:
        """Return the descriptor of a new file of `size` bytes, locked by this process."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPENING, 0o666)
        try:
            self.flock.flock(descriptor, self.flock.LOCK_EX | self.flock.LOCK_NB)
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size)
            else:  # macOS has no such call: a full disk is seen later, while the object is written
                os.ftruncate(descriptor, size)
        except BaseException:
            os.unlink(path)
            os.close(descriptor)
            raise
        return descriptor

    def evict(self, most: int | None) -> int:
        """Remove the least recently read objects until at most `most` bytes are used; return how many are.

        Files that killed processes left are removed first. Files that are being read or written are not removed.
        """
        cached = sorted(self.scan())
        used = sum(size for _, _, size in cached)
        if most is None or used <= most:
            return used
        goal = most - most // 20 if len(cached) > MANY else most
        for since, path, size in cached:
            if used <= goal:
                break
            if since >= 0 and self.remove_unused(path):
                used -= size
                Path(path).with_suffix(".json").unlink(missing_ok=True)
        return used

    def scan(self) -> Iterator[tuple[int, str, int]]:
        """Yield for each object when it was last read (-1 if it is being written), its path and its bytes on disk.

        Remove partial files that no process writes, and metadata of objects that do not exist.
        """
        removable: list[Path] = []
        with os.scandir(self.folder) as files:
            for file in files:
                own = OWN.fullmatch(file.name)
                if own is None or not file.is_file(follow_symlinks=False):
                    continue
                if own[2] == "json":
                    removable.append(Path(file.path))
                elif own[2] == "data" or not self.remove_unused(file.path):
                    status = file.stat(follow_symlinks=False)
                    yield status.st_atime_ns if own[2] == "data" else -1, file.path, disk_bytes(status.st_size)
        for path in removable:
            if not path.with_suffix(".data").exists() and not path.with_suffix(".partial").exists():
                path.unlink(missing_ok=True)

    def remove_unused(self, path: str) -> bool:
        """Remove a file unless a process has locked it; return whether it is gone."""
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
        """Wait until no process writes an object."""
        with suppress(FileNotFoundError):
            descriptor = os.open(self.path_of(key, "partial"), os.O_RDONLY | OPENING)
            try:
                self.flock.flock(descriptor, self.flock.LOCK_SH)
            finally:
                os.close(descriptor)
            with self.account():  # a complete object is renamed under this lock
                pass


class Account:
    """How many bytes of a folder are used, read from its account file; -1 if that file is missing or damaged."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        content = os.pread(descriptor, ACCOUNT.size, 0)
        magic, used = ACCOUNT.unpack(content) if len(content) == ACCOUNT.size else (b"", 0)
        self.used: int = used if magic == MAGIC else -1

    def write(self) -> None:
        """Store the number in the file."""
        os.pwrite(self.descriptor, ACCOUNT.pack(MAGIC, max(0, self.used)), 0)


class CachedFile:
    """A cached object that is open, until its descriptor is closed or taken."""

    __slots__ = ("changed", "descriptor", "number", "size")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = self.changed = self.number = 0

    def take(self) -> int:
        """Return the descriptor; the caller closes it."""
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


class CacheWriter:
    """Writes an object to the cache. Readers find it once it is complete. Thread-safe."""

    def __init__(self, cache: CacheDir, key: str, entry: Entry) -> None:
        self.cache = cache
        self.key = key
        self.entry = entry
        self.descriptor = -1
        self.crc = self.size = self.number = 0
        self.busy = self.ended = self.published = False
        """Whether another process writes it; whether writing has ended; whether the object is in the cache."""
        self.lock = Lock()
        forks.register(self)

    def disown(self) -> None:
        """Close the file in a forked child."""
        self.close()
        self.lock = Lock()
        self.ended = True

    def begin(self) -> bool:
        """Reserve space for the object; return whether there is enough."""
        with self.lock:
            if not self.ended and self.entry.size >= 0:
                try:
                    self.descriptor = self.cache.reserve(self.key, self.entry)
                except BlockingIOError:
                    self.busy = True
                except OSError as error:  # there is no space, or the folder cannot be written to
                    self.cache.report(self.entry.path, error)
            if self.descriptor < 0:
                self.ended = True
        return not self.ended or self.drop_if_idle()

    def write(self, data: Buffer) -> None:
        """Append bytes; if the disk is full the object is not cached."""
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
        self.drop_if_idle()

    def finish(self) -> None:
        """Publish the object if it is complete."""
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
        """Write the metadata, and then rename the object to its final name."""
        changed, self.number = version_mtime(self.entry), os.fstat(self.descriptor).st_ino
        os.utime(self.descriptor, ns=(time.time_ns(), changed))
        url, size, version = self.entry
        metadata = {"url": url, "size": size, "version": version, "changed": changed, "crc32c": self.crc}
        with self.cache.account() as account:
            with suppress(FileNotFoundError):
                account.used -= disk_bytes(os.stat(self.cache.path_of(self.key, "data")).st_size)
            content = json.dumps(with_checksum(metadata)).encode()
            write_atomically(self.cache.path_of(self.key, "json"), content, durable=False)
            self.cache.flock.flock(self.descriptor, self.cache.flock.LOCK_SH)  # readers may open it once it is renamed
            os.replace(self.cache.path_of(self.key, "partial"), self.cache.path_of(self.key, "data"))
        self.published = True

    def abort(self) -> None:
        """End writing without waiting, and remove the file; a thread that is writing removes it afterwards."""
        self.ended = True
        self.drop_if_idle()

    def drop_if_idle(self) -> bool:
        """Drop the file if writing has ended and no thread holds the lock; return False."""
        if self.ended and self.lock.acquire(blocking=False):
            try:
                self.drop()
            finally:
                self.lock.release()
        return False

    def drop(self) -> None:
        """Close the file; remove it if it is incomplete."""
        self.ended = True
        if self.descriptor < 0:
            return
        if not self.published:
            with self.cache.account() as account:
                os.unlink(self.cache.path_of(self.key, "partial"))
                account.used -= disk_bytes(self.entry.size)
        self.close()

    def close(self) -> None:
        """Close the descriptor, which releases its lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


def disk_bytes(size: int) -> int:
    """Return how many bytes an object of this size takes on disk, with its metadata."""
    return UNIT * (2 + (size - 1) // UNIT)


def version_mtime(entry: Entry) -> int:
    """Return the modification time, in nanoseconds, that represents a version of an object in every cache folder."""
    number = int.from_bytes(blake2b(f"{entry.size} {entry.version}".encode(), digest_size=8).digest(), "little")
    return (number >> 34) * 10**9 + (number & ((1 << 34) - 1)) % 10**9

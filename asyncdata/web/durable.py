"""DurableChannel: items are on the disk before they are acknowledged, and a pipeline reads them from there."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from asyncdata.errors import ChannelFull, ClosedError, MissingDependencyError, PlanError
from asyncdata.graph.node import check_count
from asyncdata.runtime.queue import ThreadSignal
from asyncdata.storage import FileLock, open_regular
from asyncdata.system import forks
from asyncdata.system.closing import Closable
from asyncdata.system.signal_handlers import start_thread
from asyncdata.web.channel import check_admission, check_version, version_of
from asyncdata.web.decoding import BodyDecoder, BodyError, format_of
from asyncdata.web.folder import TOO_MANY, ChannelFolder, offsets_in, write_offset
from asyncdata.web.idempotency import check_same_body, digest_of_body, digest_of_key
from asyncdata.web.lag import Admission, Admitting, LagLimit
from asyncdata.web.producers import Producers
from asyncdata.web.record import Kind, Record, framed, keys_record
from asyncdata.web.recovery import Recovered, recover

__all__ = ("DurableChannel", "send_checked", "trim")

GROUP_BYTES: Final = 8 << 20
"""The most bytes that are written at once, unless they are one record."""

WAITING_BYTES: Final = 64 << 20
"""The most bytes that may wait for the disk."""

KNOWN_KEYS: Final = 1 << 16
KEY_SHARE: Final = 256
"""One key is remembered for so many bytes of the channel, so that keys take no more than a tenth of it."""

FULL: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "the disk is full"),
    **dict.fromkeys(TOO_MANY, "too many files are open"),
}
"""The errors after which the same records may be stored later."""

MOST_WORKERS: Final = 1024

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[bool]"]


class OpenElsewhereError(PlanError):
    """The channel is already open to send."""


@dataclass(eq=False)
class Pending:
    """A record that is not on the disk yet, and the calls that wait for that; the first of these sent it."""

    frame: bytes
    digest: bytes | None = None
    """Of the key, if there is one."""
    body_digest: bytes = b""
    admission: Admission | None = None
    version: int | None = None
    end: int = 0
    """The offset behind it in the log, when it is on the disk."""
    waiters: list[Waiter] = field(default_factory=list[Waiter])


@final
class DurableChannel(Closable):
    """A channel in a folder: no acknowledged item is lost when the process is killed.

    `Dataset.from_channel(path)` reads it, in this process or another one, and resumes from a state exactly where the
    trainer was. Once the trainer has saved a state, `trim(state)` removes what that state does not need. The channel
    holds at most `max_bytes`, in segments of `segment_bytes`. One process at a time may have it open to send; any
    process may read. With `max_lag`, `admit` lets producers begin to work only while at most `max_lag` bodies can be
    read before theirs is, as `Channel.admit` does; readers may be in other processes.

    >>> import asyncio, tempfile
    >>> import asyncdata as ad
    >>> path = tempfile.mkdtemp()
    >>> async def serve():
    ...     async with ad.DurableChannel(path) as channel:
    ...         await channel.send(b"one", key="a")
    ...         return await channel.send(b"one", key="a")
    >>> asyncio.run(serve())  # the second one was there already
    False
    >>> list(ad.Dataset.from_channel(path, follow=False))
    [b'one']
    >>> channel = ad.DurableChannel(path)
    >>> channel.path == path, channel.closed
    (True, False)
    >>> channel.close()
    >>> channel.closed
    True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_bytes: int = 1 << 30,
        segment_bytes: int = 64 << 20,
        max_lag: int | None = None,
    ) -> None:
        self._folder = ChannelFolder(path)
        self._max_bytes = check_count("DurableChannel", "max_bytes", max_bytes, 1)
        self._segment_bytes = check_count("DurableChannel", "segment_bytes", segment_bytes, 1)
        lag = None if max_lag is None else check_count("DurableChannel", "max_lag", max_lag, 0)
        self._folder.create()
        lock = FileLock.take(self._folder.path / "writer")
        if lock is None:
            raise OpenElsewhereError(
                f"{self._folder.path} is open to send already, here or in another process, and may be open only once; "
                "workers of a server need a folder each: DurableChannel.for_worker(path)"
            )
        self._lock = lock
        most_keys = min(KNOWN_KEYS, self._max_bytes // KEY_SHARE)
        try:
            found = recover(self._folder, most_keys)
            self._log = LogWriter(self._folder, found, self._segment_bytes, most_keys)
            self._producers = Producers(self._folder, lag)
        except BaseException:
            lock.release()
            raise
        self._guard = forks.lock()
        self._pending: list[Pending] = []
        self._in_flight: dict[bytes, Pending] = {}
        self._waiting_bytes = 0
        self._oldest = (self._folder.segments() or [0])[0]
        self._closed = "it was ended" if found.ended else ""
        self._full = False
        """Whether a call was refused for lack of space since the last segment was begun."""
        self._inherited = False
        self._signal = ThreadSignal()
        forks.register(self)
        self._thread = threading.Thread(target=self._run, name="asyncdata-channel", daemon=True)
        start_thread(self._thread)

    @classmethod
    def for_worker(
        cls, path: str | os.PathLike[str], max_bytes: int = 1 << 30, segment_bytes: int = 64 << 20
    ) -> DurableChannel:
        """Open the first of the folders `0`, `1`, ... below `path` that is not open to send.

        So each worker process of a server has a channel of its own, and a worker that replaces another one continues
        with its channel. A key is known only to the worker that stored it.
        """
        for number in range(MOST_WORKERS):
            try:
                return cls(os.path.join(path, str(number)), max_bytes, segment_bytes)
            except OpenElsewhereError:
                continue
        raise PlanError(f"{MOST_WORKERS} channels below {os.fspath(path)} are open to send already")

    @property
    def path(self) -> str:
        """The folder."""
        return str(self._folder.path)

    @property
    def closed(self) -> bool:
        """Whether it accepts nothing more."""
        return bool(self._closed)

    async def send(
        self,
        body: bytes,
        key: str | None = None,
        *,
        version: int | None = None,
        content_type: str = "application/octet-stream",
        admission: Admission | None = None,
    ) -> bool:
        """Store the body of a request, and return when it is on the disk: `True`, or `False` for a known key.

        A body whose `key` was stored before is not stored again, so a client that got no answer can repeat it. The
        channel remembers the last 65,536 keys, or `max_bytes / 256` if that is less. `content_type` says how items are
        read from `body`, as for `ingest_app`. An `admission` is that of `admit`, and has the version. `ChannelFull` if
        there is no space, `ClosedError` if it is closed, `PlanError` if the body is malformed, or the key was stored
        with another body. The body of a call that is cancelled may be stored nevertheless.
        """
        if not isinstance(body, (bytes, bytearray, memoryview)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(
                f"send needs the bytes of a body, got {body!r:.80}: encode items, as by json.dumps(items).encode() "
                "with content_type='application/json'"
            )
        try:
            form = format_of(content_type)
        except (BodyError, AttributeError, TypeError) as error:
            raise PlanError(f"send(content_type=): {error}") from None
        content = bytes(body)
        try:
            BodyDecoder(form, None, sys.maxsize, sys.maxsize).whole(content)
        except BodyError as error:
            raise PlanError(f"send: the body is no {content_type}: {error}") from None
        except MissingDependencyError:  # what reads it is where it is installed
            pass
        return await self._send(content, key, version, form, admission)

    async def _send(
        self, body: bytes, key: str | None, version: int | None, form: str, admission: Admission | None = None
    ) -> bool:
        """Store a body whose items can be made; return whether its key is new."""
        version = version_of(admission, version)
        check_version(version)
        record = Record(Kind.DATA, form, time.time(), version, encoded_key(key), body)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        new = Pending(framed(record), waiters=[(loop, future)], admission=admission, version=version)
        if key is not None:
            new.digest, new.body_digest = digest_of_key(key), digest_of_body(form, record.body)
        if not self._enqueue(new):
            return False
        self._signal.notify()
        return await future

    def _enqueue(self, new: Pending) -> bool:
        """Queue a record, or wait for the one with the same key; `False` if that is on the disk already."""
        with self._guard:
            self._check()
            if new.digest is not None and (stored := self._log.known.get(new.digest)) is not None:
                check_same_body(stored, new.body_digest)
                return False
            if new.digest is not None and (same := self._in_flight.get(new.digest)) is not None:
                check_same_body(same.body_digest, new.body_digest)
                same.waiters += new.waiters
                return True
            if new.admission is not None:
                check_admission(self._producers.limit, new.admission)
            self._check_room(len(new.frame))
            self._waiting_bytes += len(new.frame)
            self._pending.append(new)
            if new.digest is not None:
                self._in_flight[new.digest] = new
        return True

    def admit(self, version: int) -> Admitting:
        """Wait until work with this version of a model or policy may begin, as `Channel.admit` does.

        >>> import asyncio, tempfile
        >>> import asyncdata as ad
        >>> async def work(channel, version):
        ...     async with channel.admit(version) as admission:
        ...         return await channel.send(b"made", admission=admission)
        >>> with ad.DurableChannel(tempfile.mkdtemp(), max_lag=8) as channel:
        ...     asyncio.run(work(channel, 3))
        True
        """
        limit = self._producers.checked(version)
        return Admitting(lambda: self._admit(limit, version))

    async def _admit(self, limit: LagLimit, version: int) -> Admission:
        admission = Admission(version, self._release)
        with self._guard:
            self._producers.tell(version)
        async with self._producers.woken() as signal:

            def admitted() -> bool:
                with self._guard:
                    self._producers.follow()
                    return bool(self._closed) or limit.try_admit(admission, signal)

            with self._guard:
                limit.waiting.append(signal)
            try:
                await signal.until(admitted)
            finally:
                with self._guard:
                    limit.leave(signal)
        with self._guard:
            self._check()
        return admission

    def _release(self, admission: Admission) -> None:
        with self._guard:
            self._producers.release(admission)

    def _check(self) -> None:
        """Raise if nothing may be sent."""
        if self._inherited:
            raise ClosedError(
                f"{self.path}: the channel is open in the process that forked this one, and only that process may send"
            )
        if self._closed:
            raise ClosedError(f"{self.path}: the channel is closed, and accepts nothing more: {self._closed}")

    def _check_room(self, size: int) -> None:
        """Raise if there is no space for a record of so many bytes."""
        if size > self._max_bytes:
            raise PlanError(f"a record of {size} bytes does not fit into DurableChannel(max_bytes={self._max_bytes})")
        if self._waiting_bytes + size > max(WAITING_BYTES, size):
            raise ChannelFull(f"{self.path}: {self._waiting_bytes} bytes wait for the disk; send it again later")
        end = self._log.end + self._waiting_bytes + size
        if end - self._oldest > self._max_bytes:
            self._oldest = (self._folder.segments() or [0])[0]  # which a trainer elsewhere may have trimmed
        if end - self._oldest > self._max_bytes:
            self._full = True
            self._signal.notify()
            raise ChannelFull(
                f"{self.path}: it holds {self._log.end - self._oldest} of {self._max_bytes} bytes; send it again when "
                "the trainer has read and trimmed some of them"
            )

    def trim(self, state: Mapping[str, Any]) -> int:
        """Remove what a pipeline that resumes from `state` does not read again; return how many bytes that frees.

        Call it when `state`, or the checkpoint that contains it, is saved. Segments of `segment_bytes` are removed as a
        whole, and the last one stays: a channel that is smaller than a segment keeps all. When a channel is full, it
        begins another segment, so that the last one can be removed too.

        >>> import tempfile
        >>> import asyncdata as ad
        >>> with ad.DurableChannel(tempfile.mkdtemp()) as channel:
        ...     with ad.Dataset.from_channel(channel.path, follow=False).iterate() as items:
        ...         state = items.state_dict()  # saved with the model
        ...     channel.trim(state)
        0
        """
        freed = trimmed(self._folder, state)
        with self._guard:
            self._oldest = (self._folder.segments() or [0])[0]
        return freed

    def close(self) -> None:
        """Store what was sent, and release the folder for another writer; readers wait for what comes next."""
        self._finish("it was closed")

    def end(self) -> None:
        """Close it for ever: readers end after the items that are there.

        >>> import tempfile
        >>> import asyncdata as ad
        >>> channel = ad.DurableChannel(tempfile.mkdtemp())
        >>> channel.end()
        >>> list(ad.Dataset.from_channel(channel.path))  # waits for no more
        []
        """
        with self._guard:
            self._check()
            self._pending.append(Pending(framed(Record(Kind.END, "bytes", time.time(), None, b"", b""))))
        self._finish("it was ended")

    def _finish(self, why: str) -> None:
        if self._inherited:
            return
        with self._guard:
            self._closed = self._closed or why
            self._producers.wake_all()
        self._signal.notify()
        self._thread.join()
        self._lock.release()

    async def aclose(self) -> None:
        """Do what `close` does, without blocking the event loop.

        >>> import asyncio, tempfile
        >>> import asyncdata as ad
        >>> channel = ad.DurableChannel(tempfile.mkdtemp())
        >>> asyncio.run(channel.aclose())  # as the end of `async with` does
        >>> channel.closed
        True
        """
        await asyncio.to_thread(self.close)

    def stats(self) -> dict[str, float]:
        """Return how many bytes it holds, how many wait for the disk, and how many keys it remembers.

        `read` is how many items its readers have read, all together and also again. `dropped` is how many they have
        dropped as stale (`max_age`, `min_version`), and `dead_letters` how many failed in the pipeline of a
        `Consumer(on_error="dead-letter")` and were not put back. `working`, `staleness`, `max_staleness` and `waste`
        are as those of `Channel.stats`.

        >>> import tempfile
        >>> import asyncdata as ad
        >>> with ad.DurableChannel(tempfile.mkdtemp()) as channel:
        ...     channel.stats()["dead_letters"]
        0
        """
        dropped, dead = self._folder.dropped.read() or 0, self._folder.dead_letters.read() or 0
        with self._guard:
            stored, waiting = self._log.end - self._oldest, self._waiting_bytes
            known, working = len(self._log.known), self._producers.working
        return {
            "bytes": stored,
            "waiting_bytes": waiting,
            "known_keys": known,
            "dropped": dropped,
            "dead_letters": dead,
            "working": working,
            **self._producers.stats(dropped),
        }

    def disown(self) -> None:
        """Send nothing in a forked child."""
        self._inherited = True
        self._log.close()

    def __repr__(self) -> str:
        return f"<DurableChannel {self.path}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a DurableChannel belongs to its process; in another process read it with Dataset.from_channel(path)"
        )

    # the thread that writes

    def _has_work(self) -> bool:
        return bool(self._pending or self._closed or self._full)

    def _run(self) -> None:
        """Store records in groups: those that come while the disk is busy are the next group."""
        try:
            while True:
                self._signal.until(self._has_work)
                with self._guard:
                    group = self._group()
                    full, self._full = self._full, False
                if group:
                    self._store(group)
                elif full:
                    self._log.end_segment()
                else:
                    return
        finally:
            self._log.close()

    def _group(self) -> list[Pending]:
        size = 0
        for count, one in enumerate(self._pending):
            size += len(one.frame)
            if size > GROUP_BYTES and count:
                break
        else:
            count = len(self._pending)
        group, self._pending = self._pending[:count], self._pending[count:]
        return group

    def _store(self, group: list[Pending]) -> None:
        failure: BaseException | None = None
        try:
            self._log.append(group)
        except OSError as error:
            failure = self._refusal(error)
        with self._guard:
            self._waiting_bytes -= sum(len(one.frame) for one in group)
            for one in group:
                if one.digest is not None:
                    self._in_flight.pop(one.digest)
                if failure is None:
                    self._producers.sent(one.end, one.admission, one.version)
            self._producers.follow()
        answer(group, failure)

    def _refusal(self, error: OSError) -> BaseException:
        """Return the error for records that could not be stored; close the channel if no others can be stored."""
        if error.errno in FULL and not self._log.broken:
            refusal: BaseException = ChannelFull(f"{self.path}: {FULL[error.errno]} ({error}); send it again later")
        else:
            with self._guard:
                self._closed = f"{error}; it is unknown what was stored of the last records, open the channel again"
            refusal = ClosedError(f"{self.path}: {self._closed}")
        refusal.__cause__ = error
        return refusal


def send_checked(
    channel: DurableChannel,
    body: bytes,
    key: str | None,
    version: int | None,
    form: str,
    admission: Admission | None = None,
) -> Awaitable[bool]:
    """Do what `DurableChannel.send` does, for a body that was decoded already."""
    return channel._send(body, key, version, form, admission)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def encoded_key(key: object) -> bytes:
    """Return an idempotency key as it is stored, empty for `None`."""
    if key is None:
        return b""
    if not isinstance(key, str):
        raise PlanError(f"send(key=) must be a str, got {key!r:.80}")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise PlanError(f"send(key=) must be text: {error}") from None
    if not 0 < len(encoded) <= 1024:
        raise PlanError(f"send(key=) must have 1 to 1024 bytes, got {len(encoded)}")
    return encoded


def answer(group: Iterable[Pending], failure: BaseException | None) -> None:
    """Settle the futures that wait for some records, each on its loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[bool], bool]]] = defaultdict(list)
    for one in group:
        for place, (loop, future) in enumerate(one.waiters):
            by_loop[loop].append((future, not place))
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(settle, futures, failure)
        except RuntimeError:  # the loop was closed, so nothing waits on it any more
            continue


def settle(futures: list[tuple[asyncio.Future[bool], bool]], failure: BaseException | None) -> None:
    for future, result in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(type(failure)(*failure.args).with_traceback(None))


def trimmed(folder: ChannelFolder, state: Mapping[str, Any]) -> int:
    """Remove the segments that a state does not need; return how many bytes that frees."""
    if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"trim needs the state of a pipeline, from DatasetIterator.state_dict, got {state!r:.80}")
    offsets = [*offsets_in(state, folder.id)]
    return folder.trim(min(offsets)) if offsets else 0


def trim(path: str | os.PathLike[str], state: Mapping[str, Any]) -> int:
    """Do the same as `DurableChannel.trim`, in a trainer that has only the path of the channel.

    >>> import tempfile
    >>> import asyncdata as ad
    >>> with ad.DurableChannel(tempfile.mkdtemp()) as channel:
    ...     with ad.Dataset.from_channel(channel.path, follow=False).iterate() as items:
    ...         state = items.state_dict()
    ...     ad.web.trim(channel.path, state)
    0
    """
    return trimmed(ChannelFolder(path), state)


def created(path: Path) -> int:
    """Return a descriptor of a new segment, or of an empty one that was made when its name could not be stored."""
    try:
        return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        if path.stat().st_size:
            raise
        return open_regular(path, os.O_WRONLY)


@final
class LogWriter:
    """Appends groups of records to the last segment, in one write and one sync each."""

    def __init__(self, folder: ChannelFolder, found: Recovered, segment_bytes: int, most_keys: int) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.most_keys = most_keys
        self.known = found.known
        self.end = found.end
        self.start = found.segment
        self.keys_only = False
        """Whether the last segment holds only keys."""
        self.broken = False
        """Whether the content of the last segment is unknown."""
        self.file = -1

    def append(self, group: Sequence[Pending]) -> None:
        """Write all of some records to the disk, or none of them; `OSError` says why not."""
        if self.broken:
            raise OSError(errno.EIO, "an earlier write failed", str(self.folder.path))
        if self.start < 0 or self.end - self.start >= self.segment_bytes:
            self.begin_segment()
        if self.file < 0:
            self.file = open_regular(self.folder.segment(self.start), os.O_WRONLY)
        with self.folder.committed.writing() as committed:  # which may be refused, so before anything is written
            self.store(group, committed)
        try:
            self.folder.wake_all()
        except OSError as error:
            if error.errno not in TOO_MANY:  # the next records wake who waits
                raise
        for one in group:
            self.know(one)

    def store(self, group: Sequence[Pending], committed: int) -> None:
        """Write records behind the others of the segment, and that they are there."""
        frames = [one.frame for one in group]
        if self.end == self.start:
            frames.insert(0, framed(keys_record(self.known, time.time())))
        data = b"".join(frames)
        self.write(data)
        try:
            os.fdatasync(self.file)
        except OSError:
            self.broken = True  # the system may have dropped its pages in memory
            raise
        if not os.fstat(self.file).st_nlink:
            self.broken = True
            raise FileNotFoundError(errno.ENOENT, "somebody has removed it", str(self.folder.segment(self.start)))
        end = self.end + len(data) - sum(len(one.frame) for one in group)
        for one in group:
            one.end = end = end + len(one.frame)
        self.end += len(data)
        self.keys_only = len(frames) == 1 and not group
        write_offset(committed, self.end)

    def know(self, stored: Pending) -> None:
        """Remember a key, and forget the oldest one if there are too many."""
        if stored.digest is not None:
            self.known[stored.digest] = stored.body_digest
            if len(self.known) > self.most_keys:
                del self.known[next(iter(self.known))]

    def write(self, data: bytes) -> None:
        """Append data; remove what was written of it if it cannot be written completely."""
        place, left = self.end - self.start, memoryview(data)
        try:
            while left:
                done = os.pwrite(self.file, left, place)
                place, left = place + done, left[done:]
        except OSError:
            self.broken = True
            os.ftruncate(self.file, self.end - self.start)
            self.broken = False
            raise

    def end_segment(self) -> None:
        """End the last segment so that it may be removed, if there is space for the next one."""
        if 0 <= self.start < self.end and not self.keys_only:
            with suppress(OSError):  # the next call that is refused tries it again
                self.begin_segment()
                self.append(())

    def begin_segment(self) -> None:
        """Make the next segment, which begins where the log ends."""
        self.close()
        path = self.folder.segment(self.end)
        file = created(path)
        try:
            self.folder.sync()
        except OSError:
            self.broken = True
            os.close(file)
            path.unlink()  # the last segment may go on, and its records would seem to be in this one
            self.broken = False
            raise
        self.file, self.start = file, self.end

    def close(self) -> None:
        """Close the segment."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

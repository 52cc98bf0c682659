"""The folder of a durable channel: its segments, up to where they are on the disk, and the readers that wait."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast, final

from asyncdata.errors import DataLossError, PlanError, ResumeError
from asyncdata.formats.tfrecord import masked_crc
from asyncdata.runtime.json_text import parse_json
from asyncdata.storage import local_path, open_regular, read_regular, sync_folder, write_atomically
from asyncdata.system import forks
from asyncdata.web.record import DamagedFrameError, Frame, frame_of

__all__ = (
    "TOO_MANY",
    "ChannelFolder",
    "LogReader",
    "OffsetFile",
    "WakeFile",
    "local_folder",
    "mappings_in",
    "offsets_in",
    "write_offset",
)

SUFFIX: Final = ".tfrecord"
SEGMENT: Final = re.compile(r"[0-9]{20}\.tfrecord")
PIPE: Final = re.compile(r"[0-9]+-[0-9a-f]{8}")
FORMAT: Final = 1

TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)
"""The errors of a process, or a system, that has as many files open as it may."""

READ_BYTES: Final = 1 << 20
OFFSET: Final = struct.Struct("<QI")


def local_folder(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a channel; `PlanError` for a URL."""
    return os.path.abspath(local_path(os.fsdecode(path), "a channel"))


@final
class ChannelFolder:
    """The folder of a durable channel.

    A segment is named by the offset of its first byte in the complete log, so offsets stay valid after trimming.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(local_folder(path))
        self.committed = OffsetFile(self.path / "committed")
        self.delivered = OffsetFile(self.path / "delivered")
        self.dropped = OffsetFile(self.path / "dropped")
        """How many items its readers have dropped as stale."""
        self.dead_letters = OffsetFile(self.path / "dead-letters")
        """How many items failed in its readers' pipelines, and were not put back."""

    def create(self) -> None:
        """Make the folder, if it is not there."""
        if not hasattr(os, "mkfifo"):
            raise PlanError("a DurableChannel needs named pipes, which this system does not have")
        self.path.mkdir(parents=True, exist_ok=True)
        self.create_pipes("wake")
        description = self.path / "channel.json"
        if not os.path.lexists(description):
            if any(self.path.glob(f"*{SUFFIX}")):
                raise PlanError(f"{self.path} has {SUFFIX} files and is no channel: give the channel its own folder")
            content = json.dumps({"format": FORMAT, "id": secrets.token_hex(8)})
            write_atomically(description, content.encode(), durable=True)
        _ = self.id

    def create_pipes(self, name: str) -> None:
        """Make the folder of the pipes of readers, or of producers, if it is not there."""
        (self.path / name).mkdir(exist_ok=True)
        if (self.path / name).is_symlink():
            raise PlanError(f"{self.path}/{name} is a link, and should be a folder of the channel's own: remove it")

    def sync(self) -> None:
        """Write the names of the files to the disk."""
        sync_folder(self.path)

    @property
    def id(self) -> str:
        """The channel's identifier, which stays when its folder is moved."""
        try:
            description: Any = parse_json(read_regular(self.path / "channel.json"))
            form, name = description.get("format", FORMAT), description["id"]
        except FileNotFoundError:
            raise PlanError(
                f"from_channel: {self.path} is no channel; first open a DurableChannel there, which creates it"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, DataLossError):
                raise
            raise DataLossError(f"{self.path}/channel.json is damaged: {error!r}") from None
        if type(name) is not str or not name:
            raise DataLossError(f"{self.path}/channel.json is damaged: the id should be a text, got {name!r:.80}")
        if form != FORMAT:
            raise DataLossError(
                f"{self.path}/channel.json has format {form!r:.80}, and this asyncdata reads format {FORMAT}: update it"
            )
        return name

    def segments(self) -> list[int]:
        """Return where each segment begins, the oldest first."""
        return sorted(int(name.removesuffix(SUFFIX)) for name in os.listdir(self.path) if SEGMENT.fullmatch(name))

    def segment(self, start: int) -> Path:
        """Return the file of a segment."""
        return self.path / f"{start:020}{SUFFIX}"

    def end(self) -> int:
        """Return the offset up to which everything is on the disk."""
        found = self.committed.read()
        if found is None:
            raise DataLossError(
                f"{self.committed.path} is missing or damaged: open the DurableChannel once, which repairs it"
            )
        return found

    def trim(self, offset: int) -> int:
        """Remove the segments that end at or before an offset, all but the last; return how many bytes that frees."""
        starts, freed = self.segments(), 0
        for start, after in pairwise(starts):
            if after > offset:
                break
            freed += self.segment(start).stat().st_size
            self.segment(start).unlink(missing_ok=True)
        return freed

    def wake_all(self, whom: str = "wake") -> None:
        """Wake all readers that wait, or others that have pipes in another folder."""
        with os.scandir(self.path / whom) as found:
            for entry in found:
                if PIPE.fullmatch(entry.name):
                    wake(entry.path)

    def wake_producers(self) -> None:
        """Wake producers that wait until readers have come further."""
        with suppress(FileNotFoundError):  # no writer of the channel has a `max_lag`
            self.wake_all("admitting")


def wake(path: str) -> None:
    """Wake one reader; remove the pipe of one that has died."""
    try:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            return
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:
            with suppress(FileNotFoundError):
                os.unlink(path)
        return
    try:
        with suppress(BlockingIOError):  # it has not read the earlier wake-ups yet
            os.write(pipe, b"\0")
    finally:
        os.close(pipe)


@final
class WakeFile:
    """A named pipe by which a reader, or a producer, is woken, from this process or another one."""

    def __init__(self, folder: ChannelFolder, whom: str = "wake") -> None:
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        new, self.path = folder.path / whom / f".{name}", folder.path / whom / name
        try:
            os.mkfifo(new)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{folder.path}: who waits for what comes makes a pipe in it, and cannot: {error.strerror}; "
                "from_channel(follow=False) reads what is there",
            ) from None
        try:
            self.descriptor = os.open(new, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            new.rename(self.path)  # only now that it is open: a waker removes pipes that no process has open
        except BaseException:
            new.unlink()
            raise

    def clear(self) -> None:
        """Consume the wake-ups."""
        with suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass

    def close(self) -> None:
        """Remove the pipe."""
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)


@final
class OffsetFile:
    """A file that holds an offset, or another number, and its checksum."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> int | None:
        """Return the offset; `None` if there is none, or it is damaged."""
        for _ in range(3):  # it may be written at this moment
            try:
                file = open_regular(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                content = os.read(file, OFFSET.size + 1)
            finally:
                os.close(file)
            if len(content) == OFFSET.size and masked_crc(content[:8]) == OFFSET.unpack(content)[1]:
                return OFFSET.unpack(content)[0]
        return None

    def write(self, offset: int) -> None:
        """Write another offset, in one call."""
        with self.writing() as file:
            write_offset(file, offset)

    @contextmanager
    def writing(self) -> Generator[int]:
        """Give a descriptor for `write_offset`."""
        file = open_regular(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            yield file
        finally:
            os.close(file)


def write_offset(file: int, offset: int) -> None:
    """Write an offset and its checksum, in one call."""
    os.pwrite(file, OFFSET.pack(offset, masked_crc(offset.to_bytes(8, "little"))), 0)


@final
class LogReader:
    """Reads frames from an offset of the log on, up to where it is on the disk."""

    def __init__(self, folder: ChannelFolder, offset: int | None) -> None:
        self.folder = folder
        self.lock, self.closed = forks.lock(), False
        starts = folder.segments()
        first = starts[0] if starts else 0
        self.offset = first if offset is None else offset
        """Where the next frame begins."""
        self.behind = False
        """Whether more was on the disk than was read."""
        self.file = self.start = -1
        if self.offset < first:
            raise ResumeError(
                f"from_channel({folder.path.name}): the state resumes at byte {self.offset}, but everything before "
                f"byte {first} was trimmed; start without the state"
            )
        if self.offset > folder.end():
            raise ResumeError(
                f"from_channel({folder.path.name}): the state resumes at byte {self.offset}, but the channel ends at "
                f"byte {folder.end()}: it has lost stored items; start without the state"
            )

    def read(self) -> list[Frame]:
        """Return the next frames; an empty list if there are none now, or the reader was closed."""
        with self.lock:
            end = self.folder.end()
            if self.closed or self.offset >= end:
                self.behind = False
                return []
            stop = self.open_segment(end)
            found = self.frames(stop) if self.file >= 0 else [self.lost(stop, "is missing")]
            self.behind = self.offset < end
            return found

    def open_segment(self, end: int) -> int:
        """Open the segment of the next frame, and return up to where it may be read."""
        if self.file >= 0 and self.start + os.fstat(self.file).st_size >= end:
            return end
        starts = self.folder.segments()
        start = next((one for one in reversed(starts) if one <= self.offset), -1)
        if start != self.start:
            self.close_segment()
            if start >= 0:
                with suppress(FileNotFoundError):  # trimmed meanwhile
                    self.file = open_regular(self.folder.segment(start), os.O_RDONLY)
            self.start = start
        return min([end, *(one for one in starts if one > self.offset)])

    def frames(self, stop: int) -> list[Frame]:
        """Return the frames in the next bytes before `stop`, at least one; or one error for bytes that are lost."""
        size = READ_BYTES
        while True:
            data = os.pread(self.file, min(size, stop - self.offset), self.offset - self.start)
            found, at = list[Frame](), 0
            try:
                while isinstance(one := frame_of(data, at, self.where(self.offset + at)), Frame):
                    at = one.end
                    found.append(Frame(self.offset + one.begin, self.offset + one.end, one.record))
            except DamagedFrameError as error:
                if not found:
                    return [self.lost(stop, f"is lost: {error}")]
                one = 0
            if found:
                self.offset += at
                return found
            if one <= len(data) or self.offset + one > stop or len(data) < min(size, stop - self.offset):
                return [self.lost(stop, "is truncated")]
            size = one

    def lost(self, stop: int, what: str) -> Frame:
        """Continue at `stop`, and return the error for the bytes before it."""
        begin, self.offset = self.offset, stop
        return Frame(begin, stop, DataLossError(f"{self.folder.path}: the log from byte {begin} to byte {stop} {what}"))

    def where(self, offset: int) -> str:
        return f"{self.folder.path}: the record at byte {offset}"

    def close(self) -> None:
        """Stop reading; wait for a read that another thread has begun, which is short."""
        with self.lock:
            self.closed = True
            self.close_segment()

    def close_segment(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file: int = -1
        self.start: int = -1


def offsets_in(state: object, channel: str) -> Iterator[int]:
    """Yield each offset in a channel that a saved state contains, at any depth."""
    for named in mappings_in(state):
        if named.get("channel") == channel and isinstance(named.get("offset"), int):
            yield named["offset"]


def mappings_in(state: object) -> Iterator[dict[str, Any]]:
    """Yield each dict that a state contains, at any depth."""
    waiting: list[object] = [state]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            yield mapping
            waiting.extend(mapping.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(cast("list[Any]", value))

"""Elements written to a file as they are read. If a process dies, complete elements stay, and the next one
continues."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.formats.tfrecord import FRAMING, RecordParser, frame, masked_crc
from asyncdata.persistence.header import TAIL, EndMark, Header, recorded_end
from asyncdata.persistence.record_writer import framed
from asyncdata.runtime.block import Block
from asyncdata.runtime.json_text import parse_json
from asyncdata.runtime.tickets import Position, Tickets
from asyncdata.storage import BLOCK_BYTES, AppendFile, RandomFile, write_atomically
from asyncdata.system import forks
from asyncdata.system.checksum import has_checksum, with_checksum
from asyncdata.system.crc32c import crc32c

__all__ = ("CacheWriter", "begin_writing")

SECONDS: Final = 2.0
"""How often the position is saved from which another process continues if this one dies."""


class CacheWriter:
    """A file of elements that this process writes: a prefix of them, in order.

    Several readers on several threads may fill it at once, as they all run the same epoch of the input: the first that
    has read an element adds it. The last reader to leave closes it.
    """

    def __init__(self, file: AppendFile, heading: Header, most: int) -> None:
        self.file = file
        self.heading = heading
        self.most = most  # bytes of a record
        self.readers = 0
        self.count = -1  # not known yet
        self.checksum = None if heading.repeatable else 0
        self.complete = False
        self.mark = PositionMark(0, None)
        self.last: tuple[int, Tickets, int] | None = None  # how many elements, the tickets of the last, how many those
        self.time = time.monotonic()
        self.busy = Lock()
        forks.register(self)

    def disown(self) -> None:
        """Leave the file to the parent: a forked child that reads the same pipeline finds it locked."""
        OPEN.pop(self.file.path, None)
        self.busy = Lock()

    @property
    def path(self) -> str:
        """The path of the elements now."""
        return str(self.file.path if self.complete else AppendFile.partial(self.file.path))

    def current_path(self) -> str:
        """Return the path of the elements while no thread renames the file; it may wait for one that does."""
        with self.busy:
            return self.path

    @property
    def mark_path(self) -> Path:
        return AppendFile.partial(self.file.path).with_suffix(".position")

    def find(self) -> None:
        """Count the records that are complete and in order, and drop the rest; in any thread, as it reads all of it.

        A file that has its end mark and not its name, as its process was stopped just then, gets it.
        """
        with self.busy:
            if self.count >= 0:
                return
            head = frame(self.heading.record())
            mark = recorded_end(self.path)
            lasting = self.heading.repeatable or mark is not None  # a file that does not last is not read
            records, end = intact_records(self.path, self.most) if lasting else (1, len(head))
            if mark is not None and mark.elements == records - 1 and ends_with(self.path, mark, end) and self.publish():
                self.count = records - 1
                return
            if not self.heading.repeatable:
                records, end = 1, len(head)
            if self.file.size < end:
                records, end = 0, 0
            self.file.truncate(end)
            if not records:
                self.file.append(head)
            self.count = max(0, records - 1)
            self.read_mark()

    def read_mark(self) -> None:
        """Read where the input resumes, if that was saved for the elements in the file and is not damaged.

        Without it the input starts again, and elements that are in the file are not written again.
        """
        with suppress(OSError, ValueError, KeyError, TypeError):
            manifest: dict[str, Any] = parse_json(self.mark_path.read_bytes())
            if has_checksum(manifest) and manifest["of"] == self.key() and manifest["elements"] <= self.count:
                self.mark = PositionMark(manifest["elements"], manifest["position"])

    def key(self) -> int:
        """Return what distinguishes this file's heading from others."""
        return masked_crc(self.heading.record())

    def append(self, number: int, block: Block) -> None:
        """Append elements, of which the first has this number, if they follow the written ones; up to a failed one."""
        with self.busy:
            fresh = next(block.pieces())
            if number > self.count or number + len(fresh) <= self.count or fresh.failed or self.complete:
                return
            for count, data in framed([fresh.slice(self.count - number, len(fresh))]):
                self.file.append(data)
                self.count += count
                if self.checksum is not None:
                    self.checksum = crc32c(data, self.checksum)
            self.last = (self.count, fresh.tickets, len(fresh))
            if time.monotonic() - self.time > SECONDS:
                self.write_mark()

    def marked(self) -> PositionMark:
        """Return where the input resumes, at most after the elements in the file."""
        with self.busy:
            self.take_mark()
            return self.mark

    def take_mark(self) -> None:
        if self.last is not None and self.heading.repeatable:
            count, tickets, fresh = self.last
            with suppress(ResumeError):
                self.mark = PositionMark(count, tickets.at(fresh))
        self.last = None

    def write_mark(self) -> None:
        """Save where the input resumes, if the disk has space."""
        if self.last is not None:
            self.take_mark()
            place = {"of": self.key(), "elements": self.mark.elements, "position": self.mark.position}
            manifest = with_checksum(place)
            with suppress(OSError):
                write_atomically(self.mark_path, json.dumps(manifest, separators=(",", ":")).encode(), durable=False)
        self.time = time.monotonic()

    def finish(self, number: int) -> None:
        """Note that the input has ended after so many elements: if all of them are in the file, it gets its final
        name."""
        with self.busy:
            if number != self.count or self.complete:
                return
            size = self.file.size
            self.file.append(frame(EndMark(self.count, self.checksum).record()))
            if not self.publish():
                self.file.truncate(size)  # the next epoch tries again

    def publish(self) -> bool:
        """Give the file its name, and return whether it has it."""
        if not self.file.publish():
            return False
        self.complete, self.last = True, None
        self.mark_path.unlink(missing_ok=True)
        return True

    def leave(self) -> None:
        """Release the file, if no other thread uses it, and save how far it has come."""
        with ALL, self.busy:
            self.readers -= 1
            if not self.readers and not self.file.inherited:
                del OPEN[self.file.path]
                if not self.complete:
                    self.write_mark()
                self.file.close()


class PositionMark(NamedTuple):
    """The position of the input after so many elements."""

    elements: int
    position: Position


OPEN: Final[dict[Path, CacheWriter]] = {}
"""The files that this process is writing."""

ALL: Final = forks.lock()
"""Held by the thread that changes the table."""


def intact_records(path: str, most: int) -> tuple[int, int]:
    """Return how many records of a file are complete, before its end mark or a damaged one, and where they end."""
    parser, count, end, at = RecordParser(path, most=most), 0, 0, 0
    with RandomFile(path) as file:
        while data := file.read_at(at, BLOCK_BYTES):
            at += len(data)
            parser.feed(data)
            while found := parser.parse(4096):
                good = [*takewhile(is_intact, found)]
                count += len(good)
                end += FRAMING * len(good) + sum(len(record) for record in good if isinstance(record, bytes))
                if len(good) < len(found):
                    return count, end
    return count, end


def is_intact(record: bytes | DataLossError) -> bool:
    """Return whether this is a record that is not damaged, and not the end mark."""
    return isinstance(record, bytes) and not record.startswith(TAIL)


def ends_with(path: str, mark: EndMark, end: int) -> bool:
    """Return whether exactly this end mark stands at a place in a file."""
    framed_mark = frame(mark.record())
    with RandomFile(path) as file:
        return file.read_at(end, len(framed_mark) + 1) == framed_mark


def begin_writing(path: str, heading: Header, most: int) -> CacheWriter | None:
    """Return the writer of the file at `path`, to be left; `None` if another process writes it, or has just finished,
    or if what is written there is not what this reader gets."""
    target = Path(path).absolute()
    with ALL:
        writing = OPEN.get(target)
        if writing is None:
            file = AppendFile.open(target, frame(heading.record()))
            if file is None:
                return None
            begun = headed(file) or heading
            if begun.repeatable and not heading.repeatable:
                file.close()
                return None
            writing = OPEN[target] = CacheWriter(file, begun, most)
        elif not (writing.heading.repeatable and heading.repeatable):
            return None
        writing.readers += 1
        return writing


def headed(file: AppendFile) -> Header | None:
    """Return the header of a file, `None` if the machine stopped before that was on the disk."""
    with suppress(ResumeError):
        if (found := Header.read(str(AppendFile.partial(file.path)))) is not None:
            return found._replace(checksum=None)
    return None

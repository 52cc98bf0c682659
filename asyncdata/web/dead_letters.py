"""Dead letters: items that failed in a pipeline, kept beside a durable channel."""

from __future__ import annotations

import base64
import errno
import json
import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias, cast, final
from zlib import crc32

from asyncdata.errors import PlanError
from asyncdata.redaction import redacted
from asyncdata.runtime.json_text import parse_json
from asyncdata.runtime.source_state import RestorableItem
from asyncdata.runtime.tickets import Ticket
from asyncdata.storage import open_regular, sync_folder
from asyncdata.web.decoding import LINE, elements_of
from asyncdata.web.folder import ChannelFolder, LogReader
from asyncdata.web.kept_message import CONTENT_TYPES, KeptMessage, Request
from asyncdata.web.record import Record

__all__ = ("DeadLetters", "ItemPlace", "Letter", "Place", "places_of")


class ItemPlace(NamedTuple):
    """The place of an item in a channel: the offset of its request, and its number there, from 0."""

    channel: str
    offset: int
    item: int

    @property
    def id(self) -> str:
        """Its name in the dead letters."""
        return f"{self.offset}-{self.item}"

    def __str__(self) -> str:
        return f"item {self.item} of the request at byte {self.offset} of the channel"


Place: TypeAlias = ItemPlace | KeptMessage
"""Where an item is, or the message itself."""


def places_of(ticket: Ticket) -> Iterator[Place]:
    """Yield the items of channels, and the messages, from which the element with this ticket was made."""
    if isinstance(ticket, tuple):
        for part in cast("tuple[Ticket, ...]", ticket):
            yield from places_of(part)
    elif isinstance(ticket, RestorableItem) and ticket.message is not None:
        yield ticket.message
    elif isinstance(ticket, RestorableItem) and (place := ticket.channel_place) is not None:
        yield ItemPlace(*place)


@dataclass(frozen=True)
class Letter:
    """An item that failed, as it is stored."""

    id: str
    offset: int | None
    """Of its request in the channel; `None` for a message of a queue or stream, whose place is in its ID."""
    item: int | None
    """Its number in the request, from 0."""
    error: str
    notes: Sequence[str] = ()
    failed_at: float = 0.0
    came_at: float | None = None
    """Seconds since 1970."""
    version: int | None = None
    content_type: str = ""
    """Of `body`, a request that has this item alone; empty if the channel does not have it any more."""
    body: str = ""
    is_base64: bool = False

    def request(self) -> Request:
        """Return the request that sends the item again; `PlanError` if the item was lost."""
        if not self.content_type:
            raise PlanError(f"{self.id}: the channel had lost the item when it failed, so it cannot be put back")
        return Request(self.content_type, base64.b64decode(self.body) if self.is_base64 else self.body.encode())


@final
class DeadLetters:
    """The file `dead-letters.jsonl` in the folder of a channel, to which a letter is appended for each item.

    Each item has one letter, however often it fails, and a second line when it was put back. A line that was written in
    part, before its process was killed, is left out; no state says yet that its item was read. Several processes may
    write: each reads what the others have written before it writes.
    """

    def __init__(self, folder: ChannelFolder) -> None:
        self.folder = folder
        self.path = folder.path / "dead-letters.jsonl"
        self.content = Content()
        self.size = 0
        """How much of the file was read."""
        with suppress(FileNotFoundError), self.opening(os.O_RDONLY) as file:
            self.read(file)

    def add(self, items: Sequence[Place], error: BaseException, whole: bool) -> int:
        """Store the items that an error is of, unless they are stored; return how many were new.

        With `whole` an item is a body, as for a user's `decode=`.
        """
        with self.writing() as file:
            found = [self.new_letter(place, error, whole) for place in {place.id: place for place in items}.values()]
            new = [letter for letter in found if letter is not None]
            if new:
                self.append(file, [asdict(letter) for letter in new])
        return len(new)

    def new_letter(self, place: Place, error: BaseException, whole: bool) -> Letter | None:
        """Return the letter of an item, unless it has one.

        Where another message was before, as the stream was made anew, the letter gets another name.
        """
        letters = self.content.letters
        if place.id not in letters:
            return letter_of(self.folder, place, error, whole)
        if isinstance(place, ItemPlace):
            return None
        letter = letter_of(self.folder, place, error, whole)
        name = f"{place.id}~{crc32(letter.body.encode()):08x}"
        return None if letter.body == letters[place.id].body or name in letters else replace(letter, id=name)

    def mark_put_back(self, letter: Letter) -> None:
        """Store that an item was sent again."""
        with self.writing() as file:
            self.append(file, [{"id": letter.id, "put_back_at": time.time()}])

    @contextmanager
    def opening(self, flags: int) -> Generator[int]:
        """Open the file."""
        file = open_regular(self.path, flags)
        try:
            yield file
        finally:
            os.close(file)

    @contextmanager
    def writing(self) -> Generator[int]:
        """Open the file while no other process may write, and read what others have written."""
        fresh = not os.path.lexists(self.path)
        with self.opening(os.O_RDWR | os.O_CREAT | os.O_APPEND) as file:
            lock: Any = import_module("fcntl")  # which is wherever a channel is
            lock.flock(file, lock.LOCK_EX)
            self.read(file)
            yield file
        if fresh:
            sync_folder(self.path.parent)

    def read(self, file: int) -> None:
        """Read the complete lines that were added to the file."""
        size = os.fstat(file).st_size
        if size < self.size:  # it is another file
            self.content, self.size = Content(), 0
        data = os.pread(file, size - self.size, self.size)
        end = data.rfind(b"\n") + 1
        self.content.add(data[:end])
        self.size += end

    def append(self, file: int, lines: Sequence[dict[str, Any]]) -> None:
        """Append lines in one write, and return when they are on the disk and in the statistics of the channel."""
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if os.fstat(file).st_size > self.size:  # a line that was written in part
            data = b"\n" + data
        try:
            written = os.write(file, data)
            os.fsync(file)
        except OSError as error:
            raise self.not_stored(error.errno or 0) from None
        if written != len(data):
            raise self.not_stored(errno.ENOSPC)
        self.read(file)
        self.folder.dead_letters.write(len(self.content.waiting))

    def not_stored(self, number: int) -> OSError:
        what = f"a dead letter cannot be stored, so its item counts as not read: {os.strerror(number)}"
        return OSError(number, what, str(self.path))


def letter_of(folder: ChannelFolder, place: Place, error: BaseException, whole: bool) -> Letter:
    """Return the letter of an item."""
    words = redacted(f"{type(error).__name__}: {error}")
    notes = [redacted(str(note)) for note in getattr(error, "__notes__", ())]
    kept = isinstance(place, KeptMessage)
    record = None if kept else record_at(folder, place.offset)
    offset, item = (None, None) if kept else (place.offset, place.item)
    letter = Letter(place.id, offset, item, words, notes, time.time())
    if kept:
        request = place.request()
    elif record is not None:
        request = request_of(record, place.item, whole)
        letter = replace(letter, came_at=record.since, version=record.version)
    else:
        return letter
    try:
        body, is_base64 = request.body.decode(), False
    except UnicodeDecodeError:
        body, is_base64 = base64.b64encode(request.body).decode(), True
    return replace(letter, content_type=request.content_type, body=body, is_base64=is_base64)


@dataclass
class Content:
    """The letters of a file, and which of them were put back."""

    letters: dict[str, Letter] = field(default_factory=dict[str, Letter])
    put_back: set[str] = field(default_factory=set[str])

    def add(self, data: bytes) -> None:
        """Parse lines; one that is damaged is left out."""
        for line in data.split(b"\n"):
            try:
                fields: Any = parse_json(line)
                if "put_back_at" in fields:
                    self.put_back.add(fields["id"])
                else:
                    self.letters.setdefault(fields["id"], Letter(**fields))
            except (ValueError, TypeError, KeyError):
                continue

    @property
    def waiting(self) -> list[Letter]:
        """The letters that were not put back, the oldest first."""
        return [letter for letter in self.letters.values() if letter.id not in self.put_back]


def record_at(folder: ChannelFolder, offset: int) -> Record | None:
    """Return the record at an offset; `None` if it is damaged or was removed."""
    try:
        reader = LogReader(folder, offset)
    except ValueError:  # it was trimmed
        return None
    try:
        frames = reader.read()
    finally:
        reader.close()
    record = frames[0].record if frames and frames[0].begin == offset else None
    return record if isinstance(record, Record) else None


def request_of(record: Record, item: int, whole: bool) -> Request:
    """Return a request that has one item of a record alone."""
    form, body = record.form, record.body
    kind = CONTENT_TYPES[form]
    if form == "ndjson":
        lines = [found[0].rstrip() for found in LINE.finditer(body)]
        return Request(kind, lines[item] if item < len(lines) else body)
    if form == "bytes" or whole:
        return Request(kind, body)
    try:
        elements = elements_of(form, body)
    except ValueError:  # it is malformed, and one item
        elements = None
    if elements is None or item >= len(elements):
        return Request(kind, body)
    return Request(kind, b"[" + elements[item] + b"]" if form == "json" else b"\x91" + elements[item])

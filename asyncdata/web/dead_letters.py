"""Dead letters: the items of a durable channel that failed in a pipeline, kept beside the channel."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Self, cast, final

from asyncdata.errors import PlanError
from asyncdata.redaction import redacted
from asyncdata.runtime.json_text import parse_json
from asyncdata.runtime.source_state import RestorableItem
from asyncdata.runtime.tickets import Ticket
from asyncdata.storage import open_regular, read_regular, sync_folder
from asyncdata.web.decoding import LINE, elements_of
from asyncdata.web.folder import ChannelFolder, LogReader
from asyncdata.web.record import Record

__all__ = ("DeadLetters", "ItemPlace", "Letter", "Request", "places_of")

CONTENT_TYPES: Final = {
    "bytes": "application/octet-stream",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "msgpack": "application/msgpack",
}


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


def places_of(ticket: Ticket) -> Iterator[ItemPlace]:
    """Yield the places of the items of channels from which the element with this ticket was made."""
    if isinstance(ticket, tuple):
        for part in cast("tuple[Ticket, ...]", ticket):
            yield from places_of(part)
    elif isinstance(ticket, RestorableItem) and (place := ticket.channel_place) is not None:
        yield ItemPlace(*place)


class Request(NamedTuple):
    """The body of a request that has one item alone, and its type."""

    content_type: str
    body: bytes


@dataclass(frozen=True)
class Letter:
    """An item that failed, as it is stored."""

    id: str
    offset: int
    """Of its request in the channel."""
    item: int
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
    part, before its process was killed, is left out; no state says yet that its item was read.
    """

    def __init__(self, folder: ChannelFolder) -> None:
        self.folder = folder
        self.path = folder.path / "dead-letters.jsonl"
        self.content = Content()
        self.refresh()

    def refresh(self) -> None:
        """Read what the file has."""
        try:
            data = read_regular(self.path)
        except FileNotFoundError:
            data = b""
        self.content = Content.of(data)

    def add(self, items: Sequence[ItemPlace], error: BaseException, whole: bool) -> int:
        """Store the items that an error is of, unless they are stored; return how many were new.

        With `whole` an item is a body, as for a user's `decode=`.
        """
        new = [place for place in dict.fromkeys(items) if place.id not in self.content.letters]
        lines = [self.letter(place, error, whole) for place in new]
        if lines:
            self.append([asdict(letter) for letter in lines])
            self.content.letters.update((letter.id, letter) for letter in lines)
            self.count()
        return len(lines)

    def letter(self, place: ItemPlace, error: BaseException, whole: bool) -> Letter:
        """Return the letter of an item."""
        words = redacted(f"{type(error).__name__}: {error}")
        notes = [redacted(str(note)) for note in getattr(error, "__notes__", ())]
        record = record_at(self.folder, place.offset)
        letter = Letter(place.id, place.offset, place.item, words, notes, time.time())
        if record is None:
            return letter
        request = request_of(record, place.item, whole)
        try:
            body, is_base64 = request.body.decode(), False
        except UnicodeDecodeError:
            body, is_base64 = base64.b64encode(request.body).decode(), True
        return Letter(
            *(letter.id, letter.offset, letter.item, words, notes, letter.failed_at),
            *(record.since, record.version, request.content_type, body, is_base64),
        )

    def mark_put_back(self, letter: Letter) -> None:
        """Store that an item was sent again."""
        self.append([{"id": letter.id, "put_back_at": time.time()}])
        self.content.put_back.add(letter.id)
        self.count()

    def count(self) -> None:
        """Store how many letters there are, for the statistics of the channel."""
        self.folder.dead_letters.write(len(self.content.waiting))

    def append(self, lines: Sequence[dict[str, Any]]) -> None:
        """Append lines in one write, and return when they are on the disk."""
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        fresh = not os.path.lexists(self.path)
        file = open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":  # a line that was written in part
                data = b"\n" + data
            if os.write(file, data) != len(data):
                raise OSError(f"{self.path}: the disk is full")
            os.fsync(file)
        finally:
            os.close(file)
        if fresh:
            sync_folder(self.path.parent)


@dataclass
class Content:
    """The letters of a file, and which of them were put back."""

    letters: dict[str, Letter] = field(default_factory=dict[str, Letter])
    put_back: set[str] = field(default_factory=set[str])

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Parse a file; a line that is damaged is left out."""
        found = cls()
        for line in data.split(b"\n"):
            try:
                fields: Any = parse_json(line)
                if "put_back_at" in fields:
                    found.put_back.add(fields["id"])
                else:
                    found.letters.setdefault(fields["id"], Letter(**fields))
            except (ValueError, TypeError, KeyError):
                continue
        return found

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

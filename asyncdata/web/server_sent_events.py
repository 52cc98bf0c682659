"""Server-sent events: bytes in, events out, as the HTML standard parses them, without I/O."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, final

from asyncdata.errors import DataLossError

__all__ = ("Event", "EventParser")

LINE_END: Final = re.compile(rb"\r\n|\n|\r")
BOM: Final = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """An event: its data, and the id with which a client requests the events after it; empty if there was none yet.

    Without data it is no event for the user, and only moves the id.
    """

    data: bytes | None
    id: str
    is_marked: bool
    """Whether the id is its own, and not that of an event before it."""


@final
class EventParser:
    """Parses a stream as it arrives. The limit for an event also holds for an incomplete one."""

    def __init__(self, max_event_bytes: int) -> None:
        self.most = max_event_bytes
        self.rest = b""
        self.after_cr = False
        """Whether the last byte was CR, which ends a line at once: a LF that follows it belongs to it."""
        self.begun = False
        self.data = bytearray()
        """The lines of data of the event, each with its end."""
        self.id = ""
        self.is_marked = False
        self.retry: float | None = None
        """Seconds that the server wants a client to wait before it reconnects."""

    def feed(self, data: bytes) -> list[Event]:
        """Parse the next bytes, and return the events that they complete.

        `DataLossError` for an event that is too long, but only after the events before it were returned.
        """
        self.check_size()
        if not data:
            return []
        begin = 1 if self.after_cr and data.startswith(b"\n") else 0
        self.after_cr = data.endswith(b"\r")
        text = self.rest + data[begin:]
        *lines, self.rest = LINE_END.split(text) if b"\r" in text else text.split(b"\n")
        found: list[Event] = []
        for line in lines:
            if not self.begun:
                self.begun, line = True, line.removeprefix(BOM)  # noqa: PLW2901
            if line:
                self.take(line)
            elif self.data or self.is_marked:
                found.append(Event(bytes(self.data[:-1]) if self.data else None, self.id, self.is_marked))
                self.data, self.is_marked = bytearray(), False
        if not found:
            self.check_size()
        return found

    def check_size(self) -> None:
        if len(self.data) + len(self.rest) > self.most:
            raise DataLossError(f"an event has more than {self.most} bytes")

    def take(self, line: bytes) -> None:
        """Parse a line of an event; unknown fields are ignored."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self.data += value + b"\n"
            case b"id" if b"\0" not in value:
                self.id, self.is_marked = value.decode("utf-8", "replace"), True
            case b"retry" if value.isdigit():
                self.retry = int(value[:9]) / 1000
            case _:
                return

"""ArrowParser: rows of Arrow IPC files and streams, one record batch at a time, without I/O."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.arrow_columns import arrow, columns_of
from asyncdata.formats.column_parser import ColumnParser
from asyncdata.formats.record_limits import MAX_RECORD_BYTES, record_too_long

__all__ = ("ArrowParser",)

METHOD: Final = "ArrowDataset"

FILE: Final = b"ARROW1\0\0"
"""The first bytes of a file, which a stream does not have; a file also ends with the first six of them."""

CONTINUATION: Final = b"\xff\xff\xff\xff"
"""The bytes before the length of each message."""

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of messages."""

MESSAGE_BYTES: Final = 1 << 26
"""The largest metadata of a batch."""


class ArrowParser(ColumnParser):
    """Turns the bytes of an IPC file or stream into rows: dicts of values by column.

    A batch can be read without those before it, unless there are dictionaries: then reading starts at the beginning.
    """

    def __init__(self, name: str = "Arrow", columns: Sequence[str] | None = None, most: int = MAX_RECORD_BYTES) -> None:
        super().__init__(name)
        self._columns_wanted = columns
        self._most = most
        self._is_file: bool | None = None
        self._schema: Any = None
        self._head = b""  # the message of the schema, and of dictionaries
        self._dictionaries = False
        self._message: tuple[bytes, int, int] | None = None  # its bytes, its kind, its body's length
        self._length = 0  # of a message that has not arrived
        self._ended = False
        self._tail = b""

    def decoded(self) -> tuple[Any, int] | None:
        while not self._ended:
            message = self._next()
            if message is None:
                return self._cut_short()
            kind, data = message
            if kind == BATCH and self._schema is not None:
                return self._batch(data)
            self._take(kind, data)
        return self._at_end()

    def start(self, data: bytes) -> bool:
        """Take the first bytes of a file that is resumed at a later batch; return whether more are needed."""
        self.feed(data)
        while self._schema is None:
            message = self._next()
            if message is None:
                self.forget()
                self._is_file, self._length, self._message, self.at = None, 0, None, 0
                return True
            self._take(*message)
        self.forget()
        return False

    def _next(self) -> tuple[int, bytes] | None:
        """Return the kind of the next message and all its bytes, `None` if they have not all arrived."""
        if self._is_file is None and not self._begun():
            return None
        if self._message is None and not self._message_known():
            return None
        if self._message is None:
            return 0, b""
        data, kind, length = self._message
        body = self.taken(length) if length else b""
        if body is None:
            return None
        self._message = None
        return kind, data + body

    def _begun(self) -> bool:
        """Return whether the format, file or stream, is known."""
        start = self.taken(8)
        if start is None:
            return False
        self._is_file = start == FILE
        if not self._is_file:
            self._length = self._length_in(start, 0)
        return True

    def _message_known(self) -> bool:
        """Return whether the next message has been read, or the messages have ended."""
        if not self._length:
            start = self.taken(8)
            if start is None:
                return False
            self._length = self._length_in(start, self.at - 8)
            if not self._length:
                self._ended = True
                return True
        begin = self.at - 8
        metadata = self.taken(self._length)
        if metadata is None:
            return False
        try:
            kind, length = kind_and_length(metadata)
        except (struct.error, ValueError):
            raise DataLossError(f"{self.name}: the message at byte {begin} is damaged") from None
        if length > self._most:
            raise record_too_long(self.name, f"the record batch at byte {begin}", self._most)
        self._message = CONTINUATION + struct.pack("<i", self._length) + metadata, kind, length
        self._length = 0
        return True

    def _length_in(self, start: bytes, begin: int) -> int:
        """Return the length of the message with this start, 0 for the end marker."""
        (length,) = struct.unpack_from("<i", start, 4)
        if not start.startswith(CONTINUATION) or not 0 <= length <= MESSAGE_BYTES or (not begin and not length):
            raise DataLossError(
                f"{self.name}: at byte {begin} a message of Arrow was expected, which begins with {CONTINUATION!r}"
                f"{f', or a file, with {FILE!r}' * (not begin)}, got {start!r}"
            )
        return length

    def _take(self, kind: int, data: bytes) -> None:
        """Take a message with the schema or a dictionary."""
        if self._ended:
            return
        pa = arrow("pyarrow", METHOD)
        if kind == SCHEMA and self._schema is None:
            try:
                self._schema = pa.ipc.read_schema(pa.py_buffer(data))
                names = list(self._schema.names)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataLossError(f"{self.name}: its schema cannot be read: {error}") from None
            self._check_columns(names)
        elif kind == DICTIONARY and self._schema is not None:
            self._dictionaries = True
        else:
            raise DataLossError(f"{self.name}: unexpected message of kind {kind} before byte {self.at}")
        self._head += data
        if self.passed == 0 and not self._dictionaries:
            self.offset = self.at

    def _check_columns(self, names: list[str]) -> None:
        if missing := [name for name in self._columns_wanted or () if name not in names]:
            raise PlanError(f"{self.name}: there is no column {missing[0]!r}, the columns are {names}")

    def _batch(self, data: bytes) -> tuple[Any, int]:
        """Return the columns of a record batch, and how many rows they have."""
        pa = arrow("pyarrow", METHOD)
        try:
            if self._dictionaries:
                batch = pa.ipc.open_stream(pa.py_buffer(self._head + data)).read_next_batch()
            else:
                batch = pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
            batch.validate(full=True)
            table = pa.Table.from_batches([batch])
            if self._columns_wanted is not None:
                table = table.select(self._columns_wanted)
            return columns_of(table), table.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataLossError(f"{self.name}: the record batch before byte {self.at} is damaged: {error}") from None

    def _cut_short(self) -> None:
        """Raise if no more bytes come."""
        if self.finished:
            raise DataLossError(
                f"{self.name}: it is cut short, or was not closed by its writer: it ends at byte "
                f"{self.at + self.waiting} without an end marker"
            )

    def _at_end(self) -> None:
        """Skip the footer, which repeats the metadata; raise if it is incomplete."""
        more = self.taken(self.waiting) or b""
        self._tail = (self._tail + more)[-6:]
        if self._is_file and self.finished and self._tail != FILE[:6]:
            raise DataLossError(f"{self.name}: it is cut short: {FILE[:6]!r} was expected at its end, byte {self.at}")
        if not self._is_file and more:
            raise DataLossError(f"{self.name}: there is more data after its end marker at byte {self.at - len(more)}")

    def ended(self) -> None:
        if not self._dictionaries:
            super().ended()


def kind_and_length(metadata: bytes) -> tuple[int, int]:
    """Return a message's kind and the bytes of its body, from its FlatBuffers table."""
    (root,) = struct.unpack_from("<I", metadata)
    (back,) = struct.unpack_from("<i", metadata, root)
    fields = root - back
    (size,) = struct.unpack_from("<H", metadata, fields)
    if fields < 0 or size < 8:
        raise ValueError("fields are missing")
    places = struct.unpack_from(f"<{min(size, 12) // 2 - 2}H", metadata, fields + 4)
    kind_at, length_at = places[1], places[3] if len(places) > 3 else 0
    (kind,) = struct.unpack_from("<B", metadata, root + kind_at) if kind_at else (0,)
    (length,) = struct.unpack_from("<q", metadata, root + length_at) if length_at else (0,)
    if length < 0:
        raise ValueError("a length is negative")
    return kind, length

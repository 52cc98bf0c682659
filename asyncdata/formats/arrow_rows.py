"""ArrowParser: rows of Arrow IPC files and streams, one record batch at a time, without I/O."""

from __future__ import annotations

import io
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.arrow_columns import arrow, check_values, columns_of
from asyncdata.formats.column_parser import ColumnParser
from asyncdata.formats.record_limits import MAX_RECORD_BYTES, record_too_long

__all__ = ("END_BYTES", "ArrowParser", "LateDictionariesError", "dictionary_blocks", "footer_length")

METHOD: Final = "ArrowDataset"

FILE: Final = b"ARROW1\0\0"
"""The first bytes of a file, which a stream does not have; a file also ends with the first six of them."""

CONTINUATION: Final = b"\xff\xff\xff\xff"
"""The bytes before the length of each message; before Arrow 0.15 there were none."""

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of messages."""

MESSAGE_BYTES: Final = 1 << 26
"""The largest metadata of a batch."""

SHORTEST: Final = 16
"""Fewer bytes than the metadata of a message has."""

END_BYTES: Final = 10
"""The bytes at the end of a file that say how long its footer is."""

Message: TypeAlias = tuple[int, list[bytes]]
"""The kind of a message, and its parts: the mark before it with its length, its metadata and its body."""


class LateDictionariesError(DataLossError):
    """A file has its dictionaries behind the record batches that need them, as those of polars do."""


class ArrowParser(ColumnParser):
    """Turns the bytes of an IPC file or stream into rows: dicts of values by column.

    A batch can be read without those before it, unless there are dictionaries: then reading starts at the beginning.
    """

    def __init__(
        self,
        name: str = "Arrow",
        columns: Sequence[str] | None = None,
        most: int = MAX_RECORD_BYTES,
        dictionaries: Sequence[bytes] | None = None,
    ) -> None:
        """Give the messages of `dictionaries` if they come behind the batches."""
        super().__init__(name)
        self._columns_wanted = columns
        self._most = most
        self._known = dictionaries
        self._restart()
        self._tail = b""

    def _restart(self) -> None:
        """Expect the first byte."""
        self.at = 0
        self._is_file = self._ended = self._dictionaries = False
        self._messages = MessageQueue()
        self._reader: Any = None  # of those, once there is a schema
        self._start = b""  # the bytes of the next message before its metadata
        self._bare: bytearray | None = None  # a schema of unknown length
        self._length = -1  # of the next message's metadata, -1 if it is not known
        self._message: tuple[Message, int] | None = None  # without its body, of which this is the length

    def decoded(self) -> tuple[Any, int] | None:
        while not self._ended:
            message = self._next()
            if message is None:
                return self._cut_short()
            kind, parts = message
            if kind == BATCH and self._reader is not None:
                return self._batch(parts)
            self._take(kind, parts)
        return self._at_end()

    def start(self, data: bytes) -> bool:
        """Take the first bytes of a file that is resumed at a later batch; return whether more are needed."""
        self.feed(data)
        while self._reader is None:
            message = self._next()
            if message is None:
                self.forget()
                self._restart()
                return True
            self._take(*message)
        self.forget()
        self._start, self._length = b"", -1
        return False

    def _next(self) -> Message | None:
        """Return the next message, `None` if it has not arrived."""
        if self._message is None and not self._message_known():
            return None
        if self._message is None:
            return 0, []
        (kind, parts), length = self._message
        body = self.taken(length) if length else b""
        if body is None:
            return None
        self._message = None
        return kind, [*parts, body]

    def _message_known(self) -> bool:
        """Return whether the next message has been read, or the messages have ended."""
        if self._bare is not None:
            return self._bare_schema(self._bare)
        if self._length < 0 and not self._length_known():
            return False
        if self._bare is not None:
            return self._bare_schema(self._bare)
        if not self._length:
            self._ended = True
            return True
        begin = self.at - len(self._start)
        metadata = self.taken(self._length)
        if metadata is None:
            return False
        try:
            kind, length = kind_and_length(metadata)
        except (struct.error, ValueError):
            raise DataLossError(f"{self.name}: the message at byte {begin} is damaged") from None
        if length > self._most:
            raise record_too_long(self.name, f"the record batch at byte {begin}", self._most)
        self._message = (kind, framed(metadata)), length
        self._start, self._length = b"", -1
        return True

    def _length_known(self) -> bool:
        """Return whether the bytes before the metadata of the next message have arrived."""
        while (word := self.taken(4)) is not None:
            self._start += word
            if self.at <= 8 and self._start == FILE[: self.at]:
                self._is_file = self.at == 8
                self._start = b"" if self._is_file else self._start
            elif self._start != CONTINUATION:
                self._length = self._length_in(self._start, self.at - len(self._start))
                return True
        return False

    def _length_in(self, start: bytes, begin: int) -> int:
        """Return the length of the metadata behind these bytes, 0 for the end marker."""
        (length,) = struct.unpack("<i", start[-4:])
        first = self._reader is None
        if len(start) == 4 and self._is_file and first and 0 < length < SHORTEST:
            self._bare = bytearray(start)
        elif (
            not 0 <= length <= MESSAGE_BYTES
            or (not length and first)
            or len(start) not in (4, 8)
            or (len(start) == 4 and length and (length + 4) % 8)
        ):
            raise DataLossError(
                f"{self.name}: at byte {begin} a message of Arrow was expected, which begins with {CONTINUATION!r}"
                f"{f', or a file, with {FILE!r}' * (not begin)}, got {start!r}"
            )
        return length

    def _bare_schema(self, found: bytearray) -> bool:
        """Return whether the schema has been read of a file that does not say how long it is, as those of polars.

        It ends before the first message behind which it can be read: what is cut short cannot.
        """
        while (word := self.taken(4)) is not None:
            if word == CONTINUATION and self.at % 8 == 4 and self._schema_in(bytes(found)) is not None:
                self._message = (SCHEMA, framed(bytes(found))), 0
                self._bare, self._start, self._length = None, word, -1
                return True
            found += word
            if len(found) > MESSAGE_BYTES:
                raise DataLossError(f"{self.name}: the schema at byte {len(FILE)} does not end")
        return False

    def _schema_in(self, metadata: bytes) -> Any:
        """Return a schema, `None` if there is none."""
        pa = arrow("pyarrow", METHOD)
        try:
            return pa.ipc.read_schema(pa.py_buffer(b"".join(framed(metadata))))
        except (pa.ArrowException, OSError, ValueError):
            return None

    def _take(self, kind: int, parts: list[bytes]) -> None:
        """Take a message with the schema or a dictionary."""
        if self._ended:
            return
        if kind == SCHEMA and self._reader is None:
            self._messages.add([*parts, *(self._known or ())])
            self._dictionaries = bool(self._known)
            self._open()
        elif kind == DICTIONARY and self._reader is not None:
            self._messages.add(parts if self._known is None else ())
            self._dictionaries = True
        else:
            raise DataLossError(f"{self.name}: unexpected message of kind {kind} before byte {self.at}")
        if self.skip == 0 and not self._dictionaries:
            self.offset = self.at - len(self._start)

    def _open(self) -> None:
        """Begin to read the messages, and check the columns."""
        pa = arrow("pyarrow", METHOD)
        try:
            self._reader = pa.ipc.open_stream(pa.PythonFile(self._messages, "r"))
            names = list(self._reader.schema.names)
        except KeyError as error:
            raise DataLossError(
                f"{self.name}: a column has a type that pyarrow does not have, number {error}"
            ) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataLossError(f"{self.name}: its schema cannot be read: {error}") from None
        if missing := [name for name in self._columns_wanted or () if name not in names]:
            raise PlanError(f"{self.name}: there is no column {missing[0]!r}, the columns are {names}")
        wanted = names if self._columns_wanted is None else self._columns_wanted
        if twice := [name for name in wanted if names.count(name) > 1]:
            raise DataLossError(f"{self.name}: it has two columns {twice[0]!r}; give others as columns=")

    def _batch(self, parts: list[bytes]) -> tuple[Any, int]:
        """Return the columns of a record batch, and how many rows they have."""
        pa = arrow("pyarrow", METHOD)
        if (
            self._is_file
            and not self._dictionaries
            and self._known is None
            and "dictionary<" in str(self._reader.schema)
        ):
            raise LateDictionariesError(
                f"{self.name}: its dictionaries come behind its record batches, so it can be read "
                "only if it is not compressed"
            )
        self._messages.add(parts)
        try:
            batch = self._reader.read_next_batch()
            check_values(batch)
            table = pa.Table.from_batches([batch])
            if self._columns_wanted is not None:
                table = table.select(self._columns_wanted)
            return columns_of(table), table.num_rows
        except KeyError as error:  # of the class for an array
            raise DataLossError(
                f"{self.name}: pyarrow does not support the type of a column (number {error} of Arrow's types); its "
                f"types are {[str(kind) for kind in self._reader.schema.types]!s:.300}"
            ) from None
        except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
            raise DataLossError(
                f"{self.name}: the record batch before byte {self.at} cannot be read: {error}"
            ) from None

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


class MessageQueue(io.RawIOBase):
    """Complete messages, as a file object for pyarrow, which reads them part by part."""

    def __init__(self) -> None:
        super().__init__()
        self._parts = deque[bytes]()

    def add(self, parts: Sequence[bytes]) -> None:
        """Append a message."""
        self._parts.extend(filter(None, parts))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        part = self._parts.popleft() if self._parts else b""
        if len(part) > size:
            self._parts.appendleft(part[size:])
            return part[:size]
        return part if len(part) == size or not self._parts else part + self.read(size - len(part))


def framed(metadata: bytes) -> list[bytes]:
    """Return metadata with the mark and length that belong before it."""
    return [CONTINUATION, struct.pack("<i", len(metadata)), metadata]


def kind_and_length(metadata: bytes) -> tuple[int, int]:
    """Return a message's kind and the bytes of its body, from its FlatBuffers table."""
    _, kind_at, _, length_at = fields_at(metadata, *struct.unpack_from("<I", metadata), count=4)
    (kind,) = struct.unpack_from("<B", metadata, kind_at) if kind_at else (0,)
    (length,) = struct.unpack_from("<q", metadata, length_at) if length_at else (0,)
    if length < 0:
        raise ValueError("a length is negative")
    return kind, length


def fields_at(data: bytes, table: int, count: int) -> list[int]:
    """Return where the first fields of a FlatBuffers table are, 0 for those that it has not."""
    (back,) = struct.unpack_from("<i", data, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", data, fields)
    if fields < 0 or size < 4:
        raise ValueError("fields are missing")
    known = min(size // 2 - 2, count)
    places = struct.unpack_from(f"<{known}H", data, fields + 4)
    return [table + place if place else 0 for place in places] + [0] * (count - known)


def footer_length(end: bytes) -> int:
    """Return how many bytes before the last ones of a file are its footer; `ValueError` if there is none."""
    (length,) = struct.unpack("<i", end[:4])
    if not end.endswith(FILE[:6]) or not 0 < length <= MESSAGE_BYTES:
        raise ValueError(f"a footer and {FILE[:6]!r} were expected at its end, got {end!r}")
    return length


def dictionary_blocks(footer: bytes) -> list[tuple[int, int]]:
    """Return the offset and size of each dictionary's message, from a file's footer."""
    at = fields_at(footer, *struct.unpack_from("<I", footer), count=3)[2]
    if not at:
        return []
    at += struct.unpack_from("<I", footer, at)[0]
    (count,) = struct.unpack_from("<I", footer, at)
    blocks = [struct.unpack_from("<qi4xq", footer, at + 4 + 24 * place) for place in range(count)]
    return [(offset, metadata + body) for offset, metadata, body in blocks]

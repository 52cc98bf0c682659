"""Records of a durable channel: the body, time and key of a request as bytes, one frame each."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from asyncdata.errors import DataLossError
from asyncdata.formats.tfrecord import frame, masked_crc
from asyncdata.web.idempotency import BODY_DIGEST, KEY_DIGEST, UNKNOWN_BODY

__all__ = (
    "FRAMING",
    "DamagedFrameError",
    "Frame",
    "Kind",
    "Record",
    "frame_of",
    "framed",
    "keys_in",
    "keys_record",
)

FRAMING: Final = 16
"""The bytes that a frame has besides its record."""

HEAD: Final = struct.Struct("<2sBBHxxdq")
MAGIC: Final = b"ac"
LENGTH: Final = struct.Struct("<QI")
CRC: Final = struct.Struct("<I")
NO_VERSION: Final = -(1 << 63)
FORMS: Final = ("bytes", "json", "ndjson", "msgpack")


class Kind(IntEnum):
    """The kind of a record."""

    DATA = 0
    KEYS_ALONE = 1
    """What earlier versions stored in place of `KEYS`: the digests of the keys, without those of the bodies."""
    END = 2
    """The end of the channel."""
    KEYS = 3
    """The first record of a segment: the digests of the keys before it, each followed by that of the body."""


class Record(NamedTuple):
    """The content of a request; `since` in seconds since 1970."""

    kind: Kind
    form: str
    since: float
    version: int | None
    key: bytes
    body: bytes

    def packed(self) -> bytes:
        """Return it as bytes."""
        version = NO_VERSION if self.version is None else self.version
        head = HEAD.pack(MAGIC, self.kind, FORMS.index(self.form), len(self.key), self.since, version)
        return b"".join((head, self.key, self.body))

    @classmethod
    def of(cls, data: bytes) -> Record:
        """Unpack a record; `ValueError` if it is none."""
        if len(data) < HEAD.size or data[:2] != MAGIC:
            raise ValueError("it is not a record of a channel")
        _, kind, form, length, since, version = HEAD.unpack_from(data)
        if form >= len(FORMS) or HEAD.size + length > len(data):
            raise ValueError("it is a record of another version of asyncdata")
        body = HEAD.size + length
        known_version = None if version == NO_VERSION else version
        return cls(Kind(kind), FORMS[form], since, known_version, data[HEAD.size : body], data[body:])


def framed(record: Record) -> bytes:
    """Return a record as it is stored in a segment."""
    return frame(record.packed())


def keys_record(bodies: Mapping[bytes, bytes], since: float) -> Record:
    """Return the record that begins a segment, of the digests of bodies by those of their keys."""
    return Record(Kind.KEYS, "bytes", since, None, b"", b"".join(key + body for key, body in bodies.items()))


def keys_in(record: Record) -> Iterator[tuple[bytes, bytes]]:
    """Yield the digests of keys, each with that of the body, of such a record."""
    size = KEY_DIGEST if record.kind == Kind.KEYS_ALONE else KEY_DIGEST + BODY_DIGEST
    for at in range(0, len(record.body), size):
        key, body = record.body[at : at + KEY_DIGEST], record.body[at + KEY_DIGEST : at + size]
        yield key, body or UNKNOWN_BODY


class Frame(NamedTuple):
    """A record between the offsets `begin` and `end`, or the error that says what is wrong with it."""

    begin: int
    end: int
    record: Record | DataLossError


class DamagedFrameError(DataLossError):
    """Where the next record begins is unknown."""


def frame_of(data: bytes, at: int, where: str) -> Frame | int:
    """Return the frame that begins at an offset; if `data` ends within it, the offset up to which bytes are needed.

    `DamagedFrameError` if its length is damaged.
    """
    if at + LENGTH.size > len(data):
        return at + LENGTH.size
    length, crc = LENGTH.unpack_from(data, at)
    if masked_crc(data[at : at + 8]) != crc:
        raise DamagedFrameError(f"{where} has a corrupt length")
    end = at + length + FRAMING
    if end > len(data):
        return end
    content = data[at + LENGTH.size : end - 4]
    if masked_crc(content) != CRC.unpack_from(data, end - 4)[0]:
        return Frame(at, end, DataLossError(f"{where} is corrupt: the checksum of its data does not match"))
    try:
        return Frame(at, end, Record.of(content))
    except ValueError as error:
        return Frame(at, end, DataLossError(f"{where} is corrupt: {error}"))

"""TFRecord: frames with masked CRC32C around records, plain or compressed.

A file is a sequence of frames: length (uint64), masked CRC of the length, the record, masked CRC of the record, all
little-endian. Reading is two steps without I/O, a `decompressor` and a `RecordParser`; the caller feeds them bytes.
"""

from __future__ import annotations

import os
import struct
from functools import cache
from io import BufferedWriter, FileIO
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

import numpy as np

from asyncdata.errors import ClosedError, DataLossError, PlanError
from asyncdata.formats.compression import compressor, decompressor
from asyncdata.formats.record_limits import MAX_RECORD_BYTES, offset_in, record_too_long
from asyncdata.system import forks
from asyncdata.system.crc32c import checksum, crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

__all__ = (
    "RecordParser",
    "TFRecordWriter",
    "decompressor",
    "frame",
    "frames",
    "frames_of_one_length",
    "masked_crc",
    "read_large",
)

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER: Final = 12
"""Bytes before a record: its length and the CRC of the length."""

FRAMING: Final = 16
"""Bytes around a record: the header, and the CRC that follows the record."""

MANY: Final = 24
"""From this many records on, checking all of them at once in NumPy beats checking one after another."""

LARGE: Final = 1 << 16
"""From this many bytes on, one read per record beats copying records out of blocks, and a checksum in place beats that
of a copy."""

WRITE_BYTES: Final = 1 << 20
"""Bytes that a writer buffers: fewer calls, and larger pages in the cache, which are faster to read."""

MASK_DELTA: Final = 0xA282EAD8

HEAD: Final = np.dtype([("length", "<u8"), ("crc", "<u4")])
"""The header of a record."""

unpack_length = struct.Struct("<Q").unpack_from
unpack_crc = struct.Struct("<I").unpack_from
pack_crc = struct.Struct("<I").pack


def masked_crc(data: bytes) -> int:
    """Return the CRC32C of `data`, rotated and shifted as TFRecord stores it."""
    crc = checksum()(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """Return `record` as a frame of a TFRecord file.

    >>> len(frame(b"four"))
    20
    """
    length = len(record).to_bytes(8, "little")
    return b"".join((length, pack_crc(masked_crc(length)), record, pack_crc(masked_crc(record))))


def frames(records: Sequence[bytes]) -> bytes:
    """Return records as consecutive frames of a TFRecord file."""
    count = len(records)
    if count < MANY:
        return b"".join(map(frame, records))
    lengths = np.fromiter(map(len, records), np.int64, count)
    heads = np.empty(count, HEAD)
    heads["length"], heads["crc"] = lengths, masked(crcs_of_lengths(lengths))
    parts = zip(heads.view("V12").tolist(), records, masked_crcs(records).view("V4").tolist(), strict=True)
    return b"".join(chain.from_iterable(parts))


def frames_of_one_length(count: int, length: int, fill: Callable[[NDArray[np.uint8]], None]) -> memoryview:
    """Return `count` records of one length as frames of a TFRecord file; `fill` writes each into a row of an array."""
    out = np.empty((count, length + FRAMING), np.uint8)
    octets = length.to_bytes(8, "little")
    out[:, :HEADER] = np.frombuffer(octets + pack_crc(masked_crc(octets)), np.uint8)
    rows = out[:, HEADER : HEADER + length]
    fill(rows)
    rows.flags.writeable = False  # else checksums would copy the rows
    crcs = masked_crcs([*rows] if length >= LARGE else cut_out(out.data, 0, length, count))
    out[:, HEADER + length :] = crcs.view(np.uint8).reshape(count, 4)
    return out.data.cast("B")


class RecordParser:
    """Turns the bytes of a TFRecord file into records, without I/O.

    `name` is the file's name for messages. Offsets in messages count uncompressed bytes, and say so if `compressed`.
    A record of more than `most` bytes is an error, and the last element.

    >>> parser = RecordParser("greetings.tfrecord")
    >>> parser.feed(frame(b"hello") + frame(b"world")[:-1])
    >>> parser.parse(limit=10)
    [b'hello']
    >>> parser.finish()
    >>> parser.parse(limit=10)
    [DataLossError('greetings.tfrecord: the record at byte 21 is cut short: ...')]
    >>> parser.ended
    True
    """

    skip = 0
    """The next record begins at `offset` itself."""

    def __init__(self, name: str, *, compressed: bool = False, most: int = MAX_RECORD_BYTES) -> None:
        self._name = name
        self._most = most
        self._where = offset_in(compressed)
        self._data: Buffer = b""  # the data being parsed, from `_at` on
        self._at = 0
        self._next: Buffer = b""  # the data after `_data`, if that is a record joined from two feeds
        self._offset = 0  # of `_data[_at]` in the file
        self._finished = False
        self._lost = False

    @property
    def ended(self) -> bool:
        """Whether `parse` will return nothing more, whatever data is fed."""
        return self._lost or (self._finished and self._at >= len(self._data) and not self._next)

    @property
    def lost(self) -> bool:
        """Whether the last record returned is an error that replaces the rest of the file."""
        return self._lost

    @property
    def offset(self) -> int:
        """The byte offset of the next record."""
        return self._offset

    @property
    def cut(self) -> int | None:
        """The byte offset of a large record in which the data ends; None if the data ends elsewhere."""
        rest = len(self._data) - self._at
        if self._lost or self._next or rest < HEADER or unpack_length(self._data, self._at)[0] < LARGE:
            return None
        return self._offset

    def jump(self, offset: int) -> None:
        """Drop the data; the next bytes come from `offset`, where a record begins."""
        self._data, self._at, self._next, self._offset = b"", 0, b"", offset

    def feed(self, data: Buffer) -> None:
        """Append the file's next bytes.

        They are not copied: they must not change until `parse` has returned fewer records than its limit.
        """
        if self._lost:
            return
        view = memoryview(data)
        if self._at >= len(self._data) and not self._next:
            self._data, self._at = view, 0
            return
        rest = self._own_rest()
        taken = 0 if missing_bytes(rest) > 0 else len(view)
        rest += view[:taken]  # only if fed again before all records were parsed
        while taken < len(view) and (missing := missing_bytes(rest)) > 0:
            rest += view[taken : taken + missing]
            taken += missing
        self._next = view[taken:]

    def finish(self) -> None:
        """Mark the end of the data: a record that is incomplete now is lost."""
        self._finished = True

    def parse(self, limit: int) -> list[bytes | DataLossError]:
        """Return at most `limit` records of the data, in order; [] if it needs more data or has ended.

        In the place of a lost record is its error. A corrupt record loses that record; a corrupt length, or data that
        ends inside a record, loses the rest of the file.
        """
        if self._lost:
            return []
        records = self._take(limit)
        if len(records) < limit and self._next and not self._lost:
            self._data, self._at, self._next = self._next, 0, b""
            records += self._take(limit - len(records))
        if len(records) < limit and not self._lost:
            records += self._settle()
        return records

    def _take(self, limit: int) -> list[bytes | DataLossError]:
        """Return at most `limit` complete records of the data."""
        found: list[bytes | DataLossError] = []
        while len(found) < limit and (more := self._take_some(limit - len(found))):
            found += more
        return found

    def _take_some(self, limit: int) -> list[bytes | DataLossError]:
        """Return records that can be taken at once: a run of one length, or some of any length."""
        data, start = self._data, self._at
        length, count = run_of_one_length(data, start, limit)
        if length > self._most:
            return [self._lose_at_head(data, start)]
        if count >= MANY:
            records, good = of_one_length(data, start, length, count)
            size = (length + FRAMING) * count
        else:
            odd = count == 1 and run_of_one_length(data, start + length + FRAMING, limit - 1)[1] >= MANY
            lengths = scan(data, start, 1 if odd else limit)
            if len(data) > self._most:
                lengths = [*takewhile(lambda length: length <= self._most, lengths)]
            if not lengths:
                return []
            records = records_at(data, start, lengths)
            good = intact(data, start, lengths, records)
            size = sum(lengths) + FRAMING * len(lengths)
        if not good:
            return self._judge(records)
        self._advance(size)
        return [*records]

    def _judge(self, records: Sequence[bytes]) -> list[bytes | DataLossError]:
        """Return `records` one by one, with an error in place of each that is corrupt."""
        judged: list[bytes | DataLossError] = []
        for record in records:
            if not length_intact(self._data, self._at):
                return [*judged, self._lose_at_head(self._data, self._at)]
            good = data_intact(self._data, self._at, record)
            judged.append(record if good else self._error("is corrupt: the checksum of its data does not match"))
            self._advance(len(record) + FRAMING)
        return judged

    def _settle(self) -> list[bytes | DataLossError]:
        """Store an incomplete record until more data comes, unless it is already known to be lost."""
        rest = self._own_rest()
        if len(rest) >= HEADER and (unpack_length(rest, 0)[0] > self._most or not length_intact(rest, 0)):
            return [self._lose_at_head(rest, 0)]
        if self._finished and rest:
            end, needs = self._offset + len(rest), missing_bytes(rest)
            return [self._lose(f"is cut short: the file ends at byte {end}, at least {needs} bytes too early")]
        return []

    def _own_rest(self) -> bytearray:
        """Copy the unparsed data to the parser's own buffer, which later feeds extend."""
        if not isinstance(self._data, bytearray) or self._at:
            self._data, self._at = bytearray(memoryview(self._data)[self._at :]), 0
        self._data += self._next
        self._next = b""
        return self._data

    def _advance(self, size: int) -> None:
        self._at += size
        self._offset += size

    def _lose_at_head(self, data: Buffer, at: int) -> DataLossError:
        """Give up the rest of the file: the next record, at `at`, has a corrupt length or is too long."""
        if not length_intact(data, at):
            what = "where the next record begins is unknown, the rest of the file is lost"
            return self._lose(f"has a corrupt length: {what}")
        self._stop()
        return record_too_long(self._name, f"the record at {self._where} {self._offset}", self._most)

    def _lose(self, what: str) -> DataLossError:
        """Give up the rest of the file."""
        self._stop()
        return self._error(what)

    def _stop(self) -> None:
        self._lost = True
        self._data, self._at, self._next = b"", 0, b""

    def _error(self, what: str) -> DataLossError:
        return DataLossError(f"{self._name}: the record at {self._where} {self._offset} {what}")


class Peekable(Protocol):
    """A file that returns bytes in the page cache at once, as storage's streams of local files do."""

    def peek(self, buffer: bytearray | memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on as far as possible without waiting; return how many bytes there were."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, fewer at the end."""
        ...


def read_large(
    file: Peekable, offset: int, limit: int, most_bytes: int, longest: int = MAX_RECORD_BYTES
) -> list[bytes]:
    """Return records from `offset` on, each read into its own memory, until `limit` or `most_bytes` is reached.

    It ends before the first record that is small, longer than `longest`, damaged or cut short, or perhaps not in the
    page cache: the bytes after the record are checked, as files enter the cache and leave it from the front.
    """
    records: list[bytes] = []
    between = bytearray(FRAMING)  # the CRC of one record, the header of the next
    there, stop = 4 + file.peek(memoryview(between)[4:], offset), offset + most_bytes
    while there == FRAMING and len(records) < limit and offset < stop:
        (length,) = unpack_length(between, 4)
        if not LARGE <= length <= longest or not length_intact(between, 4):
            break
        there = file.peek(between, offset + HEADER + length)
        record = file.read_at(offset + HEADER, length) if there >= 4 else b""
        if len(record) < length or masked_crc(record) != unpack_crc(between)[0]:
            break
        records.append(record)
        offset += length + FRAMING
    return records


def scan(data: Buffer, at: int, limit: int) -> list[int]:
    """Return the lengths, unchecked, of at most `limit` records that are complete in `data` from `at` on."""
    lengths: list[int] = []
    end = len(data)
    while len(lengths) < limit:
        if at + FRAMING > end:
            break
        (length,) = unpack_length(data, at)
        at += length + FRAMING
        if at > end:
            break
        lengths.append(length)
    return lengths


def run_of_one_length(data: Buffer, at: int, limit: int) -> tuple[int, int]:
    """Return the length, unchecked, of the record at `at`, and how many records from there on have it.

    They are complete in `data`. At most `limit` are counted, and only one if there are fewer than `MANY`.
    """
    if at + FRAMING > len(data):
        return 0, 0
    (length,) = unpack_length(data, at)
    most = min(limit, (len(data) - at) // (length + FRAMING))
    if most < MANY:
        return length, min(most, 1)
    others = np.ndarray((most,), "<u8", data, at, (length + FRAMING,)) != length
    return length, int(others.argmax()) if others.any() else most


def records_at(data: Buffer, at: int, lengths: Sequence[int]) -> Sequence[bytes]:
    """Return the records of these lengths at `at`."""
    layout = "".join(["<", *[f"12x{length}s4x" for length in lengths]])
    return struct.Struct(layout).unpack_from(data, at)


def of_one_length(data: Buffer, at: int, length: int, count: int) -> tuple[list[bytes], bool]:
    """Return `count` records of one length at `at`, and whether all their checksums are right.

    NumPy extracts them in a tenth of the time of `struct` if they are short, in half of it if they are long.
    """
    frames = (length + FRAMING,)
    records = cut_out(data, at, length, count)
    length_crcs = np.ndarray((count,), "<u4", data, at + 8, frames)
    data_crcs = np.ndarray((count,), "<u4", data, at + HEADER + length, frames)
    good = bool((length_crcs == masked_crc(length.to_bytes(8, "little"))).all())
    return records, good and np.array_equal(masked_crcs(records), data_crcs)


def cut_out(data: Buffer, at: int, length: int, count: int) -> list[bytes]:
    """Return `count` records of one length at `at`."""
    if not length:
        return [b""] * count
    return np.ndarray((count,), f"V{length}", data, at + HEADER, (length + FRAMING,)).tolist()


def missing_bytes(rest: Buffer) -> int:
    """Return how many bytes are missing of the record, or of its header, at the beginning of `rest`."""
    if len(rest) < HEADER:
        return HEADER - len(rest)
    return unpack_length(rest, 0)[0] + FRAMING - len(rest)


def length_intact(data: Buffer, at: int) -> bool:
    """Return whether the length of the frame at `at` is intact."""
    return masked_crc(bytes(data[at : at + 8])) == unpack_crc(data, at + 8)[0]


def data_intact(data: Buffer, at: int, record: bytes) -> bool:
    """Return whether `record`, from the frame at `at`, is intact."""
    return masked_crc(record) == unpack_crc(data, at + HEADER + len(record))[0]


def intact(data: Buffer, at: int, lengths: Sequence[int], records: Sequence[bytes]) -> bool:
    """Return whether both checksums are right for all records at `at`."""
    if len(records) >= MANY:
        return all_intact(data, at, lengths, records)
    for record in records:
        if not (length_intact(data, at) and data_intact(data, at, record)):
            return False
        at += len(record) + FRAMING
    return True


def all_intact(data: Buffer, at: int, lengths: Sequence[int], records: Sequence[bytes]) -> bool:
    """Do what `intact` does, vectorized for many records."""
    sizes = np.array(lengths, np.int64)
    data_crc_at = np.cumsum(sizes + FRAMING) + (at - 4)
    length_crc_at = data_crc_at - sizes - 4
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the uint32 at every byte offset
    return np.array_equal(masked(crcs_of_lengths(sizes)), words[length_crc_at]) and np.array_equal(
        masked_crcs(records), words[data_crc_at]
    )


def masked_crcs(records: Sequence[bytes | NDArray[np.uint8]]) -> NDArray[np.uint32]:
    """Return the masked CRC of each record, little-endian as in files."""
    return masked(np.fromiter(map(checksum(), records), np.uint32, len(records))).astype("<u4", copy=False)


def masked(crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Mask each CRC as `masked_crc` does."""
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(MASK_DELTA)


def crcs_of_lengths(lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the CRC32C of each length as eight little-endian bytes."""
    tables = crc_tables()
    octets = lengths.astype("<u8").view(np.uint8).reshape(-1, 8)
    used = (int(lengths.max()).bit_length() + 7) // 8
    crcs = np.full(len(lengths), crc32c(bytes(8)), np.uint32)
    for i in range(used):
        crcs ^= tables[i][octets[:, i]]
    return crcs


@cache
def crc_tables() -> NDArray[np.uint32]:
    """Return how byte i with value v changes the CRC32C of eight zero bytes, as an array of shape (8, 256).

    CRCs are linear: the CRC of eight bytes is that of eight zeros, xor the change of each byte.
    """
    zeros = crc32c(bytes(8))
    changes = [[crc32c((value << 8 * i).to_bytes(8, "little")) ^ zeros for value in range(256)] for i in range(8)]
    return np.array(changes, np.uint32)


class TFRecordWriter:
    """Writes records to a TFRecord file, with tf.io.TFRecordWriter's methods; a context manager.

    `compression_type` is None, "", "GZIP" or "ZLIB". `options` may be given instead, as in TensorFlow: one of these, or
    an object with such a `compression_type`, as `tf.io.TFRecordOptions`, whose other attributes are ignored.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "greetings.tfrecord")
    >>> with TFRecordWriter(path) as writer:
    ...     writer.write(b"hello")
    >>> os.path.getsize(path)
    21
    >>> writer.close()  # it is closed already
    """

    def __init__(self, path: str | os.PathLike[str], compression_type: Any = None, options: Any = None) -> None:
        if compression_type is not None and options is not None:
            raise PlanError("TFRecordWriter needs either compression_type or options, got both")
        if "://" in os.fsdecode(path):
            raise PlanError(
                f"TFRecordWriter writes to a path of this machine, got {os.fsdecode(path).partition('://')[0]}://; "
                "Dataset.write_tfrecords writes to object stores"
            )
        given = compression_type if options is None else options
        self._compressor = compressor(getattr(given, "compression_type", given))
        self._unbuffered = FileIO(path, "wb")
        self._file = BufferedWriter(self._unbuffered, WRITE_BYTES)
        forks.register(self)

    def disown(self) -> None:
        """Close the file in a forked child without flushing, as the parent writes the buffered records."""
        self._unbuffered.close()

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Append one record."""
        if not isinstance(record, (bytes, bytearray, memoryview)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a record must be bytes, got {type(record).__name__}")
        self._check_open()
        self._file.write(self._compressor.feed(frame(bytes(record))))

    def flush(self) -> None:
        """Pass everything written so far to the operating system, so that readers can see it.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "greetings.tfrecord")
        >>> with TFRecordWriter(path) as writer:
        ...     writer.write(b"hello")
        ...     writer.flush()
        ...     os.path.getsize(path)
        21
        """
        self._check_open()
        self._file.write(self._compressor.flush())
        self._file.flush()

    def close(self) -> None:
        """Finish the file. Idempotent."""
        if self._file.closed:
            return
        with self._file:
            self._file.write(self._compressor.finish())

    def _check_open(self) -> None:
        if self._file.closed:
            raise ClosedError(f"the writer of {self._unbuffered.name!r} was closed, here or by a fork")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

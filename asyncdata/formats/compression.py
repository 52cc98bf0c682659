"""Compression and decompression of streams, without I/O; types are named as in TFRecord's `compression_type`."""

from __future__ import annotations

import bz2
import zlib
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from asyncdata.errors import DataLossError, PlanError
from asyncdata.system.optional_packages import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = (
    "HEAD_BYTES",
    "LARGEST_WINDOW",
    "Buffer",
    "Compressor",
    "Decompressor",
    "FrameReader",
    "ZlibReader",
    "compressor",
    "decompressor",
    "not_supported",
    "recognised",
)

Buffer: TypeAlias = bytes | bytearray | memoryview

WINDOW_BITS: Final = {"GZIP": zlib.MAX_WBITS | 16, "ZLIB": zlib.MAX_WBITS}
"""zlib's `wbits` of each container."""

PIECE_BYTES: Final = 16 << 20
"""The most bytes that are decompressed at once: a block of some megabytes may contain a thousand times as much."""

FRAME_PIECE: Final = 1 << 14
"""Bytes of bzip2 or zstd that are decompressed at once: a corrupt byte loses at most the data of one piece."""

HEAD_BYTES: Final = 12
"""The number of first bytes that show a file's compression."""

OTHERS: Final = {
    b"\xfd7zXZ\0": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xff\x06\0\0sNaPpY": "snappy",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf\x27\x1c": "7z",
}
"""The first bytes of compressed files that are not read."""

SMALLEST_WINDOW: Final = 1 << 27
LARGEST_WINDOW: Final = 1 << 31
"""Bytes of memory that a stream of zstd may take in any case, and the most that can be allowed."""

BZ2_MAGIC: Final = b"1AY&SY", b"\x17rE8P\x90"
"""The bytes after `BZh` and a digit: a block, or the end."""


class Decompressor(Protocol):
    """Decompresses a stream."""

    @property
    def waiting(self) -> bool:
        """Whether `feed(b"")` may return more of the earlier data."""
        ...

    def feed(self, data: Buffer) -> Buffer:
        """Decompress the stream's next bytes; return the result, or a part of it if the rest is `waiting`.

        `DataLossError` if the stream is corrupt, but only after everything before that was returned.
        """
        ...

    def finish(self) -> None:
        """Mark the end of the data: DataLossError if the stream is corrupt or ends too early."""
        ...


class Compressor(Protocol):
    """Compresses a stream."""

    def feed(self, data: Buffer) -> Buffer:
        """Compress some more bytes; return the compressed bytes that are ready, often none."""
        ...

    def flush(self) -> bytes:
        """Return what is needed to decompress everything fed so far."""
        ...

    def finish(self) -> bytes:
        """Return the end of the stream."""
        ...


def decompressor(
    compression_type: str | None, name: str = "compressed data", most: int = SMALLEST_WINDOW
) -> Decompressor:
    """Return a decompressor for "GZIP", "ZLIB", "BZ2" or "ZSTD"; for None and "" one that changes nothing.

    `name` is the file's name for messages. "ZSTD" needs a package before Python 3.14, which the error names. A stream
    of zstd whose window is larger than `most` bytes, and than 128 MiB, is an error: reading takes so much memory.
    """
    if compression_type == "BZ2":
        return FrameReader(bz2.BZ2Decompressor, (OSError, ValueError), name)
    if compression_type == "ZSTD":
        zstd = zstd_module()
        window = min(max(most, SMALLEST_WINDOW), LARGEST_WINDOW).bit_length() - 1
        options = {zstd.DecompressionParameter.window_log_max: window}
        return FrameReader(partial(zstd.ZstdDecompressor, options=options), (zstd.ZstdError,), name, 1 << window)
    bits = window_bits(compression_type, '"GZIP", "ZLIB", "BZ2" or "ZSTD"')
    return PlainReader() if bits is None else ZlibReader(bits, name)


def zstd_module() -> Any:
    """Return the module for zstd: Python's own, or its backport for earlier versions."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        return require("backports.zstd", "compression by zstd", "'asyncdata[formats]'")


def not_supported(head: bytes) -> str | None:
    """Return the name of the compression of a file with these first bytes if it is one that is not read."""
    return next((kind for magic, kind in OTHERS.items() if head.startswith(magic)), None)


def recognised(head: bytes) -> str | None:
    """Return the compression of a file with these first bytes; None for none, and for ZLIB, which has no magic.

    >>> import gzip
    >>> recognised(gzip.compress(b"some text"))
    'GZIP'
    """
    if head.startswith(b"\x1f\x8b\x08") and head[3:4] < b"\x20":
        return "GZIP"
    if head.startswith(b"BZh") and b"1" <= head[3:4] <= b"9" and head[4:10] in BZ2_MAGIC:
        return "BZ2"
    skippable = head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F
    return "ZSTD" if skippable or head.startswith(b"\x28\xb5\x2f\xfd") else None


def compressor(compression_type: str | None) -> Compressor:
    """Return a compressor for "GZIP" or "ZLIB"; for None and "" one that changes nothing."""
    bits = window_bits(compression_type)
    return PlainWriter() if bits is None else ZlibWriter(bits)


def window_bits(compression_type: str | None, known: str = '"GZIP" or "ZLIB"') -> int | None:
    """Return zlib's `wbits` for a `compression_type`, None for no compression."""
    if not compression_type:
        return None
    if compression_type not in tuple(WINDOW_BITS):  # it may be unhashable
        raise PlanError(f'compression_type must be None, "", {known}, got {compression_type!r}')
    return WINDOW_BITS[compression_type]


class PlainReader:
    """The decompressor for uncompressed data."""

    waiting = False
    """All is returned at once."""

    def feed(self, data: Buffer) -> Buffer:
        """Return `data` itself."""
        return data

    def finish(self) -> None:
        """Accept any end."""


class StreamsReader:
    """Decompresses one stream after the other, as files may have several."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name
        self._left: Buffer = b""  # data, not decompressed from `_at` on
        self._at = 0
        self._full = False  # the stream may return more without new data
        self._fed = 0  # bytes
        self._error: DataLossError | None = None

    @property
    def waiting(self) -> bool:
        """Whether `feed(b"")` may return more."""
        return self._error is None and (self._full or self._at < len(self._left))

    def feed(self, data: Buffer) -> bytes:
        """Decompress `data`, up to an error; the next call raises it."""
        if self._error is not None:
            raise self._error
        self._fed += len(data)
        rest = memoryview(self._left)[self._at :]
        self._left, self._at = (bytes(rest) + data if len(rest) else data), 0
        return b"".join(self._pieces())

    def finish(self) -> None:
        """Raise `DataLossError` for a deferred error, or if the last stream has not ended."""
        if self._error is not None:
            raise self._error
        if self._fed and not self._stream.eof:
            raise cut_short(self._name, self._fed)

    def _pieces(self) -> Iterator[bytes]:
        """Yield the waiting data decompressed, at most `PIECE_BYTES`."""
        raise NotImplementedError


class ZlibReader(StreamsReader):
    """Decompresses the members of gzip files, or streams of zlib."""

    def __init__(self, bits: int, name: str) -> None:
        super().__init__(zlib.decompressobj(bits), name)
        self._bits = bits

    def _pieces(self) -> Iterator[bytes]:
        remaining = PIECE_BYTES
        while (len(self._left) or self._full) and self._error is None and remaining:
            if self._stream.eof:
                self._left = bytes(self._left).lstrip(b"\0")  # padding may follow a member
                self._stream = zlib.decompressobj(self._bits) if self._left else self._stream
                continue
            found = self._decompress(self._left, remaining)
            remaining -= len(found)
            self._full = not remaining and not self._stream.eof
            self._left = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            yield found

    def _decompress(self, data: Buffer, most: int) -> bytes:
        """Decompress at most `most` bytes of `data`; an error is deferred until everything before it was returned."""
        before = self._stream.copy()
        try:
            return self._stream.decompress(data, most)
        except zlib.error as error:
            found = [*before_error(before.decompress, memoryview(data))]
            self._error = corrupt(self._name, self._fed - len(data) + len(found), error)
            return b"".join(found)


def cut_short(name: str, at: int) -> DataLossError:
    """Return the error for a stream that ends too early."""
    return DataLossError(f"{name}: the compressed stream is cut short: at byte {at} more was expected")


def corrupt(name: str, at: int, error: Exception) -> DataLossError:
    """Return the error for a stream that is damaged at a byte of the file, or in the 16 KB after it."""
    return DataLossError(f"{name}: the compressed stream is corrupt at byte {at}: {error}")


def before_error(decompress: Callable[[memoryview], bytes], data: memoryview) -> Iterator[bytes]:
    """Decompress `data` byte by byte, until an error."""
    with suppress(zlib.error):
        for i in range(len(data)):
            yield decompress(data[i : i + 1])


class FrameReader(StreamsReader):
    """Decompresses the frames of bzip2, zstd and brotli."""

    def __init__(
        self, make: Callable[[], Any], errors: tuple[type[Exception], ...], name: str, window: int = 0
    ) -> None:
        super().__init__(make(), name)
        self._make = make
        self._errors = errors
        self._window = window  # bytes that a frame of zstd may refer back to

    def _pieces(self) -> Iterator[bytes]:
        remaining = PIECE_BYTES
        while self.waiting and remaining:
            if self._stream.eof and not self._next_frame():
                return
            piece = b"" if self._full else memoryview(self._left)[self._at : self._at + FRAME_PIECE]
            try:
                found = self._stream.decompress(piece, remaining)
            except self._errors as error:
                self._error = self._failure(error)
                return
            remaining -= len(found)
            self._at += len(piece)
            if self._stream.eof:
                self._go_back(self._stream.unused_data)
            self._full = not self._stream.eof and not self._stream.needs_input
            yield found

    def _failure(self, error: Exception) -> DataLossError:
        """Return the error for data that cannot be decompressed."""
        if "too much memory" in str(error):  # zstd's own words
            return DataLossError(
                f"{self._name}: it is compressed by zstd with a window of more than {self._window} bytes, and reading "
                f"it would take so much memory; if that is expected, give a max_record_bytes of up to {LARGEST_WINDOW}"
            )
        return corrupt(self._name, self._fed - len(self._left) + self._at, error)

    def _go_back(self, unused: bytes) -> None:
        """Continue with the data that the frame did not use."""
        if len(unused) <= self._at:
            self._at -= len(unused)
        else:  # the frame got it before the last call of `feed`
            self._left, self._at = unused + memoryview(self._left)[self._at :], 0

    def _next_frame(self) -> bool:
        """Begin another frame if there is one; zeros may precede it."""
        while self._at < len(self._left) and not self._left[self._at]:
            self._at += 1
        if self._at == len(self._left):
            return False
        self._stream = self._make()
        return True


class PlainWriter:
    """The compressor that changes nothing."""

    def feed(self, data: Buffer) -> Buffer:
        """Return `data` itself."""
        return data

    def flush(self) -> bytes:
        """Return nothing: nothing is buffered."""
        return b""

    def finish(self) -> bytes:
        """Return nothing: there is no end marker."""
        return b""


class ZlibWriter:
    """Compresses one stream."""

    def __init__(self, bits: int) -> None:
        self._stream = zlib.compressobj(wbits=bits)

    def feed(self, data: Buffer) -> bytes:
        """Return the compressed bytes that are ready."""
        return self._stream.compress(data)

    def flush(self) -> bytes:
        """Return the rest of the data compressed."""
        return self._stream.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        """Return the rest of the data compressed, and the end of the stream."""
        return self._stream.flush(zlib.Z_FINISH)

"""Bodies as they were before an HTTP server compressed them (`Content-Encoding`), without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, final

from asyncdata.errors import MissingDependencyError
from asyncdata.formats.compression import Buffer, Decompressor, FrameReader, ZlibReader, decompressor
from asyncdata.system.optional_packages import require

__all__ = ("ContentDecoder", "accepted_encodings")

BROTLI: Final = "'brotli>=1.2'"
"""The first version whose output can be limited."""

RAW_DEFLATE: Final = -15
ZLIB: Final = 15
"""What zlib calls a stream without a header, and one with it: servers send either as `deflate`."""


def accepted_encodings() -> str:
    """Return the encodings that can be read here, as `Accept-Encoding` has them; some need packages."""
    found: list[str] = []
    for encoding in ("gzip", "deflate", "br", "zstd"):
        with suppress(MissingDependencyError):
            reader_of(encoding, "")
            found.append(encoding)
    return ", ".join(found)


@final
class ContentDecoder:
    """Undoes the encodings of a body, the last one first. Each may consist of several parts, one after the other."""

    def __init__(self, encodings: str, name: str) -> None:
        names = [found for one in encodings.split(",") if (found := one.strip().lower()) not in ("", "identity")]
        self.steps = [reader_of(one, name) for one in reversed(names)]

    def feed(self, data: bytes) -> Iterator[Buffer]:
        """Yield the decoded content of the next bytes, in pieces; `DataLossError` where they are corrupt."""
        pieces: Iterable[Buffer] = [data]
        for step in self.steps:
            pieces = chain.from_iterable(map(partial(pieces_of, step), pieces))
        return iter(pieces)

    def finish(self) -> None:
        """Raise `DataLossError` if the body ends too early."""
        for step in self.steps:
            step.finish()


def pieces_of(step: Decompressor, data: Buffer) -> Iterator[Buffer]:
    yield step.feed(data)
    while step.waiting:
        yield step.feed(b"")
    step.feed(b"")  # raises an error that was deferred until all before it was returned


def reader_of(encoding: str, name: str) -> Decompressor:
    """Return what undoes one encoding; `ValueError` for an unknown one."""
    match encoding:
        case "gzip" | "x-gzip":
            return decompressor("GZIP", name)
        case "deflate":
            return DeflateReader(name)
        case "zstd":
            return decompressor("ZSTD", name)
        case "br":
            brotli = require("brotli", "Content-Encoding: br", BROTLI)
            if not hasattr(brotli.Decompressor, "can_accept_more_data"):
                raise MissingDependencyError(f"Content-Encoding: br needs pip install {BROTLI}")
            return FrameReader(partial(BrotliFrame, brotli), (brotli.error,), name)
        case _:
            raise ValueError(f"{name}: Content-Encoding must be one of {accepted_encodings()}, got {encoding:.80}")


@final
class DeflateReader:
    """Decompresses `deflate`, with a header or without: its first two bytes show which it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head = b""
        self.stream: ZlibReader | None = None

    @property
    def waiting(self) -> bool:
        """Whether `feed(b"")` may return more."""
        return self.stream is not None and self.stream.waiting

    def feed(self, data: Buffer) -> Buffer:
        """Decompress the next bytes."""
        if self.stream is None:
            self.head += data
            if len(self.head) < 2:
                return b""
            has_header = self.head[0] & 15 == 8 and int.from_bytes(self.head[:2], "big") % 31 == 0
            self.stream = ZlibReader(ZLIB if has_header else RAW_DEFLATE, self.name)
            data = self.head
        return self.stream.feed(data)

    def finish(self) -> None:
        """Raise `DataLossError` if the stream ends too early."""
        stream = self.stream or ZlibReader(RAW_DEFLATE, self.name)
        if self.stream is None:
            stream.feed(self.head)
        stream.finish()


@final
class BrotliFrame:
    """A stream of brotli, with the methods of Python's own decompressors."""

    unused_data = b""

    def __init__(self, brotli: Any) -> None:
        self.stream = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return self.stream.is_finished()

    @property
    def needs_input(self) -> bool:
        return self.stream.can_accept_more_data()

    def decompress(self, data: Buffer, most: int) -> bytes:
        """Decompress the next bytes, to about `most` bytes."""
        return self.stream.process(bytes(data), output_buffer_limit=most)

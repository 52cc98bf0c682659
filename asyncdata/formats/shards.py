"""ShardParser: samples of shards whose headers say where each begins, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import unpack_from
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError
from asyncdata.formats.mds_encodings import DAMAGED, Decode

__all__ = ("BEGIN_BYTES", "Column", "Layout", "SampleLayout", "ShardFormat", "ShardHeader", "ShardParser", "offsets_of")

Buffer = bytes | bytearray | memoryview

BEGIN_BYTES: Final = 8
"""The bytes of a shard that tell the size of its header."""


@dataclass(frozen=True)
class Column:
    """A column of a shard: its name, its encoding, and its size in bytes, `None` if each sample has its own."""

    name: str
    encoding: str
    size: int | None
    decode: Decode


class SampleLayout:
    """What the samples of a shard consist of: the sizes of columns without a fixed one, then the columns.

    `build` makes a sample of the values of the columns, `unpack` the bytes of a sample of those in the file.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        build: Callable[[list[Any]], Any],
        unpack: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._columns = columns
        self._build = build
        self._unpack = unpack
        own = sum(column.size is None for column in columns)
        self._sizes = f"<{own}I"
        self._begin = 4 * own
        self._fixed = self._begin + sum(column.size or 0 for column in columns)
        self._given = [column.size for column in columns] if own < len(columns) else None
        self._decoders = [column.decode for column in columns]

    def sample(self, name: str, data: memoryview, offset: int, begin: int, end: int) -> Any:
        """Return the sample in a part of `data`, or its error; it is at `offset` in the file `name`. Nothing in it
        refers to `data`."""
        try:
            if self._unpack is None:
                return self.decode(data, begin, end)
            found = memoryview(self._unpack(bytes(data[begin:end])))
            return self.decode(found, 0, len(found))
        except (ValueError, DataLossError) as error:
            return DataLossError(f"{name}: the sample at byte {offset}: {error}")

    def decode(self, data: memoryview, begin: int, end: int) -> Any:
        """Return the sample in a part of `data`; `ValueError` if it is damaged."""
        at = begin + self._begin
        sizes = unpack_from(self._sizes, data, begin) if at <= end else ()
        if end - begin != self._fixed + sum(sizes):
            raise ValueError(f"its columns are expected to have {self._fixed + sum(sizes)} bytes, not {end - begin}")
        if self._given is not None:
            own = iter(sizes)
            sizes = [next(own) if size is None else size for size in self._given]
        found: list[Any] = []
        try:
            for decode, size in zip(self._decoders, sizes, strict=True):
                found.append(decode(data[at : at + size]))
                at += size
        except DAMAGED as error:
            column, what = self._columns[len(found)], f"{type(error).__name__}: {error}"
            raise ValueError(f"its column {column.name!r} is no {column.encoding} ({what})") from None
        return self._build(found)


class Layout(Protocol):
    """What the samples of a shard consist of."""

    def sample(self, name: str, data: memoryview, offset: int, begin: int, end: int) -> Any:
        """Return the sample in a part of `data`, or its error; it is at `offset` in the file `name`. Nothing in it
        refers to `data`."""
        ...


class ShardHeader(NamedTuple):
    """The header of a shard: where its samples begin, and the last ends, and what they consist of."""

    offsets: npt.NDArray[np.uint32]
    layout: Layout

    @property
    def begin(self) -> int:
        """Where the first sample begins."""
        return int(self.offsets[0])

    @property
    def end(self) -> int:
        """Where the last sample ends, which is the size of the shard."""
        return int(self.offsets[-1])

    def complete(self, size: int) -> int:
        """Return how many samples are complete in the first `size` bytes of the shard."""
        return max(0, int(np.searchsorted(self.offsets, size, side="right")) - 1)

    def check_size(self, size: int) -> None:
        """Raise `ValueError` unless the shard has its size."""
        if size > self.end:
            raise ValueError(f"its end was expected at byte {self.end}, and it continues")
        if size < self.end:
            raise ValueError(f"it is cut short at byte {size}: {self.end} bytes are expected")


def offsets_of(data: bytes, samples: int | None) -> npt.NDArray[np.uint32]:
    """Return where samples begin and the last ends, by a header; `ValueError` if that is damaged, or for another number
    of samples than the folder's index says."""
    (count,) = unpack_from("<I", data)
    if samples not in (None, count):
        raise ValueError(f"it has {count} samples, and {samples} by the index.json of its folder: it is another shard")
    offsets = np.frombuffer(data, "<u4", count + 1, offset=4)
    if len(falling := np.flatnonzero(offsets[1:] <= offsets[:-1])):
        at = 4 * (int(falling[0]) + 2)
        raise ValueError(f"at byte {at} of its header the offset of a later sample was expected")
    return offsets


class ShardFormat(Protocol):
    """What differs between formats of shards."""

    def header_size(self, begin: bytes) -> int:
        """Return the size of the header of a shard with these first bytes; `ValueError` if no shard begins so."""
        ...

    def header(self, path: str, data: bytes) -> ShardHeader:
        """Return the header of the shard at a path; `ValueError` if it is damaged."""
        ...


class ShardParser:
    """Turns the bytes of the shard at a path into samples.

    `name` is the file's name for messages. A sample that is damaged is an error in its place.
    """

    skip = 0
    """The next sample begins at `offset` itself."""

    def __init__(self, path: str, name: str, form: ShardFormat) -> None:
        self._path = path
        self._name = name
        self._form = form
        self._header: ShardHeader | None = None
        self._number = 0  # of the next sample
        self._rest = bytearray()  # the beginning of a sample, or of the header
        self._data = memoryview(b"")  # what follows it
        self._begin = 0  # where the rest begins
        self._end = 0  # of the data
        self._finished = False
        self.offset = 0
        self.lost = False

    def start(self, data: bytes) -> None:
        """Take the header of a file that is resumed at a later sample; `DataLossError` if it is damaged."""
        try:
            self._header = self._form.header(self._path, data)
        except ValueError as error:
            raise DataLossError(f"{self._name}: {error}") from None

    def jump(self, offset: int) -> None:
        """Continue with the bytes from `offset` on: the file's beginning, or where a sample begins."""
        self.offset = self._begin = self._end = offset
        if self._header is not None:
            self._number = int(np.searchsorted(self._header.offsets, offset))

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, after `parse` has returned nothing; they must not change until it does again."""
        self._data = memoryview(data)
        self._end += len(data)

    def finish(self) -> None:
        """Mark the end of the data."""
        self._finished = True

    def parse(self, limit: int) -> list[Any]:
        """Return at most `limit` samples of the data, in order; [] if it needs more data or has ended."""
        if self.lost:
            return []
        try:
            header = self._header or self._read_header()
            count = 0 if header is None else min(limit, header.complete(self._end) - self._number)
            if header is None or count <= 0:
                if header is not None and (self._finished or self._end > header.end):
                    header.check_size(self._end)
                self._keep()
                return []
        except ValueError as error:
            self.lost = True
            return [DataLossError(f"{self._name}: {error}")]
        return self._found(header, header.offsets[self._number : self._number + count + 1].tolist())

    def _found(self, header: ShardHeader, ends: list[int]) -> list[Any]:
        """Return the samples between these offsets."""
        sample, name, found = header.layout.sample, self._name, list[Any]()
        if self._rest:
            found.append(sample(name, memoryview(self._taken(ends[1])), ends[0], 0, ends[1] - ends[0]))
        data, first = self._data, self._begin
        found += [sample(name, data, begin, begin - first, end - first) for begin, end in pairwise(ends[len(found) :])]
        self._number += len(found)
        self._drop(ends[-1])
        return found

    def _read_header(self) -> ShardHeader | None:
        """Return the header, `None` if it is not complete yet."""
        size = BEGIN_BYTES
        if self._end >= size:
            size = self._form.header_size(self._first(BEGIN_BYTES))
        if self._end < size:
            if self._finished:
                raise ValueError(f"it ends at byte {self._end}, where a header of {size} bytes was expected")
            return None
        self._header = self._form.header(self._path, self._taken(size))
        return self._header

    def _first(self, size: int) -> bytes:
        """Return the first bytes."""
        return b"".join([memoryview(self._rest)[:size], self._data[: max(0, size - len(self._rest))]])

    def _taken(self, end: int) -> bytes:
        """Return the bytes up to `end`."""
        found = self._first(end - self._begin)
        self._drop(end)
        return found

    def _drop(self, end: int) -> None:
        """Go on at byte `end`."""
        self._data = self._data[max(0, end - self._begin - len(self._rest)) :]
        self._rest.clear()
        self._begin = self.offset = end

    def _keep(self) -> None:
        """Copy the data that is still needed, as it may change from now on."""
        self._rest += self._data
        self._data = self._data[:0]

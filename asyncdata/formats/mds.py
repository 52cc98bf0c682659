"""MdsParser: samples of the shards that Mosaic's package streaming writes (MDS), without I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct, unpack_from
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError
from asyncdata.formats.mds_encodings import DAMAGED, Decode, decoder_for

__all__ = ("BEGIN_BYTES", "MdsHeader", "MdsLayout", "MdsParser", "header_of", "header_size")

Buffer = bytes | bytearray | memoryview

BEGIN_BYTES: Final = 8
"""The bytes of a shard that tell the size of its header."""

LONGEST: Final = 1 << 20
"""The longest description of the columns in bytes."""


@dataclass(frozen=True)
class Column:
    """A column of a shard: its name, its encoding, and its size in bytes, `None` if each sample has its own."""

    name: str
    encoding: str
    size: int | None
    decode: Decode


class MdsLayout:
    """What the samples of a shard consist of: the sizes of columns without a fixed one, then the columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._sizes = Struct(f"<{sum(column.size is None for column in columns)}I")
        self._fixed = self._sizes.size + sum(column.size or 0 for column in columns)

    def sample(self, name: str, data: bytes, offset: int, begin: int, end: int) -> dict[str, Any] | DataLossError:
        """Return the sample in a part of `data`, or its error; it is at `offset` in the file `name`."""
        try:
            return self.decode(data, begin, end)
        except ValueError as error:
            return DataLossError(f"{name}: the sample at byte {offset}: {error}")

    def decode(self, data: bytes, begin: int, end: int) -> dict[str, Any]:
        """Return the sample in a part of `data`; `ValueError` if it is damaged."""
        at = begin + self._sizes.size
        sizes = self._sizes.unpack_from(data, begin) if at <= end else ()
        if end - begin != self._fixed + sum(sizes):
            raise ValueError(f"its columns are expected to have {self._fixed + sum(sizes)} bytes, not {end - begin}")
        found: dict[str, Any] = {}
        own = iter(sizes)
        for column in self._columns:
            stop = at + (next(own) if column.size is None else column.size)
            try:
                found[column.name] = column.decode(data[at:stop])
            except DAMAGED as error:
                what = f"{type(error).__name__}: {error}"
                raise ValueError(f"its column {column.name!r} is no {column.encoding} ({what})") from None
            at = stop
        return found


class MdsHeader(NamedTuple):
    """The header of a shard: where its samples begin, and the last ends, and what they consist of."""

    offsets: npt.NDArray[np.uint32]
    layout: MdsLayout

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


def header_size(data: bytes) -> int:
    """Return the size of the header that begins with `data`; `ValueError` if no shard begins so."""
    count, begin = unpack_from("<II", data)
    if not 0 < begin - 4 * (count + 2) <= LONGEST:
        raise ValueError(f"at byte 0 the number of samples and where they begin are expected, got {count} and {begin}")
    return begin


def header_of(data: bytes, allow_pickle: bool = False, samples: int | None = None) -> MdsHeader:
    """Return the header of a shard; `ValueError` for other data, for another number of samples than the folder's index
    says, and for pickled columns unless they are allowed."""
    (count,) = unpack_from("<I", data)
    if samples not in (None, count):
        raise ValueError(f"it has {count} samples, and {samples} by the index.json of its folder: it is another shard")
    offsets = np.frombuffer(data, "<u4", count + 1, offset=4)
    if len(falling := np.flatnonzero(offsets[1:] <= offsets[:-1])):
        at = 4 * (int(falling[0]) + 2)
        raise ValueError(f"at byte {at} of its header the offset of a later sample was expected")
    return MdsHeader(offsets, layout_of(data[4 * (count + 2) :], 4 * (count + 2), allow_pickle))


def layout_of(text: bytes, at: int, allow_pickle: bool) -> MdsLayout:
    """Return what a description of columns says."""
    try:
        config: Any = json.loads(text)
        names, encodings, sizes = (config[f"column_{what}"] for what in ("names", "encodings", "sizes"))
        stated = [*zip(map(str, names), map(str, encodings), sizes, strict=True)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"at byte {at} a description of its columns was expected ({error!r:.100})") from None
    if not stated:
        raise ValueError(f"at byte {at} columns are expected, there are none")
    columns: list[Column] = []
    for name, encoding, size in stated:
        fixed, decode = decoder_for(name, encoding, allow_pickle)
        if size != fixed:
            raise ValueError(f"at byte {at} {fixed} is expected as the size of {name!r} ({encoding}), got {size!r:.40}")
        columns.append(Column(name, encoding, fixed, decode))
    return MdsLayout(columns)


class MdsParser:
    """Turns the bytes of a shard into samples, which are dicts of values by column.

    `name` is the file's name for messages. A sample that is damaged is an error in its place.
    """

    passed = 0
    """The next sample begins at `offset` itself."""

    def __init__(self, name: str, allow_pickle: bool = False, samples: int | None = None) -> None:
        self._name = name
        self._allow_pickle = allow_pickle
        self._samples = samples
        self._header: MdsHeader | None = None
        self._number = 0  # of the next sample
        self._data = b""  # from the byte `_begin` of the file on
        self._begin = 0
        self._more: list[bytes] = []  # what follows it
        self._end = 0  # of all of these
        self._finished = False
        self.offset = 0
        self.lost = False

    def start(self, data: bytes) -> None:
        """Take the header of a file that is resumed at a later sample; `DataLossError` if it is damaged."""
        try:
            self._header = header_of(data, self._allow_pickle, self._samples)
        except ValueError as error:
            raise DataLossError(f"{self._name}: {error}") from None

    def jump(self, offset: int) -> None:
        """Continue with the bytes from `offset` on: the file's beginning, or where a sample begins."""
        self.offset = self._begin = self._end = offset
        if self._header is not None:
            self._number = int(np.searchsorted(self._header.offsets, offset))

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes."""
        self._more.append(bytes(data))
        self._end += len(data)

    def finish(self) -> None:
        """Mark the end of the data."""
        self._finished = True

    def parse(self, limit: int) -> list[dict[str, Any] | DataLossError]:
        """Return at most `limit` samples of the data, in order; [] if it needs more data or has ended."""
        if self.lost:
            return []
        try:
            header = self._header or self._read_header()
            if header is None:
                return []
            count = min(limit, header.complete(self._end) - self._number)
            if count <= 0:
                if self._finished or self._end > header.end:
                    header.check_size(self._end)
                return []
        except ValueError as error:
            self.lost = True
            return [DataLossError(f"{self._name}: {error}")]
        return self._found(header, header.offsets[self._number : self._number + count + 1].tolist())

    def _found(self, header: MdsHeader, ends: list[int]) -> list[dict[str, Any] | DataLossError]:
        """Return the samples between these offsets."""
        self._gather()
        found = [
            header.layout.sample(self._name, self._data, begin, begin - self._begin, end - self._begin)
            for begin, end in pairwise(ends)
        ]
        self._number += len(found)
        self.offset = ends[-1]
        return found

    def _read_header(self) -> MdsHeader | None:
        """Return the header, `None` if it is not complete yet."""
        size = BEGIN_BYTES
        if self._end >= size:
            size = header_size(self._first(BEGIN_BYTES))
        if self._end < size:
            if self._finished:
                raise ValueError(f"it ends at byte {self._end}, where a header of {size} bytes was expected")
            return None
        self._gather()
        self._header = header_of(self._data[:size], self._allow_pickle, self._samples)
        self.offset = size
        return self._header

    def _first(self, size: int) -> bytes:
        """Return the first bytes."""
        if len(self._data) < size:
            self._gather()
        return self._data[:size]

    def _gather(self) -> None:
        """Make one piece of the data that is still needed."""
        if self._more:
            self._data = b"".join([self._data[self.offset - self._begin :], *self._more])
            self._begin = self.offset
            self._more.clear()

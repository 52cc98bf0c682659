"""Chunks of LitData whose samples are stored in groups: compressed together by zstd, or as batches of Arrow."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import RawIOBase
from itertools import accumulate
from struct import Struct, unpack_from
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError
from asyncdata.formats.compression import decompressor
from asyncdata.formats.shards import Layout
from asyncdata.system.optional_packages import require

__all__ = ("FRAMED", "Groups", "groups_of", "unpacked")

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""Returns so many bytes from an offset on, fewer at the end of the file."""

FRAMED: Final = b"LDFZ01\0\0"
"""The first bytes of a chunk of groups that are compressed."""

PREFIX: Final = Struct("<8sHHIII")

FRAME: Final = np.dtype([("first", "<u4"), ("count", "<u4"), ("at", "<u8"), ("size", "<u4"), ("whole", "<u4")])

ARROW: Final = b"LDARW01\0"
"""The last bytes of a chunk whose rows are batches of Arrow."""


@dataclass(frozen=True)
class Groups:
    """Where groups of samples begin, by number, and at the end how many samples there are."""

    begins: Sequence[int]

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.begins[-1]

    def end(self, number: int) -> int:
        """Return the number of the sample after the group of one."""
        return self.begins[bisect_right(self.begins, number)]

    def read(self, read_at: ReadAt, size: int, name: str, records: Sequence[int]) -> list[Any]:
        """Return samples of a file of so many bytes, errors in the places of lost ones."""
        places: dict[int, list[int]] = {}
        for place, number in enumerate(records):
            places.setdefault(bisect_right(self.begins, number) - 1, []).append(place)
        found: list[Any] = [None] * len(records)
        for group, wanted in places.items():  # each is read once, and only one is held
            samples = self.group(read_at, size, name, group)
            for place in wanted:
                found[place] = samples[records[place] - self.begins[group]]
        return found

    def group(self, read_at: ReadAt, size: int, name: str, group: int) -> list[Any]:
        """Return the samples of a group."""
        try:
            return self.decoded(read_at, size, name, group)
        except (ValueError, DataLossError) as error:
            lost = f"{name}: samples {self.begins[group]} to {self.begins[group + 1]}: {error}"
            return [DataLossError(lost) for _ in range(self.begins[group + 1] - self.begins[group])]

    def decoded(self, read_at: ReadAt, size: int, name: str, group: int) -> list[Any]:
        """Return the samples of a group; `ValueError` if it is damaged."""
        raise NotImplementedError


@dataclass(frozen=True)
class FramedGroups(Groups):
    """Groups that are compressed, each in a frame of zstd."""

    frames: npt.NDArray[Any]
    offsets: npt.NDArray[np.uint32]
    """Where samples begin in all groups together, decompressed."""
    layout: Layout

    @classmethod
    def of(cls, read_at: ReadAt, size: int, layout: Layout) -> FramedGroups:
        """Return the groups that the beginning of a chunk describes; `ValueError` if it is damaged."""
        _, version, _, samples, _, count = PREFIX.unpack(read_at(0, PREFIX.size).ljust(PREFIX.size, b"\0"))
        begin = PREFIX.size + 4 * (samples + 1)
        end = begin + FRAME.itemsize * count
        if version != 1 or not 0 < count <= samples or end > size:
            raise ValueError(f"a description of {samples} samples in {count} groups was expected, in {size} bytes")
        offsets = np.frombuffer(read_at(PREFIX.size, 4 * (samples + 1)), "<u4")
        frames = np.frombuffer(read_at(begin, end - begin), FRAME)
        begins = [*accumulate(frames["count"].tolist(), initial=0)]
        places = [*accumulate(frames["size"].tolist(), initial=end)]
        wholes = np.diff(offsets.astype(np.int64)[np.minimum(begins, samples)])
        if (
            begins[-1] != samples
            or not np.array_equal(frames["first"], begins[:-1])
            or not np.array_equal(frames["at"], places[:-1])
            or not np.array_equal(frames["whole"], wholes)
            or places[-1] != size
            or (offsets[1:] <= offsets[:-1]).any()
        ):
            raise ValueError("the places of its samples and groups contradict each other, or its size")
        return cls(begins, frames, offsets, layout)

    def decoded(self, read_at: ReadAt, size: int, name: str, group: int) -> list[Any]:
        frame = self.frames[group]
        data = memoryview(unpacked(read_at(int(frame["at"]), int(frame["size"])), int(frame["whole"])))
        begin, end = self.begins[group], self.begins[group + 1]
        places = (self.offsets[begin : end + 1] - self.offsets[begin]).tolist()
        return [
            self.layout.sample(name, data, int(frame["at"]), places[row], places[row + 1]) for row in range(end - begin)
        ]


@dataclass(frozen=True)
class ArrowGroups(Groups):
    """Rows that are batches of a file of Arrow within the chunk."""

    at: int
    length: int

    @classmethod
    def of(cls, read_at: ReadAt, size: int, samples: int) -> ArrowGroups:
        """Return the groups that the end of a chunk describes; `ValueError` if it is damaged."""
        begin = 4 * (samples + 2)
        (length,) = unpack_from("<I", read_at(size - 12, 4))
        if begin + length + 12 != size:
            raise ValueError(f"a table of Arrow of {size - begin - 12} bytes was expected, got {length}")
        with opened_table(read_at, begin, length) as table:
            last: int = table.num_record_batches - 1
            ends: list[int] = [table.get_batch(place).num_rows for place in {0, max(0, last)} if last >= 0]
        counts = [ends[0]] * last + ends[-1:] if ends else []
        if sum(counts) != samples:
            raise ValueError(f"it has {sum(counts)} rows, and {samples} by its header")
        return cls([*accumulate(counts, initial=0)], begin, length)

    def decoded(self, read_at: ReadAt, size: int, name: str, group: int) -> list[Any]:
        pa = require("pyarrow", "LitDataset", "'asyncdata[parquet]'")
        try:
            with opened_table(read_at, self.at, self.length) as table:
                batch = table.get_batch(group)
            batch.validate(full=True)
            rows: list[Any] = batch.to_pylist()
        except pa.ArrowException as error:
            raise ValueError(f"they are no batch of Arrow: {error}") from None
        if len(rows) != self.begins[group + 1] - self.begins[group]:
            raise ValueError(f"their batch has {len(rows)} rows")
        return rows


class Window(RawIOBase):
    """A part of a file, as pyarrow reads one."""

    def __init__(self, read_at: ReadAt, at: int, length: int) -> None:
        self._read_at = read_at
        self._at = at
        self._length = length
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self._length)[whence]
        return self._place

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._length - self._place)
        data = self._read_at(self._at + self._place, rest if size < 0 else min(size, rest))
        self._place += len(data)
        return data


def opened_table(read_at: ReadAt, at: int, length: int) -> Any:
    """Return the reader of a file of Arrow within another file; `ValueError` if it is damaged."""
    ipc: Any = require("pyarrow.ipc", "LitDataset", "'asyncdata[parquet]'")
    pa = require("pyarrow", "LitDataset", "'asyncdata[parquet]'")
    try:
        return ipc.open_file(pa.PythonFile(Window(read_at, at, length), "r"))
    except pa.ArrowException as error:
        raise ValueError(f"at byte {at} a table of Arrow was expected: {error}") from None


def groups_of(read_at: ReadAt, size: int, layout: Layout, samples: int) -> Groups | None:
    """Return the groups of a chunk of so many bytes, `None` if it has none; `ValueError` if they are damaged, or have
    another number of samples than the folder's index says."""
    found = described(read_at, size, layout)
    if found is not None and found.samples != samples:
        raise ValueError(f"it has {found.samples} samples, and {samples} by the index.json of its folder")
    return found


def described(read_at: ReadAt, size: int, layout: Layout) -> Groups | None:
    """Return the groups that a chunk describes."""
    head = read_at(0, 8)
    if head == FRAMED:
        return FramedGroups.of(read_at, size, layout)
    if len(head) < 8 or size < 20 or read_at(size - 8, 8) != ARROW:
        return None
    (samples,) = unpack_from("<I", head)
    begin = 4 * (samples + 2)
    if begin > size or read_at(4, begin - 4) != np.uint32(begin).tobytes() * (samples + 1):
        return None
    return ArrowGroups.of(read_at, size, samples)


def unpacked(data: bytes, size: int = -1) -> bytes:
    """Return what a frame of zstd contains; `ValueError` if it has not `size` bytes."""
    found = b"".join(parts_of(data, size))
    if size not in (-1, len(found)):
        raise ValueError(f"{size} bytes were expected in a frame of zstd, got {len(found)}")
    return found


def parts_of(data: bytes, size: int) -> Iterator[bytes]:
    """Yield the contents of a frame of zstd, not much more than `size` bytes."""
    stream, done = decompressor("ZSTD", "a frame of zstd"), 0
    part = bytes(stream.feed(data))
    while part or stream.waiting:
        yield part
        done += len(part)
        if 0 <= size < done:
            return
        part = bytes(stream.feed(b"")) if stream.waiting else b""
    stream.finish()

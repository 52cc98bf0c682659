"""MP4 and MOV: how much later than it is decoded each frame of a track is shown, which PyAV does not tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ("display_offsets",)

TABLE: Final = (b"mdia", b"minf", b"stbl")
"""The boxes of a track in which its tables are."""


def display_offsets(file: Any, track: int, count: int) -> npt.NDArray[np.int64] | None:
    """Return ticks from when each of `count` frames is decoded to when it is shown; `None` if the file does not say."""
    at = file.tell()
    try:
        end = file.seek(0, 2)
        for movie in boxes(file, b"moov", (0, end)):
            for place in boxes(file, b"trak", movie):
                if track_number(file, place) == track:
                    return offsets_in(file, place, count)
        return None
    finally:
        file.seek(at)


def boxes(file: Any, kind: bytes, place: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield where the contents of boxes of one kind begin and end, of those between two places."""
    begin, end = place
    while begin + 8 <= end:
        file.seek(begin)
        head = file.read(16)
        size, inner = int.from_bytes(head[:4]), 8
        if size == 1:
            size, inner = int.from_bytes(head[8:]), 16
        stop = begin + size if size else end
        if stop < begin + inner or stop > end:
            return
        if head[4:8] == kind:
            yield begin + inner, stop
        begin = stop


def content(file: Any, kind: bytes, place: tuple[int, int]) -> bytes | None:
    """Return the bytes of the first box of a kind."""
    for begin, end in boxes(file, kind, place):
        file.seek(begin)
        return file.read(end - begin)
    return None


def track_number(file: Any, place: tuple[int, int]) -> int:
    """Return the number of a track, by which FFmpeg names its stream; -1 if it has none."""
    header = content(file, b"tkhd", place) or b""
    begin = 20 if header[:1] == b"\1" else 12
    return int.from_bytes(header[begin : begin + 4]) if len(header) >= begin + 4 else -1


def offsets_in(file: Any, place: tuple[int, int], count: int) -> npt.NDArray[np.int64] | None:
    """Return the offsets in a track: runs of frames with the same one, or no table if all are 0."""
    for kind in TABLE:
        place = next(boxes(file, kind, place), (0, 0))
    table = content(file, b"ctts", place)
    if table is None:
        return np.zeros(count, np.int64) if place[1] else None
    runs = np.frombuffer(table, ">i4", 2 * int.from_bytes(table[4:8]), 8) if is_whole(table) else np.empty(0, ">i4")
    lengths, offsets = runs[::2].astype(np.uint32).astype(np.int64), runs[1::2].astype(np.int64)
    return np.repeat(offsets, lengths) if lengths.sum() == count else None


def is_whole(table: bytes) -> bool:
    """Return whether a table has as many runs as it says."""
    return len(table) >= 8 + 8 * int.from_bytes(table[4:8])

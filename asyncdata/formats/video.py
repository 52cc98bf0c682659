"""decode_video_clip: frames of a video as an array, decoded from the keyframe before them."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import floor
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.errors import AsyncDataError, DataLossError, PlanError, StructureError
from asyncdata.formats.mp4 import display_offsets
from asyncdata.system.optional_packages import require

__all__ = ("EXACT", "STRICT", "Pixels", "Video", "decode_video_clip", "entries_of", "explain_damage", "opened_media")

METHOD: Final = "decode_video_clip"
INSTALL: Final = "'asyncdata[lerobot]'"

Pixels: TypeAlias = npt.NDArray[np.uint8]

EXACT: Final = 1e-4
"""Seconds by which a frame may differ from a time and still be the one that is meant: times are rounded."""

SOUGHT: Final = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
"""Formats that store the time of each frame and where keyframes are. Others are decoded from the first frame on."""

BACK: Final = 0.5
"""Seconds to seek further back, doubled each time, if the frames at the place found come after the one sought."""

STRICT: Final = {"err_detect": "crccheck+explode"}
"""Options of a decoder that have it raise where it would conceal damage."""


def decode_video_clip(
    contents: bytes | str | os.PathLike[str],
    *,
    times: Sequence[float] | npt.NDArray[np.floating] | None = None,
    frames: Sequence[int] | npt.NDArray[np.integer] | None = None,
) -> Pixels:
    """Return frames of a video as a new array of (frames, height, width, 3), uint8: red, green and blue.

    `contents` are the bytes of a file or its path. `times` are in seconds, each gives the frame nearest to it; `frames`
    are numbers from 0 on, such as `range(0, 64, 2)`; both in any order and with repetitions. Without them it is the
    whole video. The first video stream is decoded, by PyAV (`pip install 'asyncdata[lerobot]'`), which brings FFmpeg.

    Only what is needed is read and decoded: from the last keyframe before a frame on, in MP4, MOV, Matroska and WebM;
    in other files, such as MPEG-TS and AVI, from the first frame on. The frames of a video whose rate varies are
    counted first, for which all of it is read. Values of more than 8 bits are
    rounded to 8, and pictures are not turned as the metadata says. A damaged video, or one that is cut short, is a
    `DataLossError`; a time or a number outside of the video a `PlanError`.

    >>> import asyncdata as ad
    >>> clip = ad.decode_video_clip("robot.mp4", times=[0.0, 0.5, 1.0])  # doctest: +SKIP
    >>> clip.shape  # doctest: +SKIP
    (3, 48, 64, 3)
    """
    if times is not None and frames is not None:
        raise PlanError(f"{METHOD}: give times= or frames=, not both")
    with opened_media(contents) as (file, name), Video(file, name) as video:
        if frames is not None:
            return video.numbered(numbers_in(frames))
        return video.whole() if times is None else video.at(video.checked(times))


def numbers_in(frames: Any) -> npt.NDArray[np.int64]:
    """Return numbers of frames as an array; `PlanError` if they are none."""
    found = np.asarray(frames)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise PlanError(f"{METHOD}(frames=) must be numbers of frames, such as range(16), got {frames!r:.80}")
    return found.astype(np.int64)


@contextmanager
def opened_media(contents: bytes | str | os.PathLike[str]) -> Generator[tuple[Any, str]]:
    """Open the bytes of a file, or the file at a path; give it, and a name for messages."""
    if isinstance(contents, (str, os.PathLike)):
        if "://" in (path := os.fspath(contents)):
            raise PlanError(
                f"a path on this machine or the bytes of a file are decoded, got {path!r}: read_file reads it"
            )
        with open(path, "rb") as file:
            yield file, path
    elif hasattr(contents, "dtype"):  # whose bytes could be read
        kind = type(contents).__name__
        raise PlanError(f"a path on this machine or the bytes of a file are decoded, got {kind}: {contents!r:.80}")
    else:
        yield io.BytesIO(contents), f"{len(contents)} bytes"


@contextmanager
def explain_damage(name: str, method: str = METHOD) -> Generator[None]:
    """Raise an error of FFmpeg as a `DataLossError` that names the file."""
    av = require("av", method, INSTALL)
    try:
        yield
    except AsyncDataError:
        raise
    except (av.FFmpegError, ValueError, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, av.FFmpegError) and error.errno != errno.EINVAL:
            raise  # of the file; a place that is none, where a damaged file sends FFmpeg, is EINVAL or a ValueError
        raise DataLossError(f"{name}: it cannot be decoded: {getattr(error, 'strerror', None) or error}") from None


class Video:
    """A video that is open, and decoded up to a place. It has no threads, and is used by one at a time."""

    def __init__(self, file: Any, name: str, buffer_bytes: int = 1 << 15) -> None:
        """Open the video in a file object, of which `buffer_bytes` are read at once."""
        self.name = name
        self.file = file
        self.buffer_bytes = buffer_bytes
        with explain_damage(name):
            self.open()
        self.base = float(self.stream.time_base)
        self.begin = float((self.stream.start_time or 0) * self.base)
        self.is_sought = self.container.format.name in SOUGHT
        """Whether a frame has the same time after a seek."""
        self.times_repeat = False
        """Whether it is known that some frames have the same time, so that only their order tells them apart."""

    def open(self) -> None:
        """Begin with the first frame."""
        av = require("av", METHOD, INSTALL)
        self.container = av.open(self.file, metadata_errors="ignore", buffer_size=self.buffer_bytes)
        if not self.container.streams.video:
            raise DataLossError(f"{self.name}: it has no video stream")
        self.stream = self.container.streams.video[0]
        if self.stream.codec_context is None:
            raise DataLossError(f"{self.name}: it has a codec without a decoder")
        self.stream.codec_context.thread_count = 1
        self.stream.codec_context.options = {**STRICT}
        self.frames: Iterator[Any] = self.container.decode(self.stream)
        self.before: Any = None
        """The frame before the last one that was decoded, if it follows a seek."""
        self.last: Any = None
        self.is_from_begin = True

    def reopen(self) -> None:
        """Begin with the first frame again, to which a seek may not come."""
        self.close()
        self.file.seek(0)
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what FFmpeg holds."""
        self.before = self.last = None
        self.container.close()

    # which frames

    def checked(self, times: Any) -> npt.NDArray[np.float64]:
        """Return times as an array; `PlanError` if they are no times in the video."""
        found = np.asarray(times)
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iuf"):
            raise PlanError(f"{METHOD}(times=) must be times in seconds, got {times!r:.80}")
        is_known = self.is_sought and self.stream.duration
        end = self.begin + self.stream.duration * self.base if is_known else np.inf  # others have an estimate
        if found.size and found.max() > end:  # which is when the last frame is decoded; it may be shown later
            end = max(end, float(self.stamps.max(initial=0) * self.base))
        outside = ~((found >= self.begin - EXACT) & (found <= end))
        if outside.any():
            raise PlanError(
                f"{METHOD}(times=): the video goes from {self.begin:g} s to {end:g} s, got {found[outside][0]:g} s"
            )
        return found.astype(np.float64)

    def numbered(self, numbers: npt.NDArray[np.int64]) -> Pixels:
        """Return frames by number; `PlanError` if there are no such frames."""
        if self.is_sought:
            times = self.times_of(numbers)
            if not self.times_repeat:
                return self.at(times)
        check_numbers(numbers, np.iinfo(np.int64).max)
        wanted, found, count = {*numbers.tolist()}, dict[int, Pixels](), 0
        with explain_damage(self.name):
            while len(found) < len(wanted) and (frame := next(self.frames, None)) is not None:
                if count in wanted:
                    found[count] = self.pixels(frame, next((one.shape for one in found.values()), None))
                count += 1
        if len(found) < len(wanted):
            if count < max(1, self.stream.frames):
                raise DataLossError(f"{self.name}: it has {count} frames, and {self.stream.frames} by its header")
            check_numbers(numbers, count)
        size = self.stream.codec_context.height, self.stream.codec_context.width
        return np.stack([found[one] for one in numbers.tolist()]) if found else np.empty((0, *size, 3), np.uint8)

    def times_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the times of frames by number."""
        entries = entries_of(self.stream)
        known, step = self.regular(entries) if 0 < len(entries) == self.stream.frames else (0, 0)
        stamps = None if known else self.stamps
        count = known if stamps is None else len(stamps)
        if not count:
            raise DataLossError(f"{self.name}: it has no frames")
        check_numbers(numbers, count)
        self.times_repeat = stamps is not None and not np.diff(stamps).all()
        if stamps is None:
            return (self.begin + numbers * step * self.base).astype(np.float64)
        return (stamps[numbers] * self.base).astype(np.float64)

    def regular(self, entries: Any) -> tuple[int, int]:
        """Return how many frames there are and how many ticks apart they are shown, if always as many; else zeros."""
        later = display_offsets(self.file, self.stream.id, len(entries))
        if later is None or any(entry.is_discard for entry in entries):
            return 0, 0
        steps = np.unique(np.diff(np.sort(later + np.array([entry.timestamp for entry in entries], np.int64))))
        return (0, 0) if len(steps) > 1 or not steps.all() else (len(entries), int(steps[0]) if len(steps) else 0)

    @cached_property
    def stamps(self) -> npt.NDArray[np.int64]:
        """The time stamps of all frames in order: their packets are read, and not decoded."""
        with explain_damage(self.name):
            self.reopen()
            packets = [packet for packet in self.container.demux(self.stream) if packet.pts is not None]
            self.reopen()
        return np.sort(np.array([packet.pts for packet in packets if not packet.is_discard], np.int64))

    # decoding

    def at(self, times: npt.NDArray[np.float64]) -> Pixels:
        """Return the frames nearest to some times, in the order of the times."""
        return self.nearest(times)[0]

    def nearest(self, times: npt.NDArray[np.float64]) -> tuple[Pixels, npt.NDArray[np.float64]]:
        """Return the frames nearest to some times, and their own times."""
        context = self.stream.codec_context
        found = np.empty((len(times), context.height, context.width, 3), np.uint8)
        stamps = np.empty(len(times), np.float64)
        done: Any = None
        with explain_damage(self.name):
            for place, which in enumerate(order := np.argsort(times, kind="stable").tolist()):
                frame = self.frame_near(float(times[which]))
                if frame is done:
                    found[which] = found[order[place - 1]]
                else:
                    found[which] = self.pixels(frame, found.shape[1:])
                stamps[which], done = frame.time, frame
        return found, stamps

    def whole(self) -> Pixels:
        """Return all frames."""
        with explain_damage(self.name):
            frames = [self.pixels(frame) for frame in self.frames]
        if not frames:
            raise DataLossError(f"{self.name}: it has no frames")
        if len(frames) < self.stream.frames:
            raise DataLossError(f"{self.name}: it has {len(frames)} frames, and {self.stream.frames} by its header")
        if len({frame.shape for frame in frames}) > 1:
            raise StructureError(f"{self.name}: the size of its frames changes")
        return np.stack(frames)

    def pixels(self, frame: Any, shape: tuple[int, ...] | None = None) -> Pixels:
        """Return a frame as an array; `DataLossError` if it is damaged."""
        if frame.is_corrupt:
            raise DataLossError(f"{self.name}: the frame at {frame.time:g} s is damaged")
        found = frame.to_ndarray(format="rgb24")
        if shape is not None and found.shape != shape:
            raise StructureError(f"{self.name}: the size of its frames changes, at {frame.time:g} s")
        return found

    def frame_near(self, time: float) -> Any:
        """Return the frame nearest to a time, of which the caller knows that it is in the video."""
        try:
            if not self.is_ahead(time):
                self.seek(time)
            return self.next_near(time)
        except require("av", METHOD, INSTALL).error.InvalidDataError:
            if self.is_from_begin:
                raise
        self.reopen()  # it may need frames before the keyframe
        return self.next_near(time)

    def next_near(self, time: float) -> Any:
        """Decode up to the frame nearest to a time, and return it."""
        while self.last is None or self.last.time < time - EXACT:
            following = next(self.frames, None)
            if following is None:
                break
            if not self.is_sought and (following.time is None or (self.last and following.time <= self.last.time)):
                raise DataLossError(f"{self.name}: times of its frames do not increase: give frames= instead of times=")
            self.before, self.last = self.last, following
        if self.last is None or self.last.time + (self.last.duration or 0) * self.base < time - EXACT:
            end = "no frames" if self.last is None else f"its last frame at {self.last.time:g} s"
            raise DataLossError(f"{self.name}: it has {end}, where one at {time:g} s was expected: it is cut short")
        if self.before is not None and time - self.before.time < self.last.time - time:
            return self.before
        return self.last

    def is_ahead(self, time: float) -> bool:
        """Return whether decoding goes on up to a time, rather than from a keyframe before it."""
        if self.last is None:
            return self.is_from_begin and not self.is_sought
        if time <= self.last.time + EXACT:
            return time >= (self.last if self.before is None else self.before).time - EXACT
        if not self.is_sought:
            return True
        entries = entries_of(self.stream)
        place = entries.search_timestamp(floor((time + EXACT) / self.base)) if len(entries) else -1
        if place < 0:
            return time < self.last.time + 1
        return entries[place].timestamp <= self.last.pts

    def seek(self, time: float) -> None:
        """Go to the last keyframe from which the frame at a time can be decoded."""
        if not self.is_sought:
            self.reopen()
            return
        back, self.is_from_begin = 0.0, False
        while True:
            start = max(self.begin, time - back)
            self.before = self.last = None
            self.container.seek(floor((start + EXACT) / self.base), stream=self.stream)
            self.frames = self.container.decode(self.stream)
            self.last = next(self.frames, None)
            if start <= self.begin or (self.last is not None and self.last.time <= time + EXACT):
                return
            back = back * 2 or BACK


def entries_of(stream: Any) -> Any:
    """Return the index of a stream, which is empty for PyAV 15, as for files without one."""
    return getattr(stream, "index_entries", ())


def check_numbers(numbers: npt.NDArray[np.int64], count: int) -> None:
    """Raise `PlanError` for a number of a frame that a video does not have."""
    outside = (numbers < 0) | (numbers >= count)
    if outside.any():
        has = "frames are" if count == np.iinfo(np.int64).max else f"the video has {count} frames,"
        raise PlanError(f"{METHOD}(frames=): {has} numbered from 0, got {numbers[outside][0]}")

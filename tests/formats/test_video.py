"""Clips of videos as arrays, compared with all frames of PyAV, decoded in order."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.video import Video
from tests.marks import first_by_default
from tests.videos import number_in, write_video

pytestmark = pytest.mark.formats

KINDS: dict[str, dict[str, Any]] = {
    "b frames": {},
    "as lerobot": {"codec": "libsvtav1", "gop": 2, "preset": "12"},
    "keyframes": {"gop": 1, "b_frames": 0},
    "one keyframe": {"gop": 250, "b_frames": 3},
    "mpeg4": {"codec": "mpeg4"},
    "mkv": {"suffix": ".mkv"},
}


def made(folder: Path, times: Any = range(60), suffix: str = ".mp4", **how: Any) -> tuple[Path, Any]:
    """Write a video; return its path, and all its frames as PyAV decodes them."""
    path = folder / f"a{suffix}"
    write_video(path, times, **how)
    with pytest.importorskip("av").open(str(path)) as file:
        return path, np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


@pytest.mark.parametrize("kind", first_by_default([*KINDS], 2))
def test_any_frames_are_those_of_the_whole(kind: str, tmp_path: Path) -> None:
    path, whole = made(tmp_path, **KINDS[kind])
    content = path.read_bytes()
    assert [*map(number_in, whole)] == [*range(50), *range(10)]
    assert np.array_equal(ad.decode_video_clip(path), whole)
    rng = np.random.default_rng(0)
    with Video(io.BytesIO(content), "one video for many clips") as video:
        for _ in range(50):
            numbers = rng.integers(0, 60, rng.integers(1, 6))
            for found in (ad.decode_video_clip(content, frames=numbers), video.at(video.times_of(numbers))):
                assert found.dtype == np.uint8
                assert np.array_equal(found, whole[numbers])
            near = numbers / 30 + rng.uniform(-0.01, 0.01, len(numbers)).clip(-numbers / 30)
            for found in (ad.decode_video_clip(str(path), times=near), video.at(near)):
                assert np.array_equal(found, whole[numbers])


@pytest.mark.parametrize("suffix", [".ts", ".avi"])
def test_formats_in_which_a_seek_changes_times_are_read_from_the_first_frame_on(suffix: str, tmp_path: Path) -> None:
    path, whole = made(tmp_path, suffix=suffix)
    rng = np.random.default_rng(0)
    for _ in range(10):
        numbers = rng.integers(0, len(whole), rng.integers(1, 6))
        assert np.array_equal(ad.decode_video_clip(path, frames=numbers), whole[numbers])
    assert ad.decode_video_clip(path, frames=[]).shape == (0, 48, 64, 3)
    for number in (-1, len(whole)):
        with pytest.raises(ad.PlanError, match=f"numbered from 0, got {number}"):
            ad.decode_video_clip(path, frames=[3, number])
    if suffix == ".avi":  # which does not store times
        with pytest.raises(ad.DataLossError, match="times of its frames do not increase: give frames="):
            ad.decode_video_clip(path, times=[1.0])
        return
    with pytest.importorskip("av").open(str(path)) as file:
        times = np.array([frame.time for frame in file.decode(video=0)])
    for numbers in ([40, 3, 41], [59], [0, 59, 30]):
        assert np.array_equal(ad.decode_video_clip(path, times=times[numbers]), whole[numbers])


def test_frames_that_need_some_from_before_their_keyframe(tmp_path: Path) -> None:
    how = {"x264-params": "open-gop=1:bframes=3:keyint=8:b-pyramid=normal"}
    path, whole = made(tmp_path, **how)
    for numbers in ([30, 9, 55], [23, 22, 47], [*range(5, 60, 9)]):
        assert np.array_equal(ad.decode_video_clip(path, frames=numbers), whole[numbers])


def test_frames_of_a_rate_that_varies(tmp_path: Path) -> None:
    times = [0, *np.cumsum(np.random.default_rng(1).integers(1, 5, 59)).tolist()]
    path, whole = made(tmp_path, times)
    for number in (0, 1, 17, 58, 59):
        found = ad.decode_video_clip(path, frames=[number])
        assert np.array_equal(found, whole[[number]])
        assert np.array_equal(ad.decode_video_clip(path, times=[times[number] / 30]), found)
    assert np.array_equal(ad.decode_video_clip(path, frames=range(60)), whole)
    assert ad.decode_video_clip(path, frames=[]).shape == (0, 48, 64, 3)


def test_frames_of_the_same_time_are_told_apart_by_their_order(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    write_video(tmp_path / "b.mp4", range(30), b_frames=0)
    path = tmp_path / "a.mp4"
    with av.open(str(tmp_path / "b.mp4")) as file, av.open(str(path), "w") as changed:
        (stream,) = file.streams
        other = changed.add_stream_from_template(stream)
        for packet in file.demux(stream):
            if packet.dts is None:
                continue
            place, tick = packet.pts // packet.duration, packet.duration
            packet.dts, packet.stream = packet.dts - tick, other
            packet.pts -= tick if place % 6 == 3 else 0
            changed.mux(packet)
    whole = ad.decode_video_clip(path)
    assert [*map(number_in, whole)] == [*range(30)]
    for numbers in ([3], [2, 3, 4], [27, 9, 9]):
        assert np.array_equal(ad.decode_video_clip(path, frames=numbers), whole[numbers])
    with pytest.raises(ad.PlanError, match="the video has 30 frames"):
        ad.decode_video_clip(path, frames=[30])


@pytest.mark.parametrize("b_frames", [0, 2])
def test_frames_that_are_decoded_but_not_shown_at_equal_steps(b_frames: int, tmp_path: Path) -> None:
    """The index of a file has the times of decoding: by these alone other frames were given."""
    av = pytest.importorskip("av")
    write_video(tmp_path / "b.mp4", range(60), b_frames=b_frames)
    path = tmp_path / "a.mp4"
    with av.open(str(tmp_path / "b.mp4")) as file, av.open(str(path), "w") as changed:
        (stream,) = file.streams
        other, first, tick = changed.add_stream_from_template(stream), None, 0
        for packet in file.demux(stream):
            if packet.dts is None:
                continue
            first, tick = packet.pts if first is None else first, packet.duration
            number = (packet.pts - first) // tick
            packet.pts, packet.stream = packet.pts + number**2 * tick // 60, other
            changed.mux(packet)
    with av.open(str(path)) as file:
        frames = [*file.decode(video=0)]
    times, whole = [frame.time for frame in frames], np.stack([frame.to_ndarray(format="rgb24") for frame in frames])
    assert len({round(second - first, 3) for first, second in pairwise(times)}) > 10
    assert times[-1] > 3  # where the sum of the durations is 2 s
    for numbers in ([40], [59, 3, 21], [*range(60)]):
        assert np.array_equal(ad.decode_video_clip(path, frames=numbers), whole[numbers])
        assert np.array_equal(ad.decode_video_clip(path, times=[times[one] for one in numbers]), whole[numbers])
    with pytest.raises(ad.PlanError, match="the video has 60 frames"):
        ad.decode_video_clip(path, frames=[60])
    with pytest.raises(ad.PlanError, match="the video goes from 0 s to 3"):
        ad.decode_video_clip(path, times=[9.0])


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    content = write_video(path, range(3000), gop=10, crf="0", movflags="+faststart")
    file = Counted(content)
    with Video(file, "a video", 1 << 10) as video:
        opened = file.count
        assert opened < len(content) / 2
        assert number_in(video.at(np.array([80.0]))[0]) == 2400 % 50
        assert file.count - opened < len(content) / 50
        assert number_in(video.at(np.array([80 + 1 / 30]))[0]) == 2401 % 50
        assert file.count - opened < len(content) / 50


def clip_or_error(content: bytes) -> Any:
    """Return all frames, `None` for an error that says what is wrong."""
    try:
        return ad.decode_video_clip(content)
    except (ad.DataLossError, ad.StructureError) as error:
        assert str(error).startswith(f"{len(content)} bytes: ")  # noqa: PT017
        return None


def test_damaged_videos_are_errors(tmp_path: Path) -> None:
    path, whole = made(tmp_path, gop=5)
    content = path.read_bytes()
    cut = [content[:size] for size in range(0, len(content), 97)]
    flipped = [content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :] for at in range(0, len(content), 97)]
    for damaged, most in ((cut, 0), (flipped, 2)):  # MP4 has no checksums
        found = [clip_or_error(one) for one in damaged]
        assert sum(one is None for one in found) > len(found) * 0.5
        assert sum(one is not None and not np.array_equal(one, whole) for one in found) <= most
    with pytest.raises(ad.DataLossError, match="9 bytes: it cannot be decoded: Invalid data found"):
        ad.decode_video_clip(b"no video!")
    (tmp_path / "none.mp4").write_bytes(b"")
    with pytest.raises(ad.DataLossError, match=r"none\.mp4: it cannot be decoded"):
        ad.decode_video_clip(tmp_path / "none.mp4")
    with pytest.raises(FileNotFoundError):
        ad.decode_video_clip(tmp_path / "missing.mp4")


def test_what_is_refused(tmp_path: Path) -> None:
    path, _ = made(tmp_path)
    for how, message in [
        ({"times": [0], "frames": [0]}, "give times= or frames=, not both"),
        ({"frames": [0, 60]}, r"frames=\): the video has 60 frames, numbered from 0, got 60"),
        ({"frames": [-1]}, "numbered from 0, got -1"),
        ({"frames": [0.5]}, r"must be numbers of frames, such as range\(16\), got \[0.5\]"),
        ({"frames": 3}, "must be numbers of frames"),
        ({"times": [1, 2.5]}, r"times=\): the video goes from 0 s to 2 s, got 2.5 s"),
        ({"times": [np.nan]}, "got nan s"),
        ({"times": ["1"]}, "must be times in seconds"),
    ]:
        with pytest.raises(ad.PlanError, match=message):
            ad.decode_video_clip(path, **how)
    with pytest.raises(ad.PlanError, match="the bytes of a file are decoded, got ndarray"):
        ad.decode_video_clip(np.zeros(3))  # type: ignore[arg-type]
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.wav"), "w") as file:
        stream = file.add_stream("pcm_s16le", rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 80), np.int16), layout="mono")
        sound.rate = 8000
        file.mux(stream.encode(sound))
    with pytest.raises(ad.DataLossError, match="it has no video stream"):
        ad.decode_video_clip(tmp_path / "a.wav")

"""Videos for tests, whose pictures show their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ("number_in", "write_video")


def write_video(path: Path, times: Iterable[int], rate: int = 30, codec: str = "libx264", **options: Any) -> bytes:
    """Write a frame at each of these times, counted in frames; frame n is of the grey `n % 50 * 5`, and a stripe."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.gop_size = options.pop("gop", 12)
        stream.codec_context.max_b_frames = options.pop("b_frames", 2 if codec == "libx264" else 0)
        if codec == "mpeg4":
            stream.bit_rate = 10**6
        else:
            options.setdefault("crf", "18")
        stream.options = options
        for number, time in enumerate(times):
            picture = np.full((48, 64, 3), number % 50 * 5, np.uint8)
            picture[:, 60:] = 128
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, rate)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path.read_bytes()


def number_in(picture: Any) -> int:
    """Return which frame a picture is, modulo 50."""
    return round(float(picture[:, :56].mean()) / 5)

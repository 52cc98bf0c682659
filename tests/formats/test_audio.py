"""Sound as arrays, by each package that is installed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats import audio
from asyncdata.formats.audio import DECODERS, decoder_name

pytestmark = pytest.mark.formats

RATE = 44100

SOUND = np.stack([np.sin(np.arange(30_000) * tone) * 0.5 for tone in (0.06, 0.09)], 1).astype(np.float32)

KINDS = [
    *[("WAV", kind, 1e-4) for kind in ("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")],
    *[("WAV", "PCM_U8", 0.01), ("WAV", "ULAW", 0.02), ("AIFF", "PCM_16", 1e-4), ("CAF", "PCM_16", 1e-4)],
    *[("FLAC", "PCM_16", 1e-4), ("FLAC", "PCM_24", 1e-4), ("MP3", None, 0.1), ("OGG", "VORBIS", 0.1)],
]
"""A format, a codec, and how far samples may be from those that were written."""

CLIPS: list[tuple[float, float | None]] = [
    (0.0, None),
    (0.0, 0.1),
    (0.3, None),
    (0.25, 0.5),
    (0.1234567, 0.4567),
    (0.2, 0.2),
]


def encoded(kind: str, codec: str | None = None, sound: Any = SOUND) -> bytes:
    file = io.BytesIO()
    pytest.importorskip("soundfile").write(file, sound, RATE, format=kind, subtype=codec)
    return file.getvalue()


def aac(path: Path) -> bytes:
    """Write AAC in MP4, which soundfile does not know."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as file:
        stream = file.add_stream("aac", rate=RATE, layout="stereo")
        for begin in range(0, len(SOUND), 1024):
            part = np.ascontiguousarray(SOUND[begin : begin + 1024].T)
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="stereo")
            frame.rate, frame.pts = RATE, begin
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path.read_bytes()


@pytest.mark.parametrize("codec", ["libopus", "ac3", "libmp3lame"])
def test_clips_are_parts_of_the_whole_where_a_decoder_remembers(codec: str, tmp_path: Path) -> None:
    """The first samples are left out in Opus, and none of the decoders gives the same after a seek."""
    av = pytest.importorskip("av")
    path, noise = tmp_path / "a.mp4", np.random.default_rng(0).normal(0, 0.1, (1, 150_000)).astype(np.float32)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(noise, format="fltp", layout="mono")
        frame.rate, frame.pts = 48_000, 0
        fitting = av.AudioResampler(stream.format.name, "mono", 48_000, stream.frame_size or 1152)
        for part in (*fitting.resample(frame), *fitting.resample(None)):
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))
    whole, rate = ad.decode_audio(path)
    for start, stop in [(0.1, 0.5), (1.0, 1.25), (2.5, 3.0)]:
        found, _ = ad.decode_audio(path, start=start, stop=stop)
        assert np.array_equal(found, whole[round(start * rate) : round(stop * rate)])


def test_each_package_gives_the_same() -> None:
    for kind, codec, far in KINDS:
        content = encoded(kind, codec)
        for name, decode in DECODERS.items():
            if name == "av" and kind == "OGG":
                continue
            whole, rate = decode(io.BytesIO(content), "a", 0.0, None) or pytest.fail(f"{name} knows no {kind}")
            assert (whole.shape, whole.dtype, rate) == (SOUND.shape, np.float32, RATE), (name, kind, codec)
            assert np.abs(whole - SOUND).max() < far
            for start, stop in CLIPS:
                found, _ = decode(io.BytesIO(content), "a", start, stop) or pytest.fail("it is not known")
                expected = ad.decode_audio(content)[0][
                    round(start * RATE) : None if stop is None else round(stop * RATE)
                ]
                assert found.shape == expected.shape, (name, kind, codec, start, stop)
                assert np.abs(found - expected).max(initial=0) <= (1e-5 if kind == "MP3" else 0), (name, kind, start)


def test_what_soundfile_does_not_know(tmp_path: Path) -> None:
    content = aac(tmp_path / "a.m4a")
    whole, rate = ad.decode_audio(content)
    assert rate == RATE
    assert np.abs(whole[: len(SOUND)] - SOUND)[2000:-2000].max() < 0.1
    for start, stop in CLIPS:
        found, _ = ad.decode_audio(tmp_path / "a.m4a", start=start, stop=stop)
        expected = whole[round(start * RATE) : None if stop is None else round(stop * RATE)]
        assert found.shape == expected.shape
        assert np.abs(found - expected).max(initial=0) < 0.06  # it has stored noise as such


def test_without_soundfile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "decoder_name", lambda: "av")
    assert np.array_equal(ad.decode_audio(encoded("FLAC", "PCM_24"))[0], by_default(encoded("FLAC", "PCM_24")))
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(ad.MissingDependencyError, match="decode_audio of Ogg needs soundfile"):
        ad.decode_audio(b"OggS" + bytes(100))


def by_default(content: bytes) -> Any:
    return (DECODERS["soundfile"](io.BytesIO(content), "a", 0.0, None) or (None,))[0]


@pytest.mark.parametrize("name", [*DECODERS])
def test_damaged_sound_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "decoder_name", lambda: name)
    for kind in ("WAV", "FLAC"):
        content = encoded(kind)
        for size in range(0, len(content) - 97, 97 * 20):
            with pytest.raises(ad.DataLossError, match=f"^{size} bytes: it "):
                ad.decode_audio(content[:size])
    content, wrong = encoded("FLAC"), 0
    whole, _ = ad.decode_audio(content)
    for at in range(0, len(content), 97 * 5):
        damaged = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
        try:
            wrong += not np.array_equal(ad.decode_audio(damaged)[0], whole)
        except (ad.DataLossError, ad.PlanError):
            continue
    assert wrong <= 1


def test_what_is_refused(tmp_path: Path) -> None:
    assert decoder_name() == "soundfile"
    (tmp_path / "a.wav").write_bytes(encoded("WAV"))
    for how, message in [
        ({"start": -1}, "start= and stop= must be times in seconds in this order, got -1 and None"),
        ({"start": 2, "stop": 1}, "got 2 and 1"),
        ({"stop": 0.7}, r"a\.wav is 0\.680272 s long, got a clip up to 0\.7 s"),
        ({"start": 3}, "got a clip up to 3 s"),
    ]:
        with pytest.raises(ad.PlanError, match=message):
            ad.decode_audio(tmp_path / "a.wav", **how)
    with pytest.raises(ad.PlanError, match=r"a\.m4a is 0\.\d+ s long, got a clip up to 0\.9 s"):
        aac(tmp_path / "a.m4a")
        ad.decode_audio(tmp_path / "a.m4a", start=0.1, stop=0.9)
    with pytest.raises(ad.DataLossError, match="9 bytes: it cannot be decoded"):
        ad.decode_audio(b"no sound!")

"""decode_audio: sound as an array, decoded by the best package that is installed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.video import STRICT, entries_of, explain_damage, opened_media
from asyncdata.system.optional_packages import require

__all__ = ("DECODERS", "decode_audio")

METHOD: Final = "decode_audio"

Samples: TypeAlias = npt.NDArray[np.float32]

Decoder: TypeAlias = Callable[[Any, str, float, float | None], tuple[Samples, int]]

PREROLL: Final = 0.1
"""Seconds that are decoded before a clip, as codecs overlap their blocks."""

SOUGHT: Final = re.compile("aac|alac|flac|pcm_")
"""Codecs whose decoders give the same after a seek, but for noise in AAC; others go on from all that was before."""

UNKNOWN_SIZES: Final = (0, 0xFFFFFFFF)
"""Sizes in the headers of WAV files that were written to a pipe."""


def decode_audio(
    contents: bytes | str | os.PathLike[str], *, start: float = 0.0, stop: float | None = None
) -> tuple[Samples, int]:
    """Return sound as a new array of (samples, channels), float32 from -1 to 1, and its samples per second.

    `contents` are the bytes of a file or its path. Samples are those from `start` up to before `stop`, in seconds,
    each rounded to a sample. WAV, FLAC, AIFF, MP3, Ogg and all else that it knows is decoded by soundfile (`pip install
    soundfile`) if that is installed; what it does not know, such as AAC and the sound of videos, by PyAV (`pip install
    av`). Without soundfile PyAV decodes all but Ogg: MP3 with the same result within 1e-5, others with the same.

    It is read from the beginning of a clip on where a file can be sought to a sample and the codec allows it, else from
    its own; in AAC, noise that is stored as such is other noise then. Damaged sound
    is a `DataLossError`, also if it is cut short, where that shows: MP3 and Ogg do not say how long they are. A clip
    that is not within the sound is a `PlanError`.

    >>> import asyncdata as ad
    >>> samples, rate = ad.decode_audio("speech.flac", start=1.0, stop=3.5)  # doctest: +SKIP
    >>> samples.shape, rate  # doctest: +SKIP
    ((40000, 1), 16000)
    """
    if not start >= 0 or not (stop is None or stop >= start):
        raise PlanError(f"{METHOD}: start= and stop= must be times in seconds in this order, got {start} and {stop}")
    with opened_media(contents) as (file, name):
        head, size = file.read(12), file.seek(0, os.SEEK_END)
        file.seek(0)
        length = int.from_bytes(head[4:8], "little")
        if head[:4] == b"RIFF" and length not in UNKNOWN_SIZES and length + 8 > size:
            raise DataLossError(f"{name}: it has {size} bytes, and {length + 8} by its header: it is cut short")
        if decoder_name() == "soundfile" and (found := by_soundfile(file, name, start, stop)) is not None:
            return found
        if head[:4] == b"OggS":
            require("soundfile", f"{METHOD} of Ogg", "soundfile")
        file.seek(0)
        return by_pyav(file, name, start, stop)


@cache
def decoder_name() -> str:
    """Return the package that decodes what both know: the first one that is installed."""
    return next((name for name in DECODERS if find_spec(name)), "av")


def places_in(name: str, rate: int, frames: int | None, start: float, stop: float | None) -> tuple[int, int | None]:
    """Return the numbers of the first sample and of that after the last; `PlanError` if they are not in the sound."""
    begin, end = round(start * rate), frames if stop is None else round(stop * rate)
    if frames is not None and max(begin, end or 0) > frames:
        late = start if begin > frames else stop
        raise PlanError(f"{METHOD}: the sound in {name} is {frames / rate:g} s long, got a clip up to {late:g} s")
    return begin, end


def by_soundfile(file: Any, name: str, start: float, stop: float | None) -> tuple[Samples, int] | None:
    """Decode by soundfile; `None` for what it does not know."""
    soundfile: Any = require("soundfile", METHOD, "soundfile")
    try:
        sound = soundfile.SoundFile(file)
    except soundfile.LibsndfileError:
        return None
    try:
        with sound:
            begin, end = places_in(name, sound.samplerate, sound.frames, start, stop)
            skip = (
                begin if sound.format == "MP3" else sound.seek(begin) - begin
            )  # after a seek in MP3 samples are wrong
            found = sound.read((end or 0) - begin + skip, dtype="float32", always_2d=True)[skip:]
            rate: int = sound.samplerate
    except soundfile.LibsndfileError as error:
        raise DataLossError(f"{name}: it cannot be decoded: {error.error_string}") from None
    if len(found) != (end or 0) - begin:
        raise DataLossError(f"{name}: it ends after {begin + len(found)} samples, where {end} were expected")
    return found, rate


def by_pyav(file: Any, name: str, start: float, stop: float | None) -> tuple[Samples, int]:
    """Decode by PyAV."""
    av: Any = require("av", METHOD, "av, or soundfile")
    with explain_damage(name, METHOD), av.open(file, metadata_errors="ignore") as container:
        if not container.streams.audio:
            raise DataLossError(f"{name}: it has no sound")
        stream = container.streams.audio[0]
        if stream.codec_context is None:
            raise DataLossError(f"{name}: it has a codec without a decoder")
        stream.codec_context.options = {**STRICT}
        rate, base = int(stream.rate), float(stream.time_base)
        begin, end = places_in(name, rate, None, start, stop)
        is_sought = begin > 0 and len(entries_of(stream)) > 0 and is_exact(stream)
        is_sought = is_sought and SOUGHT.match(stream.codec_context.name) is not None
        if is_sought:
            container.seek(int(((stream.start_time or 0) * base + max(0.0, start - PREROLL)) / base), stream=stream)
        parts, at = list[Samples](), 0
        for number, samples in samples_of(container, stream, name, is_sought):
            parts.append(samples[max(0, begin - number) : None if end is None else max(0, end - number)])
            at = number + len(samples)
            if end is not None and at >= end:
                break
        channels = int(stream.codec_context.channels)
    whole = round(stream.duration * base * rate) if stream.duration and is_exact(stream) else 0
    if at < (whole if end is None else min(end, whole)):
        raise DataLossError(f"{name}: it ends after {at} samples, where {whole} were expected: it is cut short")
    places_in(name, rate, at if at < max(begin, end or 0) else None, start, stop)
    return np.concatenate([np.zeros((0, channels), np.float32), *parts]), rate


def is_exact(stream: Any) -> bool:
    """Return whether times in a stream are numbers of samples."""
    return stream.time_base * stream.rate == 1


def samples_of(container: Any, stream: Any, name: str, is_sought: bool) -> Iterator[tuple[int, Samples]]:
    """Yield consecutive samples, and the number of the first of them, by its time after a seek."""
    rate, base, origin = int(stream.rate), float(stream.time_base), float((stream.start_time or 0) * stream.time_base)
    resampler, at = require("av", METHOD, "av").AudioResampler(format="fltp"), -1
    for frame in container.decode(stream):
        place = at if frame.pts is None else round((frame.pts * base - origin) * rate)
        if at < 0 and not is_sought:
            origin += place / rate  # some are left out at the beginning, which the header does not say
            place = 0
        if at < 0:
            at = max(0, place)
        elif abs(place - at) > 1 + base * rate:
            raise DataLossError(f"{name}: after sample {at} comes sample {place}: it is damaged")
        for one in resampler.resample(frame):
            yield at, one.to_ndarray().T
            at += one.samples


DECODERS: Final[dict[str, Callable[[Any, str, float, float | None], tuple[Samples, int] | None]]] = {
    "soundfile": by_soundfile,
    "av": by_pyav,
}
"""What decodes sound, by the module that is needed, the best first."""

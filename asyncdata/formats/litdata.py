"""The chunks that the package litdata writes, and the index of their folder, without I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import unpack_from
from typing import Any, Final

import numpy as np

from asyncdata.errors import DataLossError
from asyncdata.formats.litdata_encodings import Build, builder_of, decoder_of
from asyncdata.formats.litdata_groups import FRAMED, unpacked
from asyncdata.formats.mds_encodings import DAMAGED, Decode
from asyncdata.formats.shards import Column, Layout, SampleLayout, ShardHeader, offsets_of

__all__ = ("LitFolder", "LitFormat", "folder_of")


IN_GROUPS: Final = "its samples are stored in groups, which can be read on this machine: give cache_dir="


@dataclass(frozen=True)
class Alone:
    """Samples that are one value, whose size follows from where they begin and end."""

    decode: Decode

    def sample(self, name: str, data: memoryview, offset: int, begin: int, end: int) -> Any:
        """Return the sample in a part of `data`, or its error; it is at `offset` in the file `name`."""
        try:
            return self.decode(data[begin:end])
        except DAMAGED as error:
            return DataLossError(f"{name}: the sample at byte {offset}: {error}")


@dataclass(frozen=True)
class LitFolder:
    """What the index of a folder says."""

    names: Sequence[str]
    """The chunks, in order."""
    samples: Sequence[int]
    tokens: Sequence[int | None]
    """How many tokens each chunk has, if its samples are nothing but tokens."""
    layout: Layout
    dtype: np.dtype[Any] | None
    """The dtype of tokens."""
    compression: str
    """Our name of the compression of chunks as a whole."""


@dataclass(frozen=True)
class LitFormat:
    """Chunks of LitData, whose folders say what their samples consist of."""

    layouts: dict[str, Layout] = field(default_factory=dict[str, Layout])
    """By the paths of chunks, as the numbers of samples."""
    samples: dict[str, int] = field(default_factory=dict[str, int])

    def header_size(self, begin: bytes) -> int:
        if begin == FRAMED:
            raise ValueError(IN_GROUPS)
        count, size = unpack_from("<II", begin)
        if size != 4 * (count + 2):
            raise ValueError(
                f"at byte 0 the number of samples and where they begin are expected, got {count} and {size}"
            )
        return size

    def header(self, path: str, data: bytes) -> ShardHeader:
        (count,), ends = unpack_from("<I", data), unpack_from("<I", data, len(data) - 4)
        if count and ends[0] == len(data):
            raise ValueError(IN_GROUPS)
        return ShardHeader(offsets_of(data, self.samples.get(path)), self.layouts[path])


def folder_of(index: Mapping[str, Any], *, allow_pickle: bool) -> LitFolder:
    """Return what an index says; `ValueError` if it is damaged, or what it says is not supported."""
    config, chunks = index["config"], index["chunks"]
    if config.get("encryption"):
        raise ValueError("its chunks are encrypted, which is not supported")
    formats = [str(name) for name in config["data_format"]]
    decoders = [decoder_of(name, allow_pickle) for name in formats]
    tokens = [chunk.get("dim") for chunk in chunks]
    level = config.get("compression_level") or "chunk"
    by_sample = bool(config.get("compression")) and level == "sample"
    return LitFolder(
        [str(chunk["filename"]) for chunk in chunks],
        [int(chunk["chunk_size"]) for chunk in chunks],
        tokens,
        Alone(decoders[0]) if any(tokens) else layout_of(config["data_spec"], formats, decoders, by_sample),
        decoders[0](memoryview(b"")).dtype if any(tokens) else None,
        compression_of(config.get("compression")) if level == "chunk" else "",
    )


def layout_of(spec: str, formats: Sequence[str], decoders: Sequence[Decode], by_sample: bool) -> SampleLayout:
    """Return what the samples of a folder consist of."""
    columns = [Column(str(number), name, None, decoders[number]) for number, name in enumerate(formats)]
    _, found = json.loads(spec)
    build = builder_of(found)
    check_leaves(build, len(columns))
    return SampleLayout(columns, partial(built, build), unpacked if by_sample else None)


def check_leaves(build: Build, count: int) -> None:
    """Raise `ValueError` unless samples have so many leaves, which does not depend on what these are."""
    rest = iter([None] * count)
    try:
        build(rest)
    except StopIteration:
        raise ValueError("its samples have more leaves than serializers") from None
    if next(rest, rest) is not rest:
        raise ValueError("its samples have fewer leaves than serializers")


def built(build: Build, leaves: list[Any]) -> Any:
    """Return the sample that consists of these leaves."""
    return build(iter(leaves))


def compression_of(name: str | None) -> str:
    """Return our name of a compression; `ValueError` for unknown ones."""
    if not name:
        return ""
    if name.partition(":")[0] != "zstd":
        raise ValueError(f"its chunks are compressed by {name!r:.40}, which is not supported; those of zstd are")
    return "ZSTD"

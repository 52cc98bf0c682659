"""The headers of the shards that Mosaic's package streaming writes (MDS), without I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from struct import unpack_from
from typing import Any, Final

from asyncdata.formats.mds_encodings import decoder_for
from asyncdata.formats.shards import Column, SampleLayout, ShardHeader, offsets_of

__all__ = ("MdsFormat",)

LONGEST: Final = 1 << 20
"""The longest description of the columns in bytes."""


@dataclass(frozen=True)
class MdsFormat:
    """Shards of MDS, whose headers say what their columns are."""

    allow_pickle: bool
    samples: Mapping[str, int]
    """How many samples the index of a folder says that shards have, by their paths."""

    def header_size(self, begin: bytes) -> int:
        count, size = unpack_from("<II", begin)
        if not 0 < size - 4 * (count + 2) <= LONGEST:
            raise ValueError(
                f"at byte 0 the number of samples and where they begin are expected, got {count} and {size}"
            )
        return size

    def header(self, path: str, data: bytes) -> ShardHeader:
        offsets = offsets_of(data, self.samples.get(path))
        begin = 4 * (len(offsets) + 1)
        return ShardHeader(offsets, layout_of(data[begin:], begin, self.allow_pickle))


def layout_of(text: bytes, at: int, allow_pickle: bool) -> SampleLayout:
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
    return SampleLayout(columns, partial(named, [column.name for column in columns]))


def named(names: list[str], values: list[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))

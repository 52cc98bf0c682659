"""Shards of MDS for tests, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ("mds_shard",)


def mds_shard(columns: Mapping[str, tuple[str, int | None]], samples: Sequence[Sequence[bytes]]) -> bytes:
    """Return a shard; columns have an encoding and a size, and samples the bytes of each column's value."""
    bodies = [
        b"".join(
            [
                *[np.uint32(len(value)).tobytes() for value, (_, size) in pairs if size is None],
                *[value for value, _ in pairs],
            ]
        )
        for pairs in ([*zip(sample, columns.values(), strict=True)] for sample in samples)
    ]
    config = json.dumps(
        {
            "column_names": [*columns],
            "column_encodings": [encoding for encoding, _ in columns.values()],
            "column_sizes": [size for _, size in columns.values()],
            "format": "mds",
        }
    ).encode()
    begin = 4 * (len(bodies) + 2) + len(config)
    offsets = np.cumsum([begin, *map(len, bodies)]).astype("<u4")
    return np.uint32(len(bodies)).tobytes() + offsets.tobytes() + config + b"".join(bodies)

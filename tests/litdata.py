"""Folders of LitData for tests, written by hand: dicts of a number and a text."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ("lit_chunk", "write_index")

LEAF = {"type": None, "context": None, "children_spec": []}

SPEC = {"type": "builtins.dict", "context": '["id", "name"]', "children_spec": [LEAF, LEAF]}


def lit_chunk(samples: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a chunk."""
    bodies = [struct.pack("<IIq", 8, len(name), number) + name for number, name in samples]
    ends = np.cumsum([4 * (len(bodies) + 2), *map(len, bodies)])
    return struct.pack(f"<{len(bodies) + 2}I", len(bodies), *ends) + b"".join(bodies)


def write_index(folder: Path, chunks: dict[str, int]) -> Path:
    """Write the index of chunks with so many samples."""
    config = {"data_format": ["int", "str"], "data_spec": json.dumps([1, SPEC])}
    listed = [{"filename": name, "chunk_size": count} for name, count in chunks.items()]
    (folder / "index.json").write_text(json.dumps({"chunks": listed, "config": config}))
    return folder

"""Writes safetensors files as the package does, for tests without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ("safetensors_of",)

NAMES = {np.dtype("int16"): "I16", np.dtype("float64"): "F64", np.dtype("bool"): "BOOL", np.dtype("uint8"): "U8"}


def safetensors_of(tensors: Mapping[str, Any]) -> bytes:
    """Return a file with these arrays."""
    header, at = dict[str, Any](), 0
    for name, array in tensors.items():
        fields = {"dtype": NAMES[array.dtype], "shape": array.shape, "data_offsets": [at, at := at + array.nbytes]}
        header[name] = fields
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + b"".join(array.tobytes() for array in tensors.values())

"""Write the folders of MDS in `tests/data/mds` with the package that defines the format; the tests read them without.

`pip install mosaicml-streaming==0.13.0`, then `python -m tests.data.write_mds`.
"""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ("COLUMNS", "COUNT", "FOLDER", "FOLDERS", "JPEG", "sample")

FOLDER = Path(__file__).parent / "mds"

FOLDERS = {"plain": None, "zstd": "zstd:3", "gz": "gz", "bz2": "bz2"}
"""The folders, and how their shards are compressed."""

COUNT = 23

JPEG = bytes.fromhex("ffd8ffd9")
"""The markers of a JPEG file; nothing decodes it."""

NUMBERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]

COLUMNS = {
    **{name: name for name in NUMBERS},
    "array": "ndarray",
    "array of a dtype": "ndarray:int16",
    "array of a shape": "ndarray:float32:2,3",
    "bytes": "bytes",
    "decimal": "str_decimal",
    "float": "str_float",
    "int": "int",
    "jpegs": "jpeg_array",
    "json": "json",
    "large": "str_int",
    "text": "str",
}


def sample(number: int) -> dict[str, Any]:
    """Return a sample as it is read."""
    return {
        **{name: np.dtype(name).type(number) for name in NUMBERS},
        "array": np.arange(number + 1, dtype=NUMBERS[number % len(NUMBERS)]).reshape(1, -1),
        "array of a dtype": np.full((1,) * (number % 4 + 1), -number, np.int16),
        "array of a shape": np.arange(6, dtype=np.float32).reshape(2, 3) + number,
        "bytes": bytes([number]) * (number % 5),
        "decimal": Decimal(number) / 8,
        "float": number / 3,
        "int": -number,
        "jpegs": [JPEG] * (number % 3 + 1),
        "json": {"number": number, "list": [None, True, "\xe9" * number]},
        "large": 10**30 + number,
        "text": "\u4e2d" * (number % 7),
    }


def write(folder: Path, compression: str | None) -> None:
    from streaming import MDSWriter

    shutil.rmtree(folder, ignore_errors=True)
    # a split of its own, in shards of a few samples
    with MDSWriter(out=str(folder / "train"), columns=COLUMNS, compression=compression, size_limit=6000) as writer:
        for number in range(COUNT):
            writer.write(sample(number))


def main() -> None:
    for name, compression in FOLDERS.items():
        write(FOLDER / name, compression)


if __name__ == "__main__":
    main()

"""Write the folders of LitData in `tests/data/litdata` with the package that defines the format; the tests read them
without.

`pip install litdata==0.2.76 zstd`, then `python -m tests.data.write_litdata`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ("COUNT", "FOLDER", "FOLDERS", "JPEG", "ROWS", "TOKENS", "row", "sample")

FOLDER = Path(__file__).parent / "litdata"

FOLDERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunk": {"compression": "zstd", "compression_level": "chunk"},
    "sample": {"compression": "zstd", "compression_level": "sample"},
    "batch": {"compression": "zstd", "compression_level": "batch", "compression_batch_size": 4},
}
"""The folders, and how their chunks are compressed."""

COUNT = 23

ROWS = 320
"""How many samples the folder of rows has, in two chunks, of which the first has two batches of Arrow."""

JPEG = bytes.fromhex("ffd8ffd9")
"""The markers of a JPEG file; nothing decodes it."""

TOKENS = [[*range(number, 2 * number + 1)] for number in range(COUNT)]
"""The documents of the folder of tokens."""

NUMBERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]

TENSORS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "float16", "float32", "float64", "bool", "complex64"]


def sample(number: int) -> dict[str, Any]:
    """Return a sample as it is read."""
    return {
        "int": -number,
        "float": number / 3,
        "bool": number % 2 == 0,
        "text": "\u4e2d" * (number % 7),
        "bytes": bytes([number]) * (number % 5),
        "array": np.arange(number + 1, dtype=NUMBERS[number % len(NUMBERS)]).reshape(1, -1),
        "flat array": np.arange(number, dtype=np.int16),
        "tensor": np.arange(2 * number).reshape(2, number).astype(TENSORS[number % len(TENSORS)]),
        "flat tensor": np.arange(number, dtype=np.float32),
        "jpeg": JPEG * (number % 3 + 1),
        "jpegs": [JPEG] * (number % 3 + 1),
        "nested": {"pair": ({"a": number}, "x" * number), "list": ["y", {"b": 1.5}], "numbers": [number] * 3},
    }


def write(folder: Path, compression: dict[str, Any]) -> None:
    import torch
    from litdata.streaming.cache import Cache
    from litdata.types import Jpeg, JpegArray

    shutil.rmtree(folder, ignore_errors=True)
    cache = Cache(str(folder), chunk_size=9, **compression)
    for number in range(COUNT):
        made = sample(number)
        tensors = {name: torch.from_numpy(made[name]) for name in ("tensor", "flat tensor")}
        images = {"jpeg": Jpeg(bytes=made["jpeg"]), "jpegs": JpegArray(images=[Jpeg(bytes=JPEG)] * len(made["jpegs"]))}
        cache[number] = made | tensors | images
    cache.done()
    cache.merge()


def row(number: int) -> dict[str, Any]:
    """Return a sample of the folder of rows as it is read."""
    return {"id": number, "text": "x" * (number % 5), "score": number / 2, "flag": number % 2 == 0, "tags": ["a"] * 2}


def write_rows(folder: Path) -> None:
    from litdata.streaming.cache import Cache

    shutil.rmtree(folder, ignore_errors=True)
    cache = Cache(str(folder), chunk_size=300)
    for number in range(ROWS):
        cache[number] = row(number)
    cache.done()
    cache.merge()


def write_tokens(folder: Path) -> None:
    import torch
    from litdata.streaming.cache import Cache
    from litdata.streaming.item_loader import TokensLoader

    shutil.rmtree(folder, ignore_errors=True)
    cache = Cache(str(folder), chunk_bytes=400, item_loader=TokensLoader(block_size=7))
    for number, tokens in enumerate(TOKENS):
        cache[number] = torch.tensor(tokens, dtype=torch.int32)
    cache.done()
    cache.merge()


def main() -> None:
    for name, compression in FOLDERS.items():
        write(FOLDER / name, compression)
    write_tokens(FOLDER / "tokens")
    write_rows(FOLDER / "rows")


if __name__ == "__main__":
    main()

"""Write the files in `tests/data/tokens` with the package that defines the format; the tests read them without.

`pip install megatron-core==0.16.1`, then `python -m tests.data.write_tokens`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

__all__ = ("DOCUMENTS", "DTYPES", "FOLDER")

FOLDER = Path(__file__).parent / "tokens"

DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "int64", "float32", "float64")

DOCUMENTS = [
    [[*range(number, number + length)] for length in range(number % 4, number % 4 + number % 3 + (number > 0))]
    for number in range(20)
]
"""Documents of sequences of tokens; the first has none, and some sequences are empty."""


def main() -> None:
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for dtype in DTYPES:
        builder = IndexedDatasetBuilder(str(FOLDER / f"{dtype}.bin"), dtype=getattr(np, dtype))
        for document in DOCUMENTS:
            for sequence in document:
                builder.add_item(torch.tensor(sequence, dtype=torch.float64))
            builder.end_document()
        builder.finalize(str(FOLDER / f"{dtype}.idx"))


if __name__ == "__main__":
    main()

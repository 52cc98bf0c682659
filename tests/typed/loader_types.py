"""Each `assert_type` holds for type checkers where PyTorch is installed: without it a loader has no base class."""

from __future__ import annotations

from typing import Any, assert_type

from asyncdata.torch import DataLoader


def joined(samples: list[int]) -> str:
    return str(samples)


batches = DataLoader(range(3), batch_size=2)
assert_type(batches, DataLoader[Any])
assert_type(DataLoader(range(3), collate_fn=joined), DataLoader[str])

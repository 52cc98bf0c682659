"""list_batch: consecutive elements as a list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asyncdata.transforms.batch import Batch

__all__ = ("ListBatch",)


@dataclass(frozen=True, eq=False)
class ListBatch(Batch):
    """Every `size` consecutive elements as a list, which has them as they are."""

    stacks = False
    copies = False
    retains_elements = True

    @property
    def kind(self) -> str:
        return "list_batch"

    def join(self, items: list[Any]) -> Any:
        return list(items)

    @property
    def signature(self) -> Any:
        return None  # elements in a list may have any structure

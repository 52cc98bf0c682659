"""prefetch: a buffer that is filled while its reader works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asyncdata.options import AUTOTUNE
from asyncdata.plan import Node
from asyncdata.runtime.stage import Transfer

__all__ = ("Prefetch",)


@dataclass(frozen=True, eq=False)
class Prefetch(Node):
    """The same elements, up to `buffer_size` of them read ahead. The last of a pipeline fills the iterator's buffer."""

    input: Node
    buffer_size: int = AUTOTUNE

    def stage(self) -> Transfer:
        return Transfer(self.buffer_size)

    @property
    def elementwise(self) -> bool:
        return True

    @property
    def cardinality(self) -> int:
        return self.input.cardinality

    @property
    def signature(self) -> Any:
        return self.input.signature

    def label(self) -> str:
        return f"prefetch({'AUTOTUNE' if self.buffer_size == AUTOTUNE else self.buffer_size})"

"""prefetch: a buffer that is filled while its reader works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from asyncdata.graph.node import PHYSICAL, OneForOne, StateFree
from asyncdata.graph.stages import Transfer
from asyncdata.options import AUTOTUNE
from asyncdata.runtime.tickets import Ticket

__all__ = ("Prefetch",)


@dataclass(frozen=True, eq=False)
class Prefetch(StateFree, OneForOne):
    """The same elements, up to `buffer_size` of them read ahead. The last of a pipeline fills the iterator's buffer."""

    buffer_size: int = field(default=AUTOTUNE, metadata=PHYSICAL)

    def stage(self) -> Transfer:
        return Transfer(self.buffer_size, self)

    @property
    def elementwise(self) -> bool:
        return True

    @property
    def left_out(self) -> Callable[[Ticket], bool] | None:
        return self.input.left_out

    def label(self) -> str:
        return f"prefetch({'AUTOTUNE' if self.buffer_size == AUTOTUNE else self.buffer_size})"

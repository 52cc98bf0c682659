"""prefetch_to_device: the last step, which copies elements to an accelerator while the ones before are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from asyncdata.errors import PlanError
from asyncdata.graph.node import PHYSICAL, Node, OneForOne, Planned, StateFree, check_count
from asyncdata.graph.stages import Stage
from asyncdata.transforms.take import Take

__all__ = ("MODES", "PrefetchToDevice", "check_last", "split_at_device", "take_few")

MODES: Final = ("fresh", "ring")


@dataclass(frozen=True, eq=False)
class PrefetchToDevice(StateFree, OneForOne):
    """The same elements, with their arrays on a device. It runs in the iterator, around the engine of its input."""

    device: Any = field(default=None, metadata=PHYSICAL)
    buffer_size: int = field(default=2, metadata=PHYSICAL)
    mode: str = field(default="fresh", metadata=PHYSICAL)
    static: Any = field(default=None, metadata=PHYSICAL, repr=False)
    decode_on_device: bool = field(default=False, metadata=PHYSICAL)

    @classmethod
    def of(
        cls, plan: Node, device: Any, buffer_size: int, mode: str, static: Any, decode_on_device: bool
    ) -> PrefetchToDevice:
        """Return the node, of arguments that have been checked."""
        check_count("prefetch_to_device", "buffer_size", buffer_size, 1)
        if mode not in MODES:
            raise PlanError(f"prefetch_to_device(mode=) must be one of {', '.join(map(repr, MODES))}, got {mode!r:.40}")
        return cls(plan, device, buffer_size, mode if static is None else "ring", static, decode_on_device)

    @property
    def waits(self) -> bool:
        return True

    def stage(self) -> Stage:
        raise PlanError(
            f"{self.label()} must be the last transformation, and only an iterator runs it: put it last, and call "
            "save(), as_numpy_iterator() and the like on the dataset without it"
        )

    def label(self) -> str:
        mode = "" if self.mode == "fresh" else f", mode={self.mode!r}"
        decoding = ", decode_on_device=True" if self.decode_on_device else ""
        return f"prefetch_to_device({str(self.device)!r}, buffer_size={self.buffer_size}{mode}{decoding})"

    @property
    def signature(self) -> Any:
        return None if self.decode_on_device else self.input.signature


def check_last(plan: Node, made_from: Sequence[Planned]) -> None:
    """Raise `PlanError` if a plan puts a step after `prefetch_to_device`."""
    for one in made_from:
        if isinstance(one.plan, PrefetchToDevice) and one.plan is not plan:
            raise PlanError(f"{one.plan.label()} must be the last transformation: put {plan.label()} before it")


def split_at_device(plan: Node) -> tuple[Node, PrefetchToDevice | None]:
    """Return the part of a plan that runs on the host, and the step that copies its elements to a device, if there is
    one."""
    return (plan.input, plan) if isinstance(plan, PrefetchToDevice) else (plan, None)


def take_few(plan: Node, count: int) -> Node:
    """Return the plan of a few first elements to look at; each on a device has memory of its own."""
    host, device = split_at_device(plan)
    few = Take(host, count)
    return few if device is None else replace(device, input=few, mode="fresh", static=None)

"""even_steps: batches of a loader in as many steps on all ranks, however many batches each has."""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar

from asyncdata.errors import PlanError
from asyncdata.system.optional_packages import require

__all__ = ("EvenSteps", "agreed_epoch", "least")

T_co = TypeVar("T_co", covariant=True)

NONE_LEFT: Any = object()


class Batches(Protocol):
    """One epoch of a loader."""

    ended: bool

    def __next__(self) -> Any: ...


class EvenSteps(Generic[T_co]):
    """Batches until no rank has one. Each step reduces one number, whether any rank has one."""

    def __init__(self, batches: Batches, fill: Any, group: Any) -> None:
        self.batches = batches
        self.fill = fill
        self.group = group
        self.ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        if self.ended:
            raise StopIteration
        # an error of this rank's pipeline comes before the reduction: whoever goes on then still takes part in each
        batch = self.fill if self.batches.ended else next(self.batches, NONE_LEFT)
        if batch is NONE_LEFT:
            batch = self.fill
        self.ended = bool(least(int(self.batches.ended), self.group))
        if self.ended:
            raise StopIteration
        return batch


def agreed_epoch(epoch: int, ended: int | None, group: Any) -> int:
    """Return the earliest epoch of all ranks; this one is to begin `epoch`, and has `ended` the one before, if its
    state says so.

    `PlanError` on all ranks if one is neither to begin that epoch nor has ended it.
    """
    first = least(epoch, group)
    if not least(int(first in (epoch, ended)), group):
        raise PlanError(
            f"even_steps() must begin the same epoch on all ranks: the earliest is {first}, here it is {epoch}; load "
            "the states of one checkpoint on all of them, or call set_epoch"
        )
    return first


def least(number: int, group: Any) -> int:
    """Return the least of the ranks' numbers; where there is one process, its own."""
    torch: Any = require("torch", "even_steps()")
    processes: Any = torch.distributed
    if not (processes.is_available() and processes.is_initialized()):
        return number
    found = torch.tensor(number, device=device_of(processes, group))
    processes.all_reduce(found, processes.ReduceOp.MIN, group)
    return int(found)


def device_of(processes: Any, group: Any) -> str:
    """Return a kind of device whose tensors a group reduces: the CPU if it can, as nothing waits for a GPU then; with
    NCCL alone the process's current GPU."""
    backends = processes.get_backend_config(group).split(",")  # such as cpu:gloo and cuda:nccl
    devices = [backend.partition(":")[0] for backend in backends]
    return "cpu" if "cpu" in devices else devices[0]

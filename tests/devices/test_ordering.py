"""The order of accesses to memory: the engine as it ships, on a simulated accelerator, and mistakes planted in it.

Vector clocks tell whether two accesses are ordered, whatever the schedule was that happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import cycle, islice, product
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices import copy_thread
from asyncdata.devices.base import DONE, Sent
from asyncdata.devices.simulated import POLICIES, Accelerator, SimulatedDevice

BATCHES = 12
PLACEMENTS = ("thread", "current")
MODES = ("fresh", "ring", "static")
STREAMS = ("default", "own")
KEPT = (0, 3)
"""How many batches the program keeps beside the one it works on: none, or in fresh memory the last three."""


def numbers(x: int) -> dict[str, Any]:
    return {"x": np.full(16, x, np.uint8), "y": np.int64(x)}


DATA = ad.Dataset.range(BATCHES).map(numbers)


def train(accelerator: Accelerator, mode: str, placement: str, stream: str, kept: int) -> list[tuple[int, Any]]:
    """Run a program with two kernels for each batch; return what each kernel found, and of which batch."""
    own = accelerator.stream("training") if stream == "own" else accelerator.default
    found: list[tuple[int, Any]] = []
    recent: deque[Any] = deque(maxlen=max(1, kept))
    with accelerator.using(own):
        how: dict[str, Any] = {"mode": mode}
        if mode == "static":
            x, y = [accelerator.empty(shape, np.dtype(kind), own) for shape, kind in (((16,), "u1"), ((), "i8"))]
            how = {"static": {"x": x, "y": y}}
        ds = DATA.prefetch_to_device(accelerator, 2, **how).with_options(ad.Options(placement=placement))
        for number, batch in enumerate(ds):
            found += [(number, accelerator.kernel(batch["x"])), (number, accelerator.kernel(batch["y"]))]
            if kept:
                recent.append((number, batch))
                found.append((recent[0][0], accelerator.kernel(recent[0][1]["x"])))
            del batch
        recent.clear()
        accelerator.synchronize()
    return found


def is_right(found: Sequence[tuple[int, Any]]) -> bool:
    """Tell whether each kernel found the numbers of its batch."""
    return all(np.all(arrays[0] == number) for number, arrays in found)


def schedules(count: int) -> list[tuple[Any, ...]]:
    """Return so many different programs and schedules."""
    kinds = product(PLACEMENTS, MODES, STREAMS, KEPT, POLICIES)
    fitting = [kind for kind in kinds if kind[1] == "fresh" or kind[3] == 0]
    return [(seed, *kind) for seed, kind in enumerate(islice(cycle(fitting), count))]


@pytest.mark.parametrize("count", [64, pytest.param(1000, marks=pytest.mark.laws)])
def test_no_two_accesses_are_in_no_order(count: int) -> None:
    for seed, placement, mode, stream, kept, policy in schedules(count):
        accelerator = Accelerator(seed, policy)
        found = train(accelerator, mode, placement, stream, kept)
        assert accelerator.races == [], (seed, placement, mode, stream, kept, policy)
        assert len(found) == (3 if kept else 2) * BATCHES
        assert is_right(found)


# mistakes


class NoWait(SimulatedDevice):
    """The consumer's stream does not wait for the copy."""

    def arrive(self, sent: Sent) -> None:
        super().arrive(sent._replace(ready=DONE))


class NoRecordStream(SimulatedDevice):
    """The allocator does not learn that the consumer's stream uses the memory."""

    def arrive(self, sent: Sent) -> None:
        super().arrive(sent._replace(arrays=()))


class WrongStream(SimulatedDevice):
    """The stream that waits is that of another thread: the default one."""

    def arrive(self, sent: Sent) -> None:
        with self.accelerator.using(self.accelerator.default):
            super().arrive(sent)


class NoHostEvent(SimulatedDevice):
    """The thread that copies does not wait until the consumer's stream has used what it writes to."""

    def leave(self) -> Any:
        super().leave()
        return DONE


def forgetful(self: copy_thread.CopyThread) -> None:
    """Let go of the memory that a copy reads without waiting for the copy."""
    self.staging.release_slot(self.copies.popleft().read)


MISTAKES = {
    "no host event": (NoHostEvent, "ring", 0),
    "no wait": (NoWait, "fresh", 0),
    "no record_stream": (NoRecordStream, "fresh", 0),
    "wrong stream": (WrongStream, "fresh", 0),
    "slot used again early": (SimulatedDevice, "fresh", 0),
    "batch of a ring kept too long": (SimulatedDevice, "ring", 3),
}


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_found(name: str, placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device, mode, kept = MISTAKES[name]
    monkeypatch.setattr("asyncdata.devices.choice.SimulatedDevice", device)
    if name == "slot used again early":
        monkeypatch.setattr(copy_thread.CopyThread, "settle", forgetful)
    found: list[bool] = []
    for seed, policy in enumerate(POLICIES * 3):
        accelerator = Accelerator(seed, policy)
        train(accelerator, mode, placement, "own", kept)
        found.append(bool(accelerator.races))
    rare = name == "no record_stream"  # the memory must be free again before it is wanted
    assert any(found) if rare else all(found), found

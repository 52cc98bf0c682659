"""The least seconds that each experiment of the guide can take, by arithmetic on its sleeps.

A limit assumes that code costs nothing and sleeps are exact. What may overlap is what the plan that runs lets overlap:

* asyncdata, like tf.data, ends every plan in a prefetch, so reading overlaps training unless that rule is switched off;
* a sequential `interleave`, `flat_map` or `map` does one thing at a time, on one thread;
* a generator has a thread of its own, and there reads on as far as it has been asked: one sample where samples are
  asked for singly, a whole batch where they are batched;
* a parallel `interleave` reads its files side by side, a parallel `map` treats its elements side by side;
* an epoch starts anew: nothing of it happens before the consumer asks for its first element.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "EPOCHS",
    "EPOCH_PAUSE",
    "MAP",
    "MEMORY",
    "OPEN",
    "READ",
    "SAMPLES",
    "STEP",
    "THINK",
    "cached",
    "closing_naive",
    "closing_optimised",
    "closing_without_prefetch",
    "interleaved_in_parallel",
    "interleaved_sequentially",
    "mapped_in_parallel",
    "mapped_sequentially",
    "naive",
    "prefetched",
)

OPEN, READ, MAP, STEP = 0.03, 0.015, 0.03, 0.01
"""Seconds to open a file, read a sample, map it, train on it."""
SAMPLES, EPOCHS = 3, 2
THINK, MEMORY = 0.001, 0.0001
"""Seconds per sample of the closing pair's time-consuming and memory-consuming map."""
EPOCH_PAUSE = 0.001
"""Seconds that the closing pair's loop sleeps after each epoch."""


def served(arrivals: Iterable[float], cost: float) -> list[float]:
    """When each element leaves one server that takes them in order, `cost` seconds each."""
    clock, departures = 0.0, []
    for arrival in arrivals:
        clock = max(clock, arrival) + cost
        departures.append(clock)
    return departures


def trained(ready: Iterable[float]) -> float:
    """When the consumer has trained on elements that are ready at these times."""
    return served(ready, STEP)[-1]


def reading(samples: int = SAMPLES) -> list[float]:
    """When one file, opened at once and read on a thread of its own, has yielded each sample."""
    return [OPEN + READ * (index + 1) for index in range(samples)]


def naive() -> float:
    """No prefetch: opening, reading and training add up."""
    return EPOCHS * (OPEN + SAMPLES * (READ + STEP))


def prefetched() -> float:
    """Reading overlaps training; the first sample and the last step overlap nothing."""
    return EPOCHS * trained(reading())


def interleaved_sequentially() -> float:
    """One thread opens and reads both files, sample by sample in turn; training overlaps it."""
    costs = [OPEN + READ] * 2 + [READ] * (2 * SAMPLES - 2)
    return EPOCHS * trained(accumulate(costs))


def interleaved_in_parallel() -> float:
    """Both files are opened and read side by side; training overlaps it."""
    return EPOCHS * trained(sorted(reading() * 2))


def mapped_sequentially() -> float:
    """One thread reads a sample, maps it and goes on; training overlaps it."""
    return EPOCHS * trained(first_pass())


def mapped_in_parallel() -> float:
    """A sample is mapped while the next are read and mapped and earlier ones are trained on."""
    return EPOCHS * trained(ready + MAP for ready in reading())


def cached(epochs: int) -> float:
    """The first epoch is a sequential map; all others only train."""
    return trained(first_pass()) + (epochs - 1) * SAMPLES * STEP


def first_pass() -> list[float]:
    """When a sample that is read and mapped on one thread is ready."""
    return list(accumulate([OPEN + READ + MAP] + [READ + MAP] * (SAMPLES - 1)))


def closing_without_prefetch(samples: int, epochs: int) -> float:
    """The closing pair's first pipeline without prefetch: a batch is read and mapped, then trained on."""
    return epochs * (2 * (filling(samples) + samples * STEP) + EPOCH_PAUSE)


def closing_naive(samples: int, epochs: int) -> float:
    """The closing pair's first pipeline: the second batch is read while the first is trained on."""
    ready = [filling(samples)] * samples + [2 * filling(samples)] * samples
    return epochs * (trained(ready) + EPOCH_PAUSE)


def filling(samples: int) -> float:
    """Seconds to fill a batch from one file: asked for a whole batch, a sample is mapped while the next is read."""
    return served(reading(samples), THINK + MEMORY)[-1]


def closing_optimised(samples: int, epochs: int) -> float:
    """The closing pair's second pipeline: two readers, vectorised maps, a cache after the first map.

    Samples come in turn from both files, so a batch is full when each reader has read half of it. The first map of a
    batch overlaps the reading of the next. In later epochs a batch needs the second map alone, and the maps of both
    batches run side by side.
    """
    arrivals = sorted(reading(samples) * 2)
    full = [arrivals[samples - 1], arrivals[2 * samples - 1]]
    mapped = [time + samples * (THINK + MEMORY) for time in full for _ in range(samples)]
    later = [samples * MEMORY] * (2 * samples)
    return trained(mapped) + (epochs - 1) * trained(later) + epochs * EPOCH_PAUSE

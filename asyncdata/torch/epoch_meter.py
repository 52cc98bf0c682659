"""EpochMeter: what an epoch of a loader has done so far, as the statistics of a pipeline of two steps."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from asyncdata.runtime.meter import ThreadClock
from asyncdata.statistics.bottleneck import Bottleneck, bottleneck_of
from asyncdata.statistics.consumer import ConsumerTimes
from asyncdata.statistics.statistics import EMPTY, EngineStatistics, Statistics, statistics_of
from asyncdata.system.host_resources import usable_cores

__all__ = ("EpochMeter",)


WORDS: Final = {
    "num_parallel_calls": "num_workers",
    "executor='process'": f"num_workers={usable_cores()}",
    "map(batch=) a function of many elements": "a larger batch_size, or a dataset with __getitems__",
    "prefetch(AUTOTUNE) as the last step": "a larger prefetch_factor",
    ", or Options(placement='process'), where it does not take turns with its reader": "",
    "faster, or do more in the pipeline": "faster",
}
"""What advice for pipelines says, in the words of a loader."""


class EpochMeter:
    """The seconds that the sampler, the workers and the loop have taken."""

    def __init__(self, sampler: str, workers: int, most: int) -> None:
        self.sampler = sampler
        self.workers = workers
        self.most = most
        """How many batches are asked for at once."""
        self.times = ConsumerTimes()
        self.clock = ThreadClock()
        self.clock.begin()
        self.sampling = self.fetching = 0.0
        """Seconds in the sampler, and in which batches were made, of all workers together."""

    @property
    def labels(self) -> tuple[str, str]:
        """The names of the two steps."""
        return self.sampler, f"map(fetch_batch, num_workers={self.workers})" if self.workers else "map(fetch_batch)"

    @contextmanager
    def fetched(self) -> Generator[None]:
        """Count what is done meanwhile as the making of a batch."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.fetching += time.perf_counter() - begin

    def statistics(self, taken: int, given: int, waiting: int, ended: bool) -> Statistics:
        """Return the statistics: the sampler as the source, and the workers as a map."""
        source = EMPTY._replace(step=self.sampler, items=taken, own_seconds=self.sampling, kind="source")
        fetch = EMPTY._replace(items=given, kind="function", inputs=(0,), cpu_seconds=self.fetching)
        if self.workers:
            fetch = fetch._replace(
                worker_seconds=self.fetching, workers=self.workers, queued=waiting, queue_size=self.most
            )
        else:
            fetch = fetch._replace(own_seconds=self.fetching)
        fetch = fetch._replace(step=self.labels[1], where="process" if self.workers else "inline")
        clock = self.clock
        engine = EngineStatistics((source, fetch), clock.seconds, process_seconds=clock.process_seconds)
        return statistics_of(engine, self.times, "current", given, "ended" if ended else "running")

    @staticmethod
    def bottleneck(stats: Statistics) -> Bottleneck:
        """Return what limits the epoch, in the words of a loader."""
        found = bottleneck_of(stats)
        change = found.change
        for words, of_loader in WORDS.items():
            change = change.replace(words, of_loader)
        return dataclasses.replace(found, change=change)

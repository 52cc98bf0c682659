"""A consumer that blocks 10 ms per step runs at its own pace over a pipeline that needs 9 ms per element.

    python benchmarks/pace.py [--quick] [--json FILE]

The pipeline's 9 ms are a plain sequential map, on the engine's thread. The reference is the consumer's own loop
with nothing to wait for.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from harness import AtMost, Report, Row, alternate, parse_arguments

import asyncdata as ad

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Prepare

__all__ = ("main",)

STEP, WORK = 0.010, 0.009
BAR = AtMost(1.03)


def work(value: int) -> int:
    time.sleep(WORK)
    return value


def alone(steps: int) -> None:
    for _ in range(steps):
        time.sleep(STEP)


def plain(steps: int) -> None:
    for _ in ad.Dataset.range(steps).map(work):
        time.sleep(STEP)


def awaited(steps: int) -> None:
    async def train() -> None:
        async for _ in ad.Dataset.range(steps).map(work):
            time.sleep(STEP)

    asyncio.run(train())


def prepared(run: Callable[[int], None], steps: int) -> Prepare:
    return lambda: lambda: run(steps)


def main() -> None:
    """Measure both kinds of loop against the consumer alone."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("A consumer that blocks 10 ms per step, over 9 ms of work per element")
    steps = 20 if arguments.quick else 200
    loops = {"consumer": alone, "for": plain, "async for": awaited}
    contenders = {name: prepared(run, steps) for name, run in loops.items()}
    samples = alternate(contenders, arguments.rounds(5))
    own = samples.pop("consumer")
    for name, runs in samples.items():
        raw = {name: runs.seconds, "consumer": own.seconds}
        report.add(Row(name, runs.median, against="consumer", reference=own.median, bar=BAR, samples=raw))
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

"""How much longer than the mean the slowest rank takes, with batches as they come and balanced, and what that costs.

    python benchmarks/micro/balance.py [--quick] [--json FILE]

Lengths are lognormal (median 245, at most 2,048), as those of documents are. A step takes as long as the rank whose
batch has the most tokens; what is given is that over the mean of all ranks, averaged over steps.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from harness import Arguments, Prepare

__all__ = ("main",)

LONGEST = 2048
CASES = ((8, 1, 8), (8, 4, 8), (8, 8, 1), (8, 8, 8), (8, 8, 32), (64, 8, 8))
"""Ranks, sequences in a batch, and steps that are dealt together."""


def lengths(count: int) -> Any:
    """Return lognormal lengths."""
    return np.clip(np.random.default_rng(0).lognormal(5.5, 1.0, count), 1, LONGEST).astype(int)


def itself(length: int) -> int:
    """Return what a sequence of that length costs."""
    return length


def slowest(shares: list[Any], size: int) -> float:
    """Return how much longer than the mean the slowest rank takes, on average over steps."""
    costs = np.array([[int(batch.sum()) for batch in share.batch(size, drop_remainder=True)] for share in shares])
    return float((costs.max(0) / costs.mean(0)).mean())


def imbalance(arguments: Arguments, report: Report) -> None:
    """Add how long the slowest rank takes."""
    for ranks, size, steps in CASES:
        count = ranks * size * steps * (1 if arguments.quick else max(1, 500 // steps))
        source = ad.Dataset.from_tensor_slices(lengths(count))
        dealt = [source.shard(ranks, rank) for rank in range(ranks)]
        balanced = [source.balance(itself, size, ranks, rank, steps=steps) for rank in range(ranks)]
        name = f"{ranks} ranks, {size} in a batch, steps={steps}"
        report.add(Row(name, slowest(balanced, size), "", "shard", slowest(dealt, size), AtMost(1)))


def consumed(dataset: Any) -> Prepare:
    """Run the dataset, giving every element to a plain `for`."""

    def run() -> None:
        for _ in dataset:
            pass

    return lambda: run


def costs(arguments: Arguments, report: Report) -> None:
    """Add what an element costs on each rank, beside what it costs to read it."""
    count = 8192 if arguments.quick else 131_072
    source = ad.Dataset.from_tensor_slices(lengths(count))
    sides = {"read": consumed(source), "balance": consumed(source.balance(itself, 8, 8, 0))}
    samples = alternate(sides, arguments.rounds(5))
    told = {side: samples[side].median / count * 1e6 for side in sides}
    raw = {side: samples[side].seconds for side in sides}
    report.add(Row("an element that every rank reads", told["balance"], "µs", "read only", told["read"], None, raw))


def main() -> None:
    """Measure both, and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Batches balanced over ranks")
    imbalance(arguments, report)
    costs(arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

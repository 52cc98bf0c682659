"""What it costs to pack sequences of tokens, and how much of what comes out is no padding.

    python benchmarks/micro/packing.py [--quick] [--json FILE]

Lengths are lognormal (median 245, at most 2,048), as those of documents are. A row has 2,048 tokens. The loop beside it
does the same as first fit, token by token, in plain Python.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from harness import Arguments, Prepare

__all__ = ("main",)

LENGTH = 2048
WAYS: dict[str, dict[str, Any]] = {
    "first fit, 1 open row": {"open_rows": 1},
    "first fit, 16 open rows": {"open_rows": 16},
    "first fit, 64 open rows": {},
    "first fit, 256 open rows": {"open_rows": 256},
    "best fit, 64 open rows": {"strategy": "best_fit"},
    "concat_then_split": {"strategy": "concat_then_split"},
}


def documents(count: int) -> list[Any]:
    """Return sequences of lognormal lengths."""
    sizes = np.clip(np.random.default_rng(0).lognormal(5.5, 1.0, count), 1, LENGTH).astype(int)
    return [np.full(size, 7, np.int32) for size in sizes]


def consumed(dataset: Any) -> Prepare:
    """Run the dataset, giving every element to a plain `for`."""

    def run() -> None:
        for _ in dataset:
            pass

    return lambda: run


def looped(sequences: list[Any], open_rows: int = 64) -> int:
    """Pack by first fit, token by token."""
    rows: list[tuple[list[int], list[int], list[int]]] = []
    done = 0
    for sequence in sequences:
        row = next((row for row in rows if len(row[0]) + len(sequence) <= LENGTH), None)
        if row is None:
            if len(rows) == open_rows:
                done += finished(rows, max(rows, key=lambda row: len(row[0])))
            rows.append(row := ([], [], []))
        tokens, segments, positions = row
        segment = segments[-1] + 1 if segments else 1
        for position, token in enumerate(sequence):
            tokens.append(token)
            segments.append(segment)
            positions.append(position)
        if len(tokens) == LENGTH:
            done += finished(rows, row)
    return done + sum(finished(rows, row) for row in [*rows])


def finished(rows: list[Any], row: Any) -> int:
    """Take a row away and fill it up."""
    rows[:] = [other for other in rows if other is not row]
    padding = [0] * (LENGTH - len(row[0]))
    return len([np.array(part + padding, np.int32) for part in row]) // 3


def costs(arguments: Arguments, report: Report) -> None:
    """Add what a token costs beside the loop."""
    sequences = documents(300 if arguments.quick else 5_000)
    tokens = sum(map(len, sequences)) / 1e9
    source = ad.Dataset.from_iterable(sequences)
    sides: dict[str, Prepare] = {"loop": lambda: lambda: looped(sequences)}
    sides |= {name: consumed(source.pack_sequences(LENGTH, **how)) for name, how in WAYS.items()}
    sides["bucket_by_token_count"] = consumed(source.bucket_by_token_count(8 * LENGTH))
    samples = alternate(sides, arguments.rounds(5))
    loop = samples["loop"].median / tokens
    for name in [*WAYS, "bucket_by_token_count"]:
        cost = samples[name].median / tokens
        raw = {side: samples[side].seconds for side in ("loop", name)}
        report.add(Row(name, cost, "ns/token", "loop", loop, AtLeast(2), raw))


def shares(arguments: Arguments, report: Report) -> None:
    """Add how much of what comes out is tokens, beside one sequence in each row."""
    sequences = documents(300 if arguments.quick else 20_000)
    tokens = sum(map(len, sequences))
    alone = tokens / len(sequences) / LENGTH * 100
    source = ad.Dataset.from_iterable(sequences)
    for name, how in WAYS.items():
        rows = sum(1 for _ in source.pack_sequences(LENGTH, **how))
        report.add(Row(f"filled: {name}", tokens / rows / LENGTH * 100, "%", "one in a row", alone))
    for name, batches in {
        "filled: bucket_by_token_count": source.bucket_by_token_count(8 * LENGTH),
        "filled: padded_batch(8)": source.padded_batch(8),
    }.items():
        report.add(Row(name, tokens / sum(batch.size for batch in batches) * 100, "%", "one in a row", alone))


def main() -> None:
    """Measure costs and shares, and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Packing of sequences")
    costs(arguments, report)
    shares(arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

"""Pipelines whose states and files of an earlier version are in `earlier/`; the tests go on from them.

Run `python -m tests.data.earlier` to write those of pipelines that are new. Written ones are never written again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent / "earlier"
STATES = HERE / "states.json"

R = ad.Dataset.range


def double(value: Any) -> Any:
    return value * 2


def is_even(value: Any) -> bool:
    return int(value) % 2 == 0


def third(value: Any) -> int:
    return int(value) % 3


def remainder(value: Any) -> int:
    return int(value) % 7


def total(state: Any, value: Any) -> tuple[Any, Any]:
    return state + value, state + value


def up_to(value: Any) -> ad.Dataset:
    return R(int(value) % 4)


def three(value: Any) -> ad.Dataset:
    return R(int(value), int(value) + 3)


def batched(dataset: ad.Dataset) -> ad.Dataset:
    return dataset.batch(2)


def window_of(key: Any, window: ad.Dataset) -> ad.Dataset:
    return window.batch(3)


def length(value: Any) -> int:
    return len(value)


def ones(value: Any) -> Any:
    return np.ones(int(value) % 5 + 1, np.int64) * int(value)


def items() -> Any:
    yield from range(12)


reducer = ad.Reducer(lambda key: np.int64(0), lambda state, value: state + value, lambda state: state)


def lines() -> ad.Dataset:
    return ad.TextLineDataset([str(HERE / "a.txt"), str(HERE / "b.txt")])


PIPELINES: dict[str, Callable[[], ad.Dataset]] = {
    "range": lambda: R(12),
    "slices": lambda: ad.Dataset.from_tensor_slices({"a": np.arange(12), "b": np.arange(24).reshape(12, 2)}),
    "list": lambda: ad.Dataset.from_list([*range(12)]),
    "generator": lambda: ad.Dataset.from_generator(items),
    "iterable": lambda: ad.Dataset.from_iterable([*range(12)]),
    "random": lambda: ad.Dataset.random(seed=3).take(12),
    "lines": lines,
    "fixed": lambda: ad.FixedLengthRecordDataset(str(HERE / "a.txt"), 4),
    "records": lambda: ad.TFRecordDataset(str(HERE.parent / "golden.tfrecord")),
    "csv": lambda: ad.experimental.CsvDataset(str(HERE / "c.csv"), [np.int32, str]),
    "map": lambda: R(12).map(double),
    "map parallel": lambda: R(12).map(double, num_parallel_calls=2),
    "map batches": lambda: R(12).map(double, batch=4),
    "filter": lambda: R(24).filter(is_even),
    "distinct": lambda: R(24).map(remainder).distinct(),
    "unique": lambda: R(24).map(remainder).unique(),
    "scan": lambda: R(12).scan(0, total),
    "take while": lambda: R(24).take_while(lambda value: value < 9),
    "enumerate": lambda: R(12).enumerate(5),
    "flat map": lambda: R(12).flat_map(up_to),
    "interleave": lambda: R(8).interleave(three, cycle_length=3, block_length=2),
    "interleave parallel": lambda: R(8).interleave(three, cycle_length=3, num_parallel_calls=2),
    "interleave files": lambda: ad.Dataset.from_list([str(HERE / "a.txt"), str(HERE / "b.txt")]).interleave(
        ad.TextLineDataset, cycle_length=2
    ),
    "zip": lambda: ad.Dataset.zip(R(12), R(12).map(double)),
    "concatenate": lambda: R(7).concatenate(R(5)),
    "batch": lambda: R(25).batch(4),
    "padded batch": lambda: R(24).map(ones).padded_batch(4, padding_values=-1),
    "ragged batch": lambda: R(24).map(ones).ragged_batch(4),
    "unbatch": lambda: R(24).batch(4).unbatch(),
    "rebatch": lambda: R(40).batch(4).rebatch([3, 2]),
    "window": lambda: R(12).window(3, shift=2).flat_map(batched),
    "pack sequences": lambda: R(24).map(ones).pack_sequences(8),
    "token count": lambda: R(30).map(ones).bucket_by_token_count(12, buffer_size=8),
    "group by window": lambda: R(30).group_by_window(third, window_of, window_size=4),
    "sequence length": lambda: R(30).map(ones).bucket_by_sequence_length(length, [2, 4], [3, 3, 3]),
    "group by reducer": lambda: R(30).group_by_reducer(remainder, reducer),
    "shuffle": lambda: R(24).shuffle(8, seed=5),
    "shuffle of everything": lambda: R(24).shuffle(seed=5),
    "shuffle and repeat": lambda: R(8).shuffle(5, seed=5).repeat(3),
    "resample": lambda: R(60).rejection_resample(third, [0.2, 0.5, 0.3], [0.4, 0.3, 0.3], seed=7),
    "repeat": lambda: R(5).repeat(3),
    "take": lambda: R(30).take(11),
    "skip": lambda: R(30).skip(11),
    "shard": lambda: R(30).shard(3, 1),
    "cache": lambda: R(12).cache().repeat(2),
    "ignore errors": lambda: R(24).map(lambda value: 1 // (int(value) % 5)).ignore_errors(),
    "assert cardinality": lambda: ad.Dataset.from_generator(items).assert_cardinality(12),
    "pad to cardinality": lambda: R(7).pad_to_cardinality(12),
    "prefetch": lambda: R(12).prefetch(3),
    "sample": lambda: ad.Dataset.sample_from_datasets([R(20), R(100, 120)], [0.3, 0.7], seed=9),
    "choose": lambda: ad.Dataset.choose_from_datasets([R(20), R(100, 120)], R(2).repeat(8)),
    "saved": lambda: ad.Dataset.load(str(HERE / "saved")),
    "fixed files": lambda: ad.FixedLengthRecordDataset([str(HERE / "a.txt"), str(HERE / "b.txt")], 4),
    "csv files": lambda: ad.experimental.CsvDataset([str(HERE / "c.csv")] * 2, [np.int32, str]),
    "token files": lambda: ad.TokenDataset([str(HERE / "a.txt"), str(HERE / "b.txt")], 6, dtype=np.uint8),
    "files at once": lambda: ad.TextLineDataset([str(HERE / "a.txt"), str(HERE / "b.txt")], num_parallel_reads=2),
}


def comparable(value: Any) -> Any:
    """Return an element as JSON holds it."""
    if isinstance(value, dict):
        return {name: comparable(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [comparable(part) for part in value]
    if isinstance(value, ad.Ragged):
        return [comparable(row) for row in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def write() -> None:
    """Write the state of each new pipeline after three elements, and the elements that follow."""
    HERE.mkdir(exist_ok=True)
    for name, first in (("a.txt", 0), ("b.txt", 100)):
        if not (HERE / name).exists():
            (HERE / name).write_text("".join(f"{number:03d}\n" for number in range(first, first + 9)))
    if not (HERE / "c.csv").exists():
        (HERE / "c.csv").write_text("".join(f"{number},text {number}\n" for number in range(9)))
    if not (HERE / "saved").exists():
        R(12).map(lambda value: {"a": value, "b": np.arange(3)}).save(str(HERE / "saved"))
    told = json.loads(STATES.read_text()) if STATES.exists() else {}
    for name, made in PIPELINES.items():
        if name in told:
            continue
        elements = made().iterate()
        for _ in range(3):
            next(elements, None)
        state = elements.state_dict()
        told[name] = {"state": state, "rest": [comparable(element) for element in elements]}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in told.items())
    STATES.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    write()

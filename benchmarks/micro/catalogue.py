"""What an element costs in each source and each transformation of tf.data's catalogue, on both sides by turns.

    python benchmarks/micro/catalogue.py [--quick] [--json FILE]

A row is a whole pipeline, the same on both sides, with as little as can be around what it names. `skip` swallows what
comes out, so that neither side pays for handing it to Python; TFRecords are put into batches first, as tf.data's skip
does not read them. Functions are Python's here and graphs there. Costs are per element that goes in, or per row of the
batches of `rebatch` and `unbatch`. What tf.data has not is measured alone, and so is everything without TensorFlow.
So is what Python and NumPy need by themselves for two of the rows: what no pipeline in Python can fall below. Python's
own driver for SQLite takes most of what a row of a database costs; where APSW is installed, it reads the same rows.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from catalogue_sources import Files, from_list, kept, listed, readers, sources
from harness import AtMost, Report, Row, alternate, parse_arguments, tensorflow
from sides import EVERYTHING, Case, compare, consume, swallow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Arguments, Prepare

__all__ = ("main",)

PICTURES = np.ones((50, 224, 224, 3), np.uint8)  # zeros would be one page of memory, again and again


def increment(number: Any) -> Any:
    return number + 1


async def increment_async(number: int) -> int:
    return number + 1


def is_even(number: Any) -> Any:
    return number % 2 == 0


def is_small(number: Any) -> Any:
    return number < 1 << 40


def is_rare(number: Any) -> Any:
    return number % 10_000 == 0


def last_digit(number: Any) -> Any:
    return number % 10


def one_of_many(number: Any) -> Any:
    return number % 16_000


def same(value: Any) -> Any:
    return value


def add(total: Any, number: Any) -> Any:
    return total + number


def running(total: Any, number: Any) -> Any:
    return total + number, total + number


def in_batches(dataset: Any) -> Any:
    return dataset.batch(64)


def one_batch(_: Any, window: Any) -> Any:
    return window.batch(32)


def window_batch(window: Any) -> Any:
    return window.batch(8)


def zero(api: Any) -> Any:
    """Return the integer that sums begin with, of the type that numbers have."""
    return 0 if api is ad else np.int64(0)


def ten(api: Any) -> Callable[[Any], Any]:
    """Return the function that makes a dataset of ten elements."""
    return lambda _: api.Dataset.range(10)


def one_by_one(count: int) -> Iterator[Case]:
    """A function called on each element."""

    def numbers(api: Any) -> Any:
        return api.Dataset.range(count)

    shared = {
        "map": lambda api: numbers(api).map(increment),
        "map, 4 at once": lambda api: numbers(api).map(increment, num_parallel_calls=4),
        "filter": lambda api: numbers(api).filter(is_even),
        "scan": lambda api: numbers(api).scan(zero(api), running),
        "take_while": lambda api: numbers(api).take_while(is_small),
        "group_by_reducer, 10 keys": lambda api: by_reducer(api, numbers(api)),
        "group_by_window(32), 10 keys": lambda api: numbers(api).group_by_window(last_digit, one_batch, 32),
        "rejection_resample, estimated": lambda api: resampled(api, count),
        "flat_map, 10 each": lambda api: api.Dataset.range(count // 10).flat_map(ten(api)),
        "interleave, 4 open": lambda api: woven(api, count),
        "interleave, 4 open, 4 at once": lambda api: woven(api, count, num_parallel_calls=4),
        "window(8), flat_map(batch)": lambda api: numbers(api).window(8).flat_map(window_batch),
    }
    own = {
        "map(batch=256)": lambda api: numbers(api).map(increment, batch=256),
        "filter, 4 at once": lambda api: numbers(api).filter(is_even, num_parallel_calls=4),
        "map, a coroutine": lambda api: numbers(api).map(increment_async),
        "map(with_retries), a coroutine": lambda api: numbers(api).map(ad.with_retries(increment_async, 3)),
        "map(with_timeout), a coroutine": lambda api: numbers(api).map(ad.with_timeout(increment_async, 9)),
    }
    yield from swallow(count, shared)
    yield from swallow(16_400, {"group_by_window(2), 400 with 16,000 keys open": with_many_keys})
    yield Case("reduce", count, lambda api: reduced(numbers(api), zero(api)))
    yield from swallow(count, own, is_shared=False)


def consumed(dataset: Any) -> Prepare:
    return lambda: lambda: consume(dataset)


def reduced(dataset: Any, initial: Any) -> Prepare:
    return lambda: lambda: dataset.reduce(initial, add)


def by_reducer(api: Any, numbers: Any) -> Any:
    """Return sums by key."""
    if api is ad:
        return numbers.group_by_reducer(last_digit, ad.Reducer(lambda _: 0, add, same))
    reducer = api.experimental.Reducer(lambda _: tensorflow().constant(0, "int64"), add, same)
    return numbers.apply(api.experimental.group_by_reducer(last_digit, reducer))


def with_many_keys(api: Any) -> Any:
    """Return the first windows of two elements, after one element of each of many keys."""
    return api.Dataset.range(16_400).group_by_window(one_of_many, one_batch, 2).take(400)


def resampled(api: Any, count: int) -> Any:
    """Return classes in equal shares, whose own are not known."""
    labels = np.random.default_rng(1).choice(3, count, p=[0.4, 0.35, 0.25]).astype(np.int32)
    return api.Dataset.from_tensor_slices(labels).rejection_resample(same, [1 / 3] * 3, seed=1)


def woven(api: Any, count: int, **how: Any) -> Any:
    return api.Dataset.range(count // 10).interleave(ten(api), cycle_length=4, **how)


def in_order(count: int) -> Iterator[Case]:
    """Elements that are moved, counted, left out or remembered."""

    def numbers(api: Any) -> Any:
        return api.Dataset.range(count)

    def halves(api: Any) -> list[Any]:
        return [api.Dataset.range(count // 2), api.Dataset.range(count // 2)]

    def chosen(api: Any) -> Any:
        return api.Dataset.choose_from_datasets(halves(api), api.Dataset.from_tensor_slices(np.arange(count) % 2))

    def rare(api: Any) -> Any:
        return numbers(api).shuffle(1000, seed=1).filter(is_rare)

    shared = {
        "zip": lambda api: api.Dataset.zip((numbers(api), numbers(api))),
        "concatenate": lambda api: halves(api)[0].concatenate(halves(api)[1]),
        "enumerate": lambda api: numbers(api).enumerate(),
        "take": lambda api: api.Dataset.range(2 * count).take(count),
        "skip": lambda api: numbers(api).skip(10),
        "shard(4, 1)": lambda api: numbers(api).shard(4, 1),
        "repeat, of 10": lambda api: api.Dataset.range(10).repeat(count // 10),
        "shuffle(1000)": lambda api: numbers(api).shuffle(1000, seed=1),
        "unique, of 1,000": lambda api: api.Dataset.from_tensor_slices(np.arange(count) % 1000).unique(),
        "sample_from_datasets of 2": lambda api: api.Dataset.sample_from_datasets(halves(api), seed=1),
        "choose_from_datasets of 2": chosen,
        "prefetch(16)": lambda api: numbers(api).prefetch(16),
        "cache(), read 9 times": lambda api: api.Dataset.range(count // 10).cache().repeat(10),
        "ignore_errors": lambda api: numbers(api).ignore_errors(),
        "assert_cardinality": lambda api: counted(api, "assert_cardinality", numbers(api), count),
        "pad_to_cardinality": lambda api: padded(api, count),
    }
    own = {
        "distinct": lambda api: numbers(api).distinct(),
        "shuffle()": lambda api: numbers(api).shuffle(seed=1),
        "rate_limit": lambda api: numbers(api).rate_limit(1e9, EVERYTHING),
    }
    yield from swallow(count, shared)
    yield from swallow(count, own, is_shared=False)
    yield Case("shuffle(1000), filter of 1 in 10,000", count, lambda api: consumed(rare(api)))
    yield Case("tee, 2 consumers", count, lambda api: teed(numbers(api)), is_shared=False)


def counted(api: Any, name: str, dataset: Any, count: int) -> Any:
    """Apply what is a method here and a function there."""
    return getattr(dataset, name)(count) if api is ad else dataset.apply(getattr(api.experimental, name)(count))


def padded(api: Any, count: int) -> Any:
    rows = api.Dataset.from_tensor_slices({"x": np.arange(count)})
    return counted(api, "pad_to_cardinality", rows, count + 10)


def teed(dataset: Any) -> Prepare:
    """Run two consumers of one iteration."""

    async def read(consumer: Any) -> None:
        async for _ in consumer:
            pass

    async def both() -> None:
        await asyncio.gather(*map(read, dataset.tee(2, 1024)))

    return lambda: lambda: asyncio.run(both())


def in_groups(count: int) -> Iterator[Case]:
    """Elements that are put together or taken apart."""
    large = count // 80  # so many that the start and the end of a pipeline are no part of what a row takes

    def batches(api: Any) -> Any:
        return api.Dataset.range(count).batch(64)

    def table(api: Any) -> Any:
        return api.Dataset.from_tensor_slices({"x": np.zeros((count, 16), np.float32), "y": np.arange(count)})

    numbers = {
        "batch(64)": batches,
        "apply(batch(64))": lambda api: api.Dataset.range(count).apply(in_batches),
        "batch(64), unbatch": lambda api: batches(api).unbatch(),
        "batch(64), rebatch(48)": lambda api: batches(api).rebatch(48),
        "batch(64), rebatch([16, 48])": lambda api: batches(api).rebatch([16, 48]),
        "window(8)": lambda api: api.Dataset.range(count).window(8),
        "rows of two arrays, shuffle(1000), batch(64)": lambda api: table(api).shuffle(1000).batch(64),
        "rows of two arrays, repeat, batch(64)": lambda api: table(api).repeat(2).take(count).batch(64),
    }
    pictures = {
        "batch(50) of 150 KB": lambda api: api.Dataset.from_tensors(PICTURES[0]).repeat(large).batch(50),
        "batch(80), rebatch(40) of 150 KB": lambda api: (
            api.Dataset.from_tensors(PICTURES[0]).repeat(large).batch(80).rebatch(40)
        ),
        "rebatch(40), rows of 150 KB": lambda api: api.Dataset.from_tensors(PICTURES).repeat(large // 50).rebatch(40),
        "map, batch(50) of 150 KB": lambda api: (
            api.Dataset.from_tensors(PICTURES[0]).repeat(large).map(brighter).batch(50)
        ),
        "map, rebatch(25), rows of 150 KB": lambda api: (
            api.Dataset.from_tensors(PICTURES).repeat(large // 50).map(brighter).rebatch(25)
        ),
    }
    yield from swallow(count, numbers)
    yield from swallow(large // 50 * 50 or 50, pictures)


def brighter(pixels: Any) -> Any:
    """Return new pictures, by NumPy or by TensorFlow."""
    return pixels + np.uint8(1)


def of_sequences(count: int) -> Iterator[Case]:
    """Arrays of 1 to 100 numbers in batches."""
    sizes = np.random.default_rng(2).integers(1, 100, 500)
    arrays = [np.arange(size) for size in sizes]

    def sequences(api: Any) -> Any:
        return from_list(api)(arrays).repeat(count // 500)

    shared = {
        "padded_batch(64)": lambda api: sequences(api).padded_batch(64),
        "ragged_batch(64)": lambda api: sequences(api).ragged_batch(64),
        "bucket_by_sequence_length": lambda api: bucketed(api, sequences(api)),
    }
    own = {
        "bucket_by_token_count": lambda api: sequences(api).bucket_by_token_count(4096),
        "pack_sequences": lambda api: sequences(api).pack_sequences(2048),
    }
    yield from swallow(count, shared)
    yield from swallow(count, own, is_shared=False)


def bucketed(api: Any, sequences: Any) -> Any:
    """Return batches of arrays of about one length."""
    length = len if api is ad else lambda sequence: tensorflow().shape(sequence)[0]
    return sequences.bucket_by_sequence_length(length, [25, 50, 75], [32] * 4)


def by_call(calls: int) -> Iterator[Case]:
    """What is asked for one element of a dataset."""

    def repeatedly(ask: Callable[[Any], Any]) -> Callable[[Any], Prepare]:
        def prepare(api: Any) -> Prepare:
            dataset = api.Dataset.range(64).batch(64)
            return lambda: lambda: [ask(dataset) for _ in range(calls)]

        return prepare

    yield Case("get_single_element, a call", calls, repeatedly(lambda dataset: dataset.get_single_element()))
    yield Case("a loop over one element", calls, repeatedly(list))
    yield Case("peek, a call", calls, repeatedly(lambda dataset: dataset.peek()), is_shared=False)


def limits(files: Files, arguments: Arguments, report: Report) -> None:
    """Add what Python and NumPy alone need for two of the rows above: no pipeline can take less."""
    rows, out = np.ones((40, *PICTURES.shape[1:]), np.uint8), np.empty((40, *PICTURES.shape[1:]), np.uint8)
    alone = {
        "SqlDataset's limit: cursor and arrays alone": (files.read_rows, files.count),
        "rebatch(40)'s limit: a copy of the rows": (lambda: [np.copyto(out, rows) for _ in range(10)], 10 * len(rows)),
    }
    for name, (call, units) in alone.items():
        samples = alternate({name: lambda call=call: call}, arguments.rounds(5))[name]
        report.add(Row(name, samples.median / units * 1e6, "us", samples={name: samples.seconds}))


def states(arguments: Arguments, report: Report) -> None:
    """Add what a state of many datasets costs."""
    times = sorted(state_times(20 if arguments.quick else 2_000))
    median = times[len(times) // 2] * 1e6
    report.add(Row("state of 10,000 datasets, each 32 elements", median, "us", "bar", 100, AtMost(1)))


def state_times(count: int) -> list[float]:
    """Return the seconds of each of many states of a mixture of 10,000 datasets, one after each batch."""
    datasets = [ad.Dataset.counter(number) for number in range(10_000)]
    mixture = ad.Dataset.sample_from_datasets(datasets, seed=1).batch(32)
    found: list[float] = []
    with mixture.with_options(ad.Options(placement="current")).iterate() as batches:
        next(batches)
        batches.state_dict()
        for _ in range(count):
            next(batches)
            begin = time.perf_counter()
            batches.state_dict()
            found.append(time.perf_counter() - begin)
    return found


def main() -> None:
    """Run every case and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("The cost of each source and transformation, per element")
    many, some, few = (500, 500, 20) if arguments.quick else (200_000, 5_000, 5_000)
    compare(sources(many), arguments, report)
    files = Files(few if arguments.quick else 50_000)
    compare(readers(files), arguments, report)
    compare([listed(few)], arguments, report)
    compare(kept(few), arguments, report)
    compare(one_by_one(some), arguments, report)
    compare(in_order(many), arguments, report)
    compare(in_groups(many), arguments, report)
    compare(of_sequences(some), arguments, report)
    compare(by_call(2 if arguments.quick else 50), arguments, report)
    limits(files, arguments, report)
    states(arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

"""What states cost: how large they are, how long it takes to take one, and what is done again after going on.

    python benchmarks/micro/states.py [--quick] [--json FILE]

States are taken after each of some elements, or batches of 32, in the middle of a run; the first is apart, as it also
looks at every file. Calls are counted over nine stops at random places of 20,000 elements; with 64 calls at once, 64 of
them are under way at each stop, which alone is 2.9 %. Elastic: four processes, then three, then five, each stopped at
another step, over filter, flat_map and batch.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncdata as ad
from asyncdata.checkpoint import merge_states

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Below, Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Arguments

__all__ = ("main",)

KILOBYTES = 4096
MICROSECONDS = 0.1
ENDLESS = 10**9


def compact(state: Any) -> int:
    """Return the bytes of a state as JSON."""
    return len(json.dumps(state, separators=(",", ":")))


def size_and_time(name: str, ds: Any, before: int, report: Report, quick_enough: bool = False) -> None:
    """Take states in the middle of a run."""
    with ds.iterate() as elements:
        for _ in range(before):
            next(elements)
        elements.state_dict()
        times: list[float] = []
        sizes: list[int] = []
        for _ in range(200):
            next(elements)
            start = time.perf_counter()
            state = elements.state_dict()
            times.append((time.perf_counter() - start) * 1000)
            sizes.append(compact(state))
    small: dict[str, Any] = {"against": "bar", "reference": KILOBYTES, "bar": AtMost(1)}
    soon: dict[str, Any] = {"against": "bar", "reference": MICROSECONDS, "bar": AtMost(1)}
    report.add(Row(f"{name}: state", max(sizes), "bytes", **({} if quick_enough else small)))
    taken = statistics.median(times)
    report.add(Row(f"{name}: taking", taken, "ms", samples={"ms": times}, **(soon if quick_enough else {})))


def write_files(folder: Path, count: int) -> list[str]:
    """Write files of 200 records each."""
    paths = [str(folder / f"part-{number:05}.tfrecord") for number in range(count)]
    for path in paths:
        with ad.TFRecordWriter(path) as writer:
            for record in range(200):
                writer.write(b"%d" % record)
    return paths


def over_files(files: int, report: Report) -> None:
    """States of what reads many files."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), files)
        one_by_one = ad.TFRecordDataset(paths)
        woven = ad.TFRecordDataset(paths, num_parallel_reads=16)
        size_and_time("files in turn", one_by_one, 300, report)
        size_and_time("16 open files", woven, 300, report)
        size_and_time("files in turn, shuffle(1000)", one_by_one.shuffle(1000), 300, report)
        size_and_time("16 open files, shuffle(1000), batch", woven.shuffle(1000).batch(32), 100, report)
        many = ad.TFRecordDataset(paths * (10_000 // files), num_parallel_reads=16)
        size_and_time("16 open of 10,000 files", many, 300, report, quick_enough=True)


def over_sources(sources: int, report: Report) -> None:
    """States of a mixture of many datasets, all of which are open."""
    ds = ad.Dataset.sample_from_datasets([ad.Dataset.range(ENDLESS) for _ in range(sources)], seed=1).batch(32)
    ds = ds.with_options(ad.Options(placement="current"))
    size_and_time(f"mixture of {sources:,} datasets", ds, 300, report, quick_enough=True)


def delay(number: int) -> float:
    return number * 2_654_435_761 % 1_000 / 1_000 * 0.002


def calls_made(parallel: int, is_async: bool, count: int) -> float:
    """Return how many calls are made for each element of a run that is stopped nine times."""
    calls = itertools.count()

    def function(number: int) -> int:
        next(calls)
        time.sleep(delay(number))
        return number

    async def coroutine(number: int) -> int:
        next(calls)
        await asyncio.sleep(delay(number))
        return number

    call: Callable[..., Any] = coroutine if is_async else function
    chosen = random.Random(parallel)
    stops = sorted(chosen.sample(range(1, count // 32), 9))
    state: Any = None
    found: Counter[int] = Counter()
    for first, last in itertools.pairwise([0, *stops, count]):
        ds = ad.Dataset.range(count).map(call, num_parallel_calls=parallel, deterministic=False).batch(32).prefetch(8)
        with ds.iterate(state=state) as batches:
            for batch in itertools.islice(batches, last - first):
                found.update(batch.tolist())
            state = batches.state_dict()
    assert found == Counter(range(count))
    return next(calls) / count


def work_done_again(arguments: Arguments, report: Report) -> None:
    """Count calls over nine stops."""
    count = 1_000 if arguments.quick else 20_000
    for name, parallel, is_async in (("8 threads", 8, False), ("64 coroutines", 64, True)):
        made = calls_made(parallel, is_async, count)
        bar: dict[str, Any] = {} if arguments.quick else {"bar": AtMost(1.05)}
        report.add(Row(f"calls over nine stops, {name}", made, "each", "once", 1, **bar))


def words(number: int) -> ad.Dataset[Any]:
    return ad.Dataset.range(number * 10, number * 10 + number % 4)


def shared(count: int, index: int, elements: int) -> ad.Dataset[Any]:
    ds = ad.Dataset.range(elements).shuffle(seed=3).shard(count, index).filter(lambda x: x % 5 != 0)
    return ds.flat_map(words).shuffle(64, seed=1).batch(8)


def elastic(arguments: Arguments, report: Report) -> None:
    """Run four processes' shares, then three, then five, each to another step."""
    elements = 1_000 if arguments.quick else 50_000
    found: Counter[int] = Counter()
    sizes: list[int] = []
    state: Any = None
    chosen = random.Random(0)
    for count, last in ((4, False), (3, False), (5, True)):
        states: list[Any] = []
        for index in range(count):
            with shared(count, index, elements).iterate(state=state) as batches:
                steps = None if last else chosen.randrange(elements // 100)
                for batch in itertools.islice(batches, steps):
                    found.update(batch.tolist())
                states.append(batches.state_dict())
        state = merge_states(states)
        sizes.append(compact(state))
    wanted = Counter({x: 1 for n in range(elements) if n % 5 for x in range(n * 10, n * 10 + n % 4)})
    none: dict[str, Any] = {"against": "bar", "reference": 0, "bar": Below(0)}
    report.add(Row("four, three, five processes: lost", sum((wanted - found).values()), "elements", **none))
    report.add(Row("four, three, five processes: repeated", sum((found - wanted).values()), "elements", **none))
    report.add(Row("four, three, five processes: merged state", max(sizes), "bytes"))


def milliseconds_to_first(make: Callable[[], Any]) -> float:
    start = time.perf_counter()
    with make() as elements:
        next(elements)
        return (time.perf_counter() - start) * 1000


def skipped(ds: Any, count: int) -> Any:
    elements = ds.iterate()
    elements.skip(count)
    return elements


def anywhere(arguments: Arguments, report: Report) -> None:
    """Start a shuffle of 10**9 elements, skip 10**8 of them, and see what it adds to each."""
    ds = ad.Dataset.range(ENDLESS).shuffle(seed=1)
    rounds = arguments.rounds(11)
    first = [milliseconds_to_first(ds.iterate) for _ in range(rounds)]
    later = [milliseconds_to_first(lambda: skipped(ds, 10**8)) for _ in range(rounds)]
    report.add(Row("shuffle of 10**9: start", statistics.median(first), "ms", "bar", 100, AtMost(1)))
    report.add(Row("shuffle of 10**9: skip 10**8", statistics.median(later), "ms", "start", statistics.median(first)))
    count = 20_000 if arguments.quick else 1_000_000
    plain = ad.Dataset.range(count)

    def reading(ds: ad.Dataset[int]) -> Callable[[], Callable[[], Any]]:
        return lambda: lambda: sum(1 for _ in ds)

    times = alternate({"range": reading(plain), "shuffle": reading(plain.shuffle(seed=1))}, rounds)
    before, after = (times[name].median * 1e9 / count for name in ("range", "shuffle"))
    report.add(Row("shuffle of everything: adds", after - before, "ns", "bar", 100, AtMost(1)))


def main() -> None:
    """Measure, and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("States")
    over_files(60 if arguments.quick else 1_000, report)
    over_sources(1_000 if arguments.quick else 10_000, report)
    work_done_again(arguments, report)
    elastic(arguments, report)
    anywhere(arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

"""Stop and resume: the same job in every loader that is installed, stopped at 10 %, 50 % and 90 % of its data.

    python benchmarks/loaders/resume.py [--quick] [--json FILE]

The job calls a function with a small random delay on 20,000 numbers, many calls at once where the loader can, and
makes batches of 32. At each stop a state is taken, everything is closed, and a pipeline built afresh goes on from the
state; so the second and third state are those of a run that was itself resumed. A state is what another process could
read: bytes, or tf.data's files, as it writes nothing else; the time to take it covers that. The time to resume goes
from building to the first new batch. Each loader runs in a process of its own, after a short warm-up. A quick run is of
asyncdata alone; the others are those of `pip install tensorflow torch torchdata grain datasets` that are there.

tf.data's function is made of graph operations that count to a random number: an iterator over a Python function is not
saved ("PyFunc is stateful") unless symbolic checkpoints or `ExternalStatePolicy.IGNORE` are asked for.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import json
import logging
import os
import pickle
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncdata as ad
from asyncdata.system.checksum import with_checksum

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Below, Report, Row, fresh, installed, parse_arguments, tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness import Arguments

__all__ = ("main",)

BATCH = 32
PARALLEL, WIDE = 8, 64
LONGEST_DELAY = 0.0004
STOPS = (10, 50, 90)
ORDERED_STATE, UNORDERED_STATE = 4096, 65_536
NONE = Below(0)
FAR = 10**8
RECORDS = 4


class State(NamedTuple):
    """Where a run stands, as its loader writes it down, and how many bytes that takes."""

    content: Any
    size: int

    @staticmethod
    def of(content: bytes) -> State:
        return State(content, len(content))


class Opened(NamedTuple):
    """A running pipeline: its batches as lists of numbers, and how to take its state."""

    batches: Iterator[list[int]]
    save: Callable[[], State]


@dataclass(frozen=True)
class Outcome:
    """What one run with three stops came to: milliseconds and bytes for each stop."""

    lost: int
    repeated: int
    size: tuple[int, ...]
    taking: tuple[float, ...]
    resuming: tuple[float, ...]


# the job


def delay(number: int) -> float:
    """A delay that looks random and is the same in every run."""
    return number * 2654435761 % 1000 / 1000 * LONGEST_DELAY


def work(number: int) -> int:
    time.sleep(delay(int(number)))
    return number


async def work_async(number: int) -> int:
    await asyncio.sleep(delay(number))
    return number


# the loaders


def compact(state: Any) -> bytes:
    return json.dumps(state, separators=(",", ":")).encode()


@contextmanager
def asyncdata(function: Callable[[int], Any], parallel: int, ordered: bool, count: int, state: Any) -> Iterator[Opened]:
    ds = ad.Dataset.range(count).map(function, num_parallel_calls=parallel, deterministic=ordered)
    ds = ds.batch(BATCH).prefetch(ad.AUTOTUNE)
    with ds.iterate(state=state and json.loads(state)) as batches:
        yield Opened((batch.tolist() for batch in batches), lambda: State.of(compact(batches.state_dict())))


def spin(tf: Any, number: Any) -> Any:
    """Count to a random number in the graph: what `work` is to the others."""
    turns = number * 2654435761 % 64
    counted = tf.while_loop(lambda turn: turn < turns, lambda turn: [turn + 1], [tf.zeros_like(number)])[0]
    return number + counted - turns


@contextmanager
def tf_data(symbolic: bool, parallel: int, ordered: bool, count: int, state: Any) -> Iterator[Opened]:
    tf = tensorflow()
    assert tf is not None
    options = tf.data.Options()
    options.experimental_symbolic_checkpoint = symbolic
    ds = tf.data.Dataset.range(count).map(functools.partial(spin, tf), parallel, ordered)
    batches = iter(ds.batch(BATCH).prefetch(tf.data.AUTOTUNE).with_options(options))
    saved = tf.train.Checkpoint(iterator=batches)
    if state is not None:
        saved.read(state).assert_consumed()

    def save() -> State:
        path = Path(saved.write(f"{tempfile.mkdtemp(dir=os.environ['STATES'])}/state"))
        return State(str(path), sum(file.stat().st_size for file in path.parent.iterdir()))

    yield Opened((batch.numpy().tolist() for batch in batches), save)


@contextmanager
def grain_threads(count: int, state: Any) -> Iterator[Opened]:
    import grain

    reading = grain.ReadOptions(num_threads=PARALLEL, prefetch_buffer_size=WIDE)
    batches = iter(grain.MapDataset.range(count).map(work).to_iter_dataset(reading).batch(BATCH))
    if state is not None:
        batches.set_state(json.loads(state))
    yield Opened((batch.tolist() for batch in batches), lambda: State.of(compact(batches.get_state())))
    batches.close()


@functools.cache
def table(count: int) -> Any:
    """The numbers as Hugging Face's dataset: making it is not part of resuming."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from datasets import Dataset

    return Dataset.from_dict({"number": list(range(count))})


def work_on_row(row: dict[str, int]) -> dict[str, int]:
    return {"number": work(row["number"])}


@contextmanager
def hugging_face(count: int, state: Any) -> Iterator[Opened]:
    ds = table(count).to_iterable_dataset().map(work_on_row).batch(BATCH)
    if state is not None:
        ds.load_state_dict(json.loads(state))
    yield Opened((list(batch["number"]) for batch in ds), lambda: State.of(compact(ds.state_dict())))


def until_stopped(batches: Any) -> Iterator[list[int]]:
    """Give the batches of a torchdata loader, which raises StopIteration already in `iter` if there are none."""
    try:
        started = iter(batches)
    except StopIteration:
        return
    yield from ([int(number) for number in batch] for batch in started)


@contextmanager
def torchdata(make: Callable[[int], Any], count: int, state: Any) -> Iterator[Opened]:
    loader = make(count)
    if state is not None:
        loader.load_state_dict(pickle.loads(state))
    yield Opened(until_stopped(loader), lambda: State.of(pickle.dumps(loader.state_dict())))


def stateful_loader(iterable: bool, count: int) -> Any:
    """StatefulDataLoader with two processes, over a dataset that is indexed, or one that is only iterated over."""
    from torch.utils.data import Dataset, IterableDataset, get_worker_info
    from torchdata.stateful_dataloader import StatefulDataLoader

    class Indexed(Dataset):
        def __len__(self) -> int:
            return count

        def __getitem__(self, number: int) -> int:
            return work(number)

    class Iterated(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            worker = get_worker_info()
            return map(work, range(worker.id, count, worker.num_workers))

    return StatefulDataLoader(Iterated() if iterable else Indexed(), batch_size=BATCH, num_workers=2)


def nodes(ordered: bool, parallel: int, count: int) -> Any:
    """torchdata's composable nodes, with threads."""
    from torchdata import nodes as tn

    numbers = tn.IterableWrapper(range(count))
    mapped = tn.ParallelMapper(numbers, work, num_workers=parallel, in_order=ordered, method="thread")
    return tn.Loader(tn.Prefetcher(tn.Batcher(mapped, BATCH, drop_last=False), prefetch_factor=2))


OURS: dict[str, Any] = {
    "asyncdata": functools.partial(asyncdata, work, PARALLEL, True),
    f"asyncdata, {WIDE} unordered": functools.partial(asyncdata, work, WIDE, False),
    f"asyncdata, {WIDE} coroutines unordered": functools.partial(asyncdata, work_async, WIDE, False),
}
PEERS: dict[str, dict[str, Any]] = {
    "tensorflow": {
        "tf.data": functools.partial(tf_data, False, PARALLEL, True),
        "tf.data, symbolic": functools.partial(tf_data, True, PARALLEL, True),
        f"tf.data, {WIDE} unordered": functools.partial(tf_data, False, WIDE, False),
        f"tf.data, symbolic, {WIDE} unordered": functools.partial(tf_data, True, WIDE, False),
    },
    "torchdata": {
        "torchdata, 2 processes": functools.partial(torchdata, functools.partial(stateful_loader, False)),
        "torchdata, 2 processes, iterable": functools.partial(torchdata, functools.partial(stateful_loader, True)),
        "torchdata nodes": functools.partial(torchdata, functools.partial(nodes, True, PARALLEL)),
        f"torchdata nodes, {WIDE} unordered": functools.partial(torchdata, functools.partial(nodes, False, WIDE)),
    },
    "grain": {"grain": grain_threads},
    "datasets": {"datasets, one call at a time": hugging_face},
}
"""By the package that has to be installed."""


# one loader, in a process of its own


class Leg(NamedTuple):
    """What one pipeline of several did: the batches that it delivered, and the milliseconds that it took."""

    batches: list[list[int]]
    resuming: float
    state: State | None = None
    taking: float = 0


def run_leg(open_at: Any, count: int, state: Any, most: int | None) -> Leg:
    """Go on from a state for some batches and take another, or go on to the end."""
    start = time.perf_counter()
    with open_at(count, state) as opened:
        batches = list(itertools.islice(opened.batches, 1))
        resuming = since(start)
        if most is None:
            return Leg([*batches, *opened.batches], resuming)
        batches += itertools.islice(opened.batches, most - 1)
        start = time.perf_counter()
        return Leg(batches, resuming, opened.save(), since(start))


def run_with_stops(open_at: Any, count: int) -> Outcome:
    """Run the job to its end with three stops, and say what was delivered."""
    stops = [count // BATCH * percent // 100 for percent in STOPS]
    legs: list[Leg] = []
    state = None
    for most in (*(end - begin for begin, end in itertools.pairwise([0, *stops])), None):
        gc.collect()  # so that nothing is left of the pipeline before
        legs.append(run_leg(open_at, count, state, most))
        state = legs[-1].state and legs[-1].state.content
    delivered = Counter(number for leg in legs for batch in leg.batches for number in batch)
    return Outcome(
        lost=count - len(delivered),
        repeated=delivered.total() - len(delivered),
        size=tuple(leg.state.size for leg in legs if leg.state),
        taking=tuple(leg.taking for leg in legs[:-1]),
        resuming=tuple(leg.resuming for leg in legs[1:]),
    )


def since(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def run_alone(name: str, count: int) -> None:
    """What the process of one loader does: print its outcome."""
    open_at = next(loaders[name] for loaders in (OURS, *PEERS.values()) if name in loaders)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # torchdata warns that it fast-forwards; the table shows what that costs
    with open_at(count, None) as opened:
        next(opened.batches)
        opened.save()
    print(json.dumps(asdict(run_with_stops(open_at, count))))


def in_process(name: str, count: int) -> Outcome:
    """Run `run_alone` in a fresh process and read what it printed last."""
    with tempfile.TemporaryDirectory() as states:
        return Outcome(**fresh(__file__, "--loader", name, count, environment={"STATES": states}))


# the table


class WideReport(Report):
    """Has room for a loader's name and what was measured of it."""

    WIDTHS = (56, *Report.WIDTHS[1:])


def peers_installed() -> dict[str, str]:
    """The loaders of installed packages, each with its package's version."""
    return {name: version for package, version in installed(PEERS).items() for name in PEERS[package]}


def rows(name: str, outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """A loader's rows: the worst of what was lost, repeated and written, and medians of the times."""
    ours = name in OURS
    most = UNORDERED_STATE if "unordered" in name else ORDERED_STATE
    none = {"against": "bar", "reference": 0, "bar": NONE} if ours else {}
    small = {"against": "bar", "reference": most, "bar": AtMost(1)} if ours else {}
    taking = [value for outcome in outcomes for value in outcome.taking]
    yield Row(f"{name}: lost", max(outcome.lost for outcome in outcomes), "elements", **none)
    yield Row(f"{name}: repeated", max(outcome.repeated for outcome in outcomes), "elements", **none)
    yield Row(f"{name}: state", max(max(outcome.size) for outcome in outcomes), "bytes", **small)
    yield Row(f"{name}: taking a state", statistics.median(taking), "ms", samples={name: taking})
    for place, percent in enumerate(STOPS):
        times = [outcome.resuming[place] for outcome in outcomes]
        yield Row(f"{name}: resuming at {percent} %", statistics.median(times), "ms", samples={name: times})


def stop_and_resume(peers: dict[str, str], arguments: Arguments, report: Report) -> None:
    """Run every loader by turns; ours are printed with their bars, all of them side by side."""
    count = 20 * BATCH if arguments.quick else 20_000
    names = [*OURS, *peers]
    outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
    for _ in range(arguments.rounds(3)):
        for name in names:
            outcomes[name].append(in_process(name, count))
    found = {name: list(rows(name, outcomes[name])) for name in names}
    for row in (row for name in OURS for row in found[name]):
        report.add(row)
    report.rows += [row for name in peers for row in found[name]]
    side_by_side({f"{name} ({peers[name]})" if name in peers else name: found[name] for name in names}, count)


def side_by_side(found: dict[str, list[Row]], count: int) -> None:
    """Print a line for each loader."""
    headings = ("lost", "repeated", "state, B", "taking, ms", *(f"resuming at {percent} %, ms" for percent in STOPS))
    print(f"\n{f'{count:,} elements, {len(STOPS)} stops':50}" + "  ".join(headings))
    for name, line in found.items():
        cells = (f"{row.measured:,.3g}" if row.unit == "ms" else f"{row.measured:,.0f}" for row in line)
        print(f"{name:50}" + "  ".join(cell.rjust(len(heading)) for cell, heading in zip(cells, headings, strict=True)))
    print()


# what asyncdata promises besides


def first_element(ds: Any, state: Any) -> float:
    """Milliseconds from a new iterator to its first element."""
    start = time.perf_counter()
    with ds.iterate(state=state) as elements:
        next(elements)
        return since(start)


def random_access(arguments: Arguments, report: Report) -> None:
    """Start at element 0 and at 10**8 by turns; the state of the latter is written by hand, as reading takes hours."""
    ds = ad.Dataset.range(10**9).map(work, num_parallel_calls=4)
    with ds.iterate() as elements:
        assert next(elements) == 0
        state = elements.state_dict()
    assert (state["position"], state["delivered"]) == (1, 1)
    state = with_checksum({**state, "position": FAR, "delivered": FAR})
    with ds.iterate(state=state) as elements:
        assert next(elements) == FAR
    times: dict[str, list[float]] = {"at 0": [], "far": []}
    for _ in range(arguments.rounds(21)):
        times["at 0"].append(first_element(ds, None))
        times["far"].append(first_element(ds, state))
    begun, resumed = (statistics.median(each) for each in times.values())
    report.add(Row("first element from 10**8 on", resumed, "ms", "at 0", begun, Below(100), times))


def write_files(folder: Path, count: int) -> list[str]:
    """Write files of a few records each."""
    paths = [str(folder / f"{number}.tfrecord") for number in range(count)]
    for number, path in enumerate(paths):
        with ad.TFRecordWriter(path) as writer:
            for record in range(RECORDS):
                writer.write(f"{number} {record}".encode())
    return paths


def interleave_states(paths: list[str], cycle: int, workers: int | None, report: Report) -> None:
    """Take a state after each of some elements in the middle, then go on from the last one."""
    ds = ad.Dataset.from_iterable(paths).interleave(
        ad.TFRecordDataset, cycle_length=cycle, num_parallel_calls=workers, deterministic=True
    )
    everything = list(ds)
    half, taken = len(everything) // 2, 50
    with ds.iterate() as records:
        read = [next(records) for _ in range(half)]
        times, sizes, state = [], [], None
        for _ in range(taken):
            start = time.perf_counter()
            state = records.state_dict()
            times.append(since(start))
            sizes.append(len(compact(state)))
            read.append(next(records))
    with ds.iterate(state=state) as records:
        assert [*read[:-1], *records] == everything
    opening = {place: [first_element(ds, at) for _ in range(5)] for place, at in (("at 0", None), ("half", state))}
    begun, resumed = (statistics.median(each) for each in opening.values())
    name = f"interleave of {cycle:,} open files" + (", in parallel" if workers else "")
    small = {"against": "bar", "reference": ORDERED_STATE, "bar": AtMost(1)} if cycle == 16 else {}
    report.add(Row(f"{name}: state", max(sizes), "bytes", **small))
    report.add(Row(f"{name}: taking", statistics.median(times), "ms", samples={"state_dict": times}))
    report.add(Row(f"{name}: resuming", resumed, "ms", "at 0", begun, samples=opening))


def main() -> None:
    """Run every loader, then what asyncdata promises besides, and print the table."""
    arguments = parse_arguments(__doc__ or "")
    peers = {} if arguments.quick else peers_installed()
    report = WideReport("Stop and resume")
    stop_and_resume(peers, arguments, report)
    random_access(arguments, report)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), 40 if arguments.quick else 1000)
        for cycle in (16, len(paths)):
            for workers in (None, ad.AUTOTUNE):
                interleave_states(paths, cycle, workers, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loader"]:
        run_alone(sys.argv[2], int(sys.argv[3]))
    else:
        main()

"""The command `asyncdata compare`: a DataLoader of PyTorch's and the drop-in for it, by turns."""

from __future__ import annotations

import html
import json
import os
import random
import subprocess
import sys
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from zlib import crc32

import numpy as np

from asyncdata.cli.pipeline_file import check_file, positive, value_of
from asyncdata.errors import PlanError, StageError
from asyncdata.statistics.table import Row, html_table, memory, text_table, time_of
from asyncdata.system.optional_packages import require

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

SIDES: Final = ("torch", "asyncdata")
TURNS: Final = 2
CHECKED: Final = 20
"""So many batches are compared, before the others are timed."""
MEMFD: Final = "/memfd:"
"""How the names of shared memory without a name begin in /proc."""

DESCRIPTION = """
Read a DataLoader of PyTorch's, and asyncdata.torch.DataLoader with the same arguments, by turns, each in a process of
its own that runs the file. Print whether their batches are equal, their pace, when the first batch came, the memory of
all processes and the processor time of the one that trains, and what to change.
"""

EXAMPLE: Final = """
Example: asyncdata compare train.py:loader, where the file train.py has loader = DataLoader(dataset, batch_size=64,
num_workers=2).
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    parser.add_argument(
        "loader",
        metavar="FILE.py:NAME",
        help="a torch.utils.data.DataLoader in that file, or a function without arguments that returns one",
    )
    parser.add_argument(
        "--seconds", type=positive, default=5.0, metavar="S", help="seconds of each of the four turns (default 5)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the table as a page, too")
    parser.add_argument("--side", choices=SIDES, help=SUPPRESS)


class Measured(NamedTuple):
    """What one turn has found. Seconds and bytes; `digests` are those of the first batches, `held` says what is in
    memory twice."""

    digests: list[int]
    first: float
    batches: int
    seconds: float
    processor: float
    memory: int
    change: str
    held: str = ""


def run(arguments: Namespace) -> int:
    """Measure both loaders by turns, and print what was found; in a process of one turn, print that alone."""
    if arguments.side is not None:
        print(json.dumps(measured(arguments.loader, arguments.side, arguments.seconds)))
        return 0
    check_file(arguments.loader, "DataLoader")
    turns: dict[str, list[Measured]] = {side: [] for side in SIDES}
    for turn, side in enumerate(SIDES * TURNS):
        turns[side].append(measured_apart(arguments.loader, side, arguments.seconds, turn))
    rows, remarks = rows_of(turns), remarks_of(turns)
    print_table(rows, remarks)
    if arguments.html is not None:
        arguments.html.write_text(page(arguments.loader, rows, remarks), encoding="utf-8")
    return 0 if same_batches(turns) is None else 1


# one turn


def measured_apart(spec: str, side: str, seconds: float, turn: int = 0) -> Measured:
    """Return what a turn in a process of its own has found.

    Under torchrun the processes of all ranks meet at a port for each turn: at the agent's they would find what those of
    the turn before have left.
    """
    environment = {**os.environ}
    if (port := environment.get("MASTER_PORT", "")).isdecimal():
        environment |= {"MASTER_PORT": str(int(port) + 1 + turn), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    command = [sys.executable, "-m", "asyncdata", "compare", spec, "--side", side, "--seconds", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise StageError(f"{spec} could not be read with the loader of {side}: see above")
    return Measured(*json.loads(done.stdout.splitlines()[-1]))  # after what the file prints


def measured(spec: str, side: str, seconds: float) -> Measured:
    """Read a loader for so many seconds: the first batches to compare them, the others for its pace."""
    seed_all()
    loader = value_of(spec, require("torch.utils.data", "asyncdata compare").DataLoader, "DataLoader")
    if side == "asyncdata":
        loader = drop_in(loader)
    seed_all()
    begin = time.perf_counter()
    batches = endless(loader)
    digests = [digest(next(batches, None))]
    first = time.perf_counter() - begin
    digests += [digest(batch) for batch, _ in zip(batches, range(CHECKED - 1), strict=False)]
    for worker in loader.workers() if side == "asyncdata" else ():
        worker.wait_for_start()  # those of PyTorch's were there before the first batch
    count, begin, worked = 0, time.perf_counter(), time.process_time()
    for _ in batches:
        count += 1
        if time.perf_counter() - begin >= seconds:
            break
    passed, worked = time.perf_counter() - begin, time.process_time() - worked
    change, held = (str(loader.bottleneck()), loader.copied()) if side == "asyncdata" else ("", "")
    return Measured(digests, first, count, passed, worked, memory_of_all(), change, held)


def seed_all() -> None:
    """Give the generators of this process the same state on both sides."""
    require("torch", "asyncdata compare").manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def drop_in(loader: Any) -> Any:
    """Return the drop-in with the arguments of a loader."""
    from asyncdata.torch import DataLoader

    names = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator", "in_order")
    given = {name: getattr(loader, name) for name in (*names, "persistent_workers", "prefetch_factor")}
    if loader.batch_size is None and loader.batch_sampler is not None:
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **given)
    sampler = None if type(loader.sampler).__name__ == "_InfiniteConstantSampler" else loader.sampler
    size, drop = loader.batch_size, loader.drop_last
    return DataLoader(loader.dataset, batch_size=size, sampler=sampler, drop_last=drop, **given)


def endless(loader: Any) -> Iterator[Any]:
    """Yield the batches of one epoch after the other; `PlanError` if one has none."""
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise PlanError("an epoch of this DataLoader has no batch: there is nothing to compare")


def digest(value: Any, found: int = 0) -> int:
    """Return a checksum of all of a batch: its structure, and the dtypes, shapes and data of its arrays."""
    kind: str = type(value).__name__
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return digest([part for item in items for part in item], crc32(kind.encode(), found))
    if isinstance(value, (list, tuple)):
        parts = cast("Sequence[Any]", value)
        found = crc32(f"{kind} {len(parts)}".encode(), found)
        for part in parts:
            found = digest(part, found)
        return found
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        found = crc32(f"{value.dtype} {tuple(value.shape)}".encode(), found)
        return crc32(repr(value.tolist()).encode(), found)
    text = repr(value.tolist()) if hasattr(value, "tolist") else repr(value)
    return crc32(f"{kind} {text}".encode(), found)


def memory_of_all() -> int:
    """Return the bytes of this process and all that it has started, shared ones once; 0 if the system does not say."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found = {Path("/proc/self").resolve().name}
    while more := {str(child) for child, parent in parents.items() if str(parent) in found} - found:
        found |= more
    shared: dict[tuple[int, int], int] = {}
    for process in found:
        shared |= shared_memory_of(process)
    return sum(map(memory_of, found)) + sum(shared.values())


def memory_of(process: str) -> int:
    """Return the bytes that a process has mapped, those that it shares divided among all that have them; without shared
    memory that has no name."""
    try:
        lines = Path("/proc", process, "smaps").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    found, counts = 0, True
    for line in lines:
        if line.startswith("Pss:"):
            found += int(line.split()[1]) * 1024 * counts
        elif not line.partition(" ")[0].endswith(":"):
            counts = MEMFD not in line
    return found


def shared_memory_of(process: str) -> dict[tuple[int, int], int]:
    """Return the bytes of the shared memory without a name that a process has open, mapped or not, by what it is."""
    found: dict[tuple[int, int], int] = {}
    for file in Path("/proc", process, "fd").glob("*"):
        with suppress(OSError):  # it was closed
            if os.readlink(file).startswith(MEMFD):
                status = file.stat()
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


# what was found


def mean(values: Sequence[float]) -> float:
    """Return the mean of a side's turns."""
    return sum(values) / len(values)


def rows_of(turns: Mapping[str, Sequence[Measured]]) -> list[tuple[str, str, str, str]]:
    """Return the rows of the table: what it is, its value on both sides, and how many times better the drop-in is."""

    def row(
        name: str, value: Callable[[Measured], float], text: Callable[[float], str], more_is_better: bool = False
    ) -> tuple[str, str, str, str]:
        theirs, ours = [mean([value(turn) for turn in turns[side]]) for side in SIDES]
        better, worse = (ours, theirs) if more_is_better else (theirs, ours)
        return name, text(theirs), text(ours), f"{better / worse:.2f}x" if worse else ""

    return [
        row("pace", lambda turn: turn.batches / turn.seconds, lambda pace: f"{pace:,.1f} batches/s", True),
        row("first batch", lambda turn: turn.first, time_of),
        row("memory of all processes", lambda turn: turn.memory, lambda size: memory(int(size))),
        row("processor time of this process for a batch", lambda turn: turn.processor / turn.batches, time_of),
    ]


def pace_of(turns: Sequence[Measured]) -> float:
    """Return the batches a second of all turns of a side."""
    return sum(turn.batches for turn in turns) / sum(turn.seconds for turn in turns)


def same_batches(turns: Mapping[str, Sequence[Measured]]) -> int | None:
    """Return the first batch in which the turns differ; `None` if they are equal."""
    for number, digests in enumerate(zip(*[turn.digests for side in SIDES for turn in turns[side]], strict=False)):
        if len(set(digests)) > 1:
            return number
    return None


def remarks_of(turns: Mapping[str, Sequence[Measured]]) -> list[tuple[str, str]]:
    """Return whether the batches are equal, and what to change next."""
    differing = same_batches(turns)
    compared = min(len(turn.digests) for side in SIDES for turn in turns[side])
    if differing is None:
        equal = f"the first {compared} are equal"
        change = "replace the import of DataLoader by: from asyncdata.torch import DataLoader"
        if pace_of(turns["asyncdata"]) < AS_FAST * pace_of(turns["torch"]):
            change = f"PyTorch's DataLoader is faster here; to resume exactly, {change}"
    elif any(turn.digests != turns["torch"][0].digests for turn in turns["torch"]):
        equal = f"batch {differing} differs, also from one run of PyTorch's DataLoader to the next"
        change = "seed what the dataset and the sampler draw from, then compare again"
    else:
        equal = f"batch {differing} differs from PyTorch's"
        change = "see 'What is exact' in docs/pytorch.md"
    last = turns["asyncdata"][-1]
    remarks = [("batches", equal), ("change", change), ("then", last.change), ("memory", last.held)]
    return [(name, text) for name, text in remarks if text]


AS_FAST: Final = 0.95
"""A loader with less than so much of the pace of another one is slower than it."""

HEAD: Final = ("", "DataLoader", "asyncdata.torch", "better by")


def print_table(rows: Sequence[Row], remarks: Sequence[tuple[str, str]]) -> None:
    print(text_table((HEAD, *rows)), end="\n\n")
    for name, text in remarks:
        print(f"{name:8} {text}")


def page(spec: str, rows: Sequence[Row], remarks: Sequence[tuple[str, str]]) -> str:
    """Return the table and the remarks as a page that needs no other file."""
    words = "\n".join(f"<p><b>{html.escape(name)}</b>: {html.escape(text)}</p>" for name, text in remarks)
    style = "body{font:16px sans-serif;margin:2em}td,th{padding:.3em 1em;text-align:right}"
    title = html.escape(f"DataLoaders of {spec}")
    head = f'<meta charset="utf-8"><title>{title}</title><style>{style}</style>'
    return f"<!doctype html>\n{head}\n<h1>{title}</h1>\n{html_table((HEAD, *rows))}\n{words}\n"

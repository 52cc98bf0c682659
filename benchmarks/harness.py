"""What every benchmark shares: alternating runs, medians, bars, the table and the JSON rows."""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Prepare = Callable[[], Callable[[], Any]]
    """Builds what a run needs, untimed, and returns the run itself, which is timed."""

__all__ = (
    "Arguments",
    "AtLeast",
    "AtMost",
    "Below",
    "Report",
    "Row",
    "Samples",
    "alternate",
    "fresh",
    "installed",
    "machine",
    "parse_arguments",
    "silenced",
    "tensorflow",
)


@dataclass(frozen=True)
class Samples:
    """The seconds of each timed run of one contender."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The run that half of the runs beat."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The run least disturbed by the rest of the machine."""
        return min(self.seconds)


def alternate(
    contenders: Mapping[str, Prepare],
    rounds: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Samples]:
    """Time the contenders in turn, A B A B, after one untimed run of each unless there is no `warm_up` or one round.

    With `time.process_time` as the clock, what else the machine does matters less.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for prepare in contenders.values() if warm_up and rounds > 1 else ():
        prepare()()
    for _ in range(rounds):
        for name, prepare in contenders.items():
            seconds[name].append(timed(prepare, clock))
    return {name: Samples(tuple(runs)) for name, runs in seconds.items()}


def timed(prepare: Prepare, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one run, with the garbage of earlier runs already collected."""
    run = prepare()
    gc.collect()
    start = clock()
    run()
    return clock() - start


@dataclass(frozen=True)
class AtMost:
    """Passes when measured / reference does not exceed `bound`."""

    bound: float

    def compare(self, measured: float, reference: float) -> float:
        """How many times the reference was needed."""
        return measured / reference

    def passes(self, ratio: float) -> bool:
        """Whether the ratio keeps the bound."""
        return ratio <= self.bound

    def show(self, ratio: float) -> str:
        """The ratio as it is printed."""
        return times(ratio)

    def __str__(self) -> str:
        return f"<= {self.bound:g}x"


@dataclass(frozen=True)
class AtLeast:
    """Passes when the reference took at least `bound` times as long as what was measured."""

    bound: float

    def compare(self, measured: float, reference: float) -> float:
        """How many times faster than the reference."""
        return reference / measured

    def passes(self, ratio: float) -> bool:
        """Whether the ratio reaches the bound."""
        return ratio >= self.bound

    def show(self, ratio: float) -> str:
        """The ratio as it is printed."""
        return times(ratio)

    def __str__(self) -> str:
        return f">= {self.bound:g}x"


@dataclass(frozen=True)
class Below:
    """Passes when measured exceeds the reference by no more than `bound`, in the row's unit."""

    bound: float

    def compare(self, measured: float, reference: float) -> float:
        """How much more than the reference."""
        return measured - reference

    def passes(self, excess: float) -> bool:
        """Whether the excess keeps the bound."""
        return excess <= self.bound

    def show(self, excess: float) -> str:
        """The excess as it is printed."""
        return f"{excess:+.1f}"

    def __str__(self) -> str:
        return f"<= +{self.bound:g}"


Bar: TypeAlias = AtMost | AtLeast | Below


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, what it is held against, and the verdict."""

    name: str
    measured: float
    unit: str = "s"
    against: str = ""
    """What `reference` is: "limit", "tf.data", "bar", ... Empty when nothing is compared."""
    reference: float | None = None
    bar: Bar | None = None
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The comparison, in the direction of the bar (measured / reference where there is none)."""
        if self.reference is None:
            return None
        return (self.bar or AtMost(1)).compare(self.measured, self.reference)

    @property
    def passed(self) -> bool | None:
        """Whether the bar is met; None where there is no bar."""
        return self.bar.passes(self.ratio) if self.bar and self.ratio is not None else None

    def cells(self) -> tuple[str, ...]:
        """The line as it is printed."""
        reference = "" if self.reference is None else f"{self.against} {quantity(self.reference, self.unit)}"
        ratio = "" if self.ratio is None else (self.bar or AtMost(1)).show(self.ratio)
        verdict = {None: "", True: "pass", False: "MISS"}[self.passed]
        return self.name, quantity(self.measured, self.unit), reference, ratio, str(self.bar or ""), verdict

    def record(self) -> dict[str, Any]:
        """The line as it is written to JSON."""
        bar = None if self.bar is None else str(self.bar)
        return {**asdict(self), "bar": bar, "ratio": self.ratio, "passed": self.passed}


def times(ratio: float) -> str:
    """A ratio, finer where a few percent matter."""
    return f"{ratio:.3f}x" if ratio < 2 else f"{ratio:.1f}x"


def quantity(value: float, unit: str) -> str:
    """A number with about four digits, and its unit."""
    if abs(value) >= 10_000:
        return f"{value:,.0f} {unit}"
    return f"{value:.4g} {unit}"


class Report:
    """Collects the rows of one benchmark, printing each as it comes."""

    HEADINGS = ("experiment", "measured", "against", "ratio", "bar", "")
    WIDTHS = (44, 14, 24, 9, 10, 4)

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[Row] = []
        print(title)
        print(", ".join(f"{name} {value}" for name, value in machine().items()))
        self.line(self.HEADINGS)
        self.line("-" * width for width in self.WIDTHS)

    def line(self, cells: Iterable[str]) -> None:
        """Print one line of the table."""
        padded = (cell.ljust(width) for cell, width in zip(cells, self.WIDTHS, strict=True))
        print("  ".join(padded).rstrip(), flush=True)

    def add(self, row: Row) -> None:
        """Take a row and print it."""
        self.rows.append(row)
        self.line(row.cells())

    def finish(self, file: Path | None) -> None:
        """Print the tally, and write the rows to `file` if there is one."""
        verdicts = [row.passed for row in self.rows if row.passed is not None]
        print(f"{sum(verdicts)} of {len(verdicts)} bars met")
        if file is not None:
            content = {"title": self.title, "machine": machine(), "rows": [row.record() for row in self.rows]}
            file.write_text(json.dumps(content, indent=1) + "\n")


@dataclass(frozen=True)
class Arguments:
    """The command line that every benchmark has."""

    quick: bool
    json: Path | None

    def rounds(self, full: int) -> int:
        """How many timed runs: `full`, or one in a quick run."""
        return 1 if self.quick else full


def parse_arguments(description: str) -> Arguments:
    """Read `[--quick] [--json FILE]`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="one small round: shows that it runs, measures little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    return Arguments(**vars(parser.parse_args()))


@functools.cache
def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    packages = ("numpy", "asyncdata", "tensorflow")
    return {
        "CPU": processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "Python": platform.python_version(),
        **{name: version(name) for name in packages if version(name)},
    }


def processor() -> str:
    """The model of the CPU, as the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def version(package: str) -> str:
    """The version of an installed package, or nothing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(from source)" if package in sys.modules else ""


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Those packages that are there, with their versions; prints a line for each, also for one that is not."""
    found = {package: version(package) for package in packages}
    for package, number in found.items():
        print(f"{package} {number}" if number else f"{package} is not installed: left out")
    return {package: number for package, number in found.items() if number}


def fresh(file: str, *arguments: object, environment: Mapping[str, str] | None = None) -> Any:
    """Run a benchmark's file with these arguments in a process of its own; return what it printed last, as JSON."""
    command = [sys.executable, file, *map(str, arguments)]
    surroundings = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def silenced() -> Iterator[None]:
    """Drop what is written to stderr, also by C++: TensorFlow's greetings, and what its kernels print."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@functools.cache
def tensorflow() -> Any | None:
    """TensorFlow, on the CPU and without its greetings, or None when it is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        with silenced(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module("tensorflow")
    except ImportError:
        print("TensorFlow is not installed: comparisons with tf.data are left out (pip install 'asyncdata[bench]')")
        return None
    module.get_logger().setLevel("ERROR")
    return module

"""Processor time from the start of Python to the first element of a pipeline, next to that of `import numpy`.

python benchmarks/import_time.py [--quick] [--json FILE]

With worker processes it is that of the program, the fork server and the worker. Modules are compiled before.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from tempfile import TemporaryDirectory

from harness import AtMost, Report, Row, parse_arguments

__all__ = ("main",)

OPTIONAL = ("jax", "matplotlib", "PIL", "sklearn", "tensorflow", "torch")

NUMPY = "import numpy\nelsewhere = 0.0"
SEQUENTIAL = """
import asyncdata
next(iter(asyncdata.Dataset.range(9).map(abs).batch(2)))
elsewhere = 0.0
"""
PROCESSES = """
import asyncdata

def cost(_):
    import os, time
    with open(f"/proc/{os.getppid()}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + time.process_time()

elements = iter(asyncdata.Dataset.range(9).map(cost, num_parallel_calls=1, executor="process"))
elsewhere = next(elements)
"""
END = f"""
import sys, time
print((time.process_time() + elsewhere) * 1e3, *set({OPTIONAL}) & set(sys.modules))
"""

ROWS = {
    "range.map.batch": (SEQUENTIAL, AtMost(2.5)),
    'map(executor="process")': (PROCESSES, AtMost(5.5)),
}


def measured(program: str, compiled: str) -> tuple[float, list[str]]:
    """Milliseconds of processor time that a program takes, and the optional packages that it imports."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", program + END]
    millis, *dragged = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout.split()
    return float(millis), dragged


def main() -> None:
    """Run all programs by turns and compare the medians."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("From the start of Python to the first element, in milliseconds of processor time")
    programs = {"import numpy": NUMPY, **{name: program for name, (program, _) in ROWS.items()}}
    samples: dict[str, list[float]] = {name: [] for name in programs}
    dragged: set[str] = set()
    with TemporaryDirectory() as compiled:
        for program in programs.values():
            measured(program, compiled)
        for _ in range(arguments.rounds(9)):
            for name, program in programs.items():
                millis, optional = measured(program, compiled)
                samples[name].append(millis)
                dragged.update(optional)
    base, *ours = (statistics.median(samples[name]) for name in programs)
    for (name, (_, bar)), value in zip(ROWS.items(), ours, strict=True):
        both = {each: samples[each] for each in (name, "import numpy")}
        report.add(Row(name, value, unit="ms", against="import numpy", reference=base, bar=bar, samples=both))
    report.add(Row("optional packages imported", len(dragged), unit=" ".join(sorted(dragged)) or "none"))
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

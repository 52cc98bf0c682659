"""How long `import asyncdata` takes beyond `import numpy`, each in fresh processes, and what it drags in.

python benchmarks/import_time.py [--quick] [--json FILE]
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from harness import Below, Report, Row, parse_arguments

__all__ = ("main",)

OPTIONAL = ("jax", "matplotlib", "PIL", "sklearn", "tensorflow", "torch")
BAR = Below(150)

PROGRAM = """
import sys, time
start = time.perf_counter()
import {module}
print((time.perf_counter() - start) * 1e3, *set({optional}) & set(sys.modules))
"""


def imported(module: str) -> tuple[float, list[str]]:
    """Milliseconds to import a module in a fresh process, and the optional packages that came with it."""
    command = [sys.executable, "-c", PROGRAM.format(module=module, optional=OPTIONAL)]
    millis, *dragged = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(millis), dragged


def main() -> None:
    """Import both modules by turns and compare the medians."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Import time, in milliseconds")
    modules = ("numpy", "asyncdata")
    for module in modules:
        imported(module)
    samples = {module: [] for module in modules}
    dragged: set[str] = set()
    for _ in range(arguments.rounds(15)):
        for module in modules:
            millis, optional = imported(module)
            samples[module].append(millis)
            dragged.update(optional)
    ours, base = (statistics.median(samples[module]) for module in reversed(modules))
    report.add(Row("import asyncdata", ours, unit="ms", against="numpy", reference=base, bar=BAR, samples=samples))
    report.add(Row("optional packages imported", len(dragged), unit=" ".join(sorted(dragged)) or "none"))
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

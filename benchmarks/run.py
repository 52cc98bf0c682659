"""Runs every benchmark, each in a process of its own, and writes one JSON file.

python benchmarks/run.py [--quick] [--json FILE]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import parse_arguments

__all__ = ("main",)

HERE = Path(__file__).resolve().parent
BENCHMARKS = (
    "import_time",
    "pace",
    "guide",
    "loaders/audit",
    "loaders/audit_simulated",
    "loaders/autotune",
    "loaders/cluster_simulated",
    "loaders/jpeg",
    "loaders/listing",
    "loaders/mixture",
    "loaders/observing",
    "loaders/predicted_gains",
    "loaders/processes",
    "loaders/placement",
    "loaders/records",
    "loaders/resume",
    "loaders/slowing",
    "loaders/small_files",
    "loaders/random_access",
    "many_cores",
    "micro/balance",
    "micro/catalogue",
    "micro/costs",
    "micro/memory",
    "micro/packing",
    "micro/recording",
    "micro/single_elements",
    "micro/states",
)


def run(name: str, quick: bool) -> dict[str, Any]:
    """Run one benchmark, its table on our output, and return its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.json")
        command = [sys.executable, HERE / f"{name}.py", "--json", rows]
        subprocess.run([*command, "--quick"] if quick else command, check=True)
        return json.loads(rows.read_text())


def main() -> None:
    """Run them all, then say which bars were missed."""
    arguments = parse_arguments(__doc__ or "")
    results = {}
    for name in BENCHMARKS:
        results[name] = run(name, arguments.quick)
        print()
    missed = [f"{name}: {row['name']}" for name in results for row in results[name]["rows"] if row["passed"] is False]
    print("\n".join(["missed:", *missed]) if missed else "every bar is met")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

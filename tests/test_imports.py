"""A program loads what it uses: how many modules of the package come with a first pipeline, and how long they are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PIPELINE = "import asyncdata\nnext(iter(asyncdata.Dataset.range(9).map(abs).batch(2)))"
WORKER = "import asyncdata.executors.process.worker"
LOADED = """
import json, sys
files = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "asyncdata"}
packages = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps([{name: sum(1 for _ in open(file, encoding="utf-8")) for name, file in files.items()}, packages]))
"""


def loaded_by(program: str) -> tuple[dict[str, int], list[str]]:
    """Return the lines of each module of the package that a program loads, and the names of all packages."""
    command = [sys.executable, "-c", program + LOADED]
    lines, packages = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return lines, packages


@pytest.mark.parametrize(("program", "modules", "lines"), [(PIPELINE, 120, 20_000), (WORKER, 60, 10_000)])
def test_a_program_loads_what_it_uses(program: str, modules: int, lines: int) -> None:
    loaded, packages = loaded_by(program)
    assert len(loaded) <= modules, sorted(loaded)
    assert sum(loaded.values()) <= lines, loaded
    doors = ("web", "devices", "integrations", "cli", "formats.parquet_encoder", "observe.dashboard_server", "storage")
    assert not [name for name in loaded if name.startswith(tuple(f"asyncdata.{door}" for door in doors))]
    assert "html" not in packages

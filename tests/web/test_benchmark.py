"""The quick run of benchmarks/web.py prints its table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import said

ROOT = Path(__file__).parents[2]


@pytest.mark.web
@pytest.mark.slow
def test_it_prints_its_table_and_writes_its_rows(tmp_path: Path) -> None:
    pytest.importorskip("httptools")
    command = [sys.executable, ROOT / "benchmarks" / "web.py", "--quick", "--json", tmp_path / "rows.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170, check=False)
    assert (done.returncode, said(done.stderr)) == (0, "")
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {"NDJSON x 100: channel to batches", "lag p99: pipeline in threads"} <= {row["name"] for row in rows}

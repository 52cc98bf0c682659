"""What docs/web.md shows runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "web.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_channel_of_the_page() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[1]], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["32", "32", "32", "4"]


def test_the_queue_of_ones_own_fulfils_the_contract_of_sources() -> None:
    own = next(place for place, program in enumerate(PROGRAMS) if "import sqlite3" in program)
    exec(PROGRAMS[own] + PROGRAMS[own + 1], {"__name__": "page"})


@pytest.mark.web
def test_the_service_of_the_page(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    (tmp_path / "service.py").write_text(PROGRAMS[0], encoding="utf-8")
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "uvicorn", "service:app", "--port", "0", "--no-access-log"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with server:
        assert server.stdout is not None
        assert server.stderr is not None
        url = ""
        while not url:
            line = server.stderr.readline()
            assert line, "the server did not start"
            url = "".join(re.findall(r"http://127.0.0.1:\d+", line))
        try:
            reply = httpx.post(f"{url}/ingest", json=[{"x": 1, "y": 2}, {"x": 3, "y": 4}], timeout=60)
            assert reply.json() == {"accepted": 2}
            assert server.stdout.readline() == "{'x': (2,), 'y': (2,)}\n"
        finally:
            server.terminate()
            server.stderr.read()

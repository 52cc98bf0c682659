"""What docs/web.md shows runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

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
def test_the_service_of_the_page_survives_a_bad_item_an_upload_and_a_restart_with_other_batches(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    with service(tmp_path, PROGRAMS[0]) as (url, server, _):
        post = partial(httpx.post, f"{url}/ingest", timeout=60)
        assert post(json=[{"x": 1}, {"x": 3, "y": 4}]).status_code == 422
        assert post(json=[{"x": 1, "y": 2}, {"x": 3, "y": 4}]).json() == {"accepted": 2}
        assert server.stdout.readline() == "{'x': (2,), 'y': (2,)}\n"
        assert post(files={"file": ("more.jsonl", b'{"x": 5, "y": 6}')}).json() == {"accepted": 1}
        assert server.stdout.readline() == "{'x': (1,), 'y': (1,)}\n"
    with service(tmp_path, PROGRAMS[0].replace("batch(32", "batch(2")) as (_, server, told):
        assert server.stdout.readline() == "{'x': (2,), 'y': (2,)}\n"
        assert any("from its oldest item on" in line for line in told)


@pytest.mark.web
def test_the_service_of_fastapi_on_the_page_goes_on_where_it_was(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    program = next(program for program in PROGRAMS if "@app.get" in program)
    assert len([line for line in program.splitlines() if line]) <= 40
    for first in (0, 40):
        with service(tmp_path, program) as (url, _, _):
            post = partial(httpx.post, f"{url}/samples/ingest", timeout=60)
            assert post(json=[{"x": 1}]).status_code == 422
            samples = [{"x": number / 40, "y": number / 20 + 1} for number in range(40)]
            assert post(json=samples).json() == {"accepted": 40}
            told = {"samples": first}
            while told["samples"] < first + 40:
                told = httpx.get(f"{url}/predict", params={"x": 1}, timeout=60).json()
        assert told["samples"] == first + 40


@contextmanager
def service(folder: Path, program: str) -> Iterator[tuple[str, Any, list[str]]]:
    """Run it with uvicorn; give its URL, the process, and what it told before it served."""
    (folder / "service.py").write_text(program, encoding="utf-8")
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "uvicorn", "service:app", "--port", "0", "--no-access-log"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with server:
        assert server.stderr is not None
        told = [""]
        while not re.search(r"http://127.0.0.1:\d+", told[-1]):
            told.append(server.stderr.readline())
            assert told[-1], "the server did not start"
        try:
            yield "".join(re.findall(r"http://127.0.0.1:\d+", told[-1])), server, told
        finally:
            server.terminate()
            server.stderr.read()

"""What workers import: the fork server has done so for them, and for each of them the same."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import asyncdata as ad
from asyncdata.executors.process import spawn
from asyncdata.executors.process.imports import installed_modules
from asyncdata.system.native_threads import unexpected_threads
from tests.marks import first_by_default
from tests.torch import datasets

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no module is preloaded")]

INSTALLED = """
import beside, multiprocessing, os, sys, threading
in_server = "forkserver" in sys.orig_argv[-1] and multiprocessing.parent_process() is None
with open(os.environ["IMPORTS"], "a") as file:
    file.write(f"{beside.__name__} {beside.WHERE}\\n")
def init(worker):
    pass
"""
"""A module of an installed package, which notes in a file that it is imported."""

PROGRAM = """
import os, sys
from asyncdata.executors.process import imports
imports.installed_in = lambda: (os.environ["INSTALLED"],)
from asyncdata.torch import DataLoader
import installed, own
for init in (installed.init, own.init):
    loader = DataLoader(range(6), 2, num_workers=2, worker_init_fn=init)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
"""

PARTS = """
import sys, parts.one
value = parts.one.value
if "forkserver" in sys.orig_argv[-1] and __import__("multiprocessing").parent_process() is None:
    raise ImportError("not in the server")
"""
"""A package that fails when a module in it was imported."""

THREAD = "threading.Thread(target=threading.Event().wait, daemon=not in_server).start()"
FAILURE = "assert not in_server"
MISSING = "from parts.one import init"
KILLED = "if in_server: os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(
    ("more", "count"),
    first_by_default([("", 2), (THREAD, 6), (MISSING, 3), (FAILURE, 6), (KILLED, 6)]),
    ids=["shared", "thread", "missing", "failure", "killed"],
)
def test_modules_that_workers_need_are_imported_once_unless_a_server_cannot(
    more: str, count: int, tmp_path: Path
) -> None:
    """By the program and by the server; else also by four workers, or two if only the second function needs it."""
    packages, scripts, current = [tmp_path / name for name in ("packages", "scripts", "current")]
    for folder in (packages, scripts, current):
        folder.mkdir()
        (folder / "beside.py").write_text(f"WHERE = {folder.name!r}")
    (scripts / "beside.py").unlink()
    (packages / "installed.py").write_text(INSTALLED + more)
    (packages / "parts").mkdir()
    (packages / "parts" / "__init__.py").write_text(PARTS)
    (packages / "parts" / "one.py").write_text("value = 1\ndef init(worker):\n    pass\n")
    (scripts / "own.py").write_text("from installed import init as theirs\ndef init(worker):\n    theirs(worker)\n")
    (scripts / "train.py").write_text(PROGRAM)
    imports = tmp_path / "imports"
    environment = {"IMPORTS": str(imports), "INSTALLED": str(packages)}
    environment["PYTHONPATH"] = os.pathsep.join([str(packages), str(Path(ad.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, scripts / "train.py"],
        cwd=current,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert imports.read_text().splitlines() == ["beside packages"] * count


def test_the_modules_that_a_pickle_names_are_found_also_behind_modules_of_the_program() -> None:
    assert installed_modules(pickle.dumps([torch.nn.Linear, "numpy", "asyncdata", json.loads, "no.module"])) == [
        "numpy",
        "torch.nn.modules.linear",
    ]
    assert {"torch", "torch.utils.data.dataset"} <= {*installed_modules(pickle.dumps(datasets.Sample))}
    many = pickle.dumps([torch.nn.Linear, [f"{number:09}" for number in range(100_000)], torch.nn.Dropout])
    assert installed_modules(many) == ["torch.nn.modules.linear", "torch.nn.modules.dropout"]


def test_threads_count_that_a_fork_would_lose() -> None:
    before, end = unexpected_threads(), threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert unexpected_threads() == before + 1
    end.set()
    thread.join()


def test_threads_of_openblas_do_not_count() -> None:
    code = "import numpy, asyncdata.system.native_threads as n; print(n.unexpected_threads(), n.threads_of_openblas())"
    path = {"PYTHONPATH": str(Path(ad.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "2"}
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **path}, stdout=subprocess.PIPE, text=True, check=True
    )
    assert found.stdout in ("0 1\n", "0 0\n"), "the latter without OpenBLAS, or on one core"


def test_tensorflow_and_others_with_threads_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(spawn, "tell_server", given.extend)
    spawn.preload({"own"}, ["tensorflow.data", "torch.nn", "polars"])
    assert "own" in given
    assert [name for name in given if name.partition(".")[0] in ("tensorflow", "polars")] == []
    assert given[-3].endswith("preload_begins")
    assert given[-2] == "torch.nn"
    assert given[-1].endswith("preload_ends")

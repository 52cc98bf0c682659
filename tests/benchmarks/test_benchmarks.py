"""Every benchmark's quick run prints its table and writes its rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ()

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_TENSORFLOW = Path(__file__).with_name("without_tensorflow.py")
BENCHMARKS = {
    "guide": "closing pair: optimised",
    "import_time": "range.map.batch",
    "loaders/audit": "audit, compared with the pipeline",
    "loaders/audit_simulated": "audit of all, in one process",
    "loaders/autotune": "sleeps of 20 ms",
    "loaders/cluster_simulated": "0.1 s a batch: one trainer is the limit from",
    "loaders/jpeg": "asyncdata: first batch",
    "loaders/listing": "shuffled: memory",
    "loaders/mixture": "asyncdata, generators, 50 sources: threads",
    "loaders/observing": "a pull of one element, each step",
    "loaders/predicted_gains": "NumPy's code, in 1 thread",
    "loaders/processes": "longest wait when a worker is killed",
    "loaders/placement": "pairs of numbers, process",
    "loaders/random_access": "10 KB records, shuffle()",
    "loaders/records": "tf.Example of 10 KB to arrays",
    "loaders/resume": "asyncdata: state",
    "loaders/slowing": "2 processes",
    "loaders/small_files": "map(read_file)",
    "many_cores": "2 workers: trainer, an image",
    "micro/balance": "an element that every rank reads",
    "micro/catalogue": "rebatch(40), rows of 150 KB",
    "micro/costs": "start and stop of a pipeline",
    "micro/memory": "interleave",
    "micro/packing": "first fit, 64 open rows",
    "micro/recording": "record a batch of 256 shuffled",
    "micro/single_elements": "sleep_2_ms, threads: calls",
    "micro/states": "16 open files: state",
    "pace": "async for",
}

SLOW = {
    f"loaders/{name}"
    for name in (
        "audit_simulated",
        "autotune",
        "jpeg",
        "observing",
        "placement",
        "predicted_gains",
        "processes",
        "random_access",
        "resume",
        "slowing",
    )
}
SLOW |= {"guide", "many_cores", "micro/catalogue", "micro/costs", "micro/memory", "micro/states"}
EACH = [
    pytest.param(*pair, id=pair[0], marks=[pytest.mark.slow] if pair[0] in SLOW else [])
    for pair in BENCHMARKS.items()
    if pair[0] != "loaders/resume"  # whose rows test_resume.py looks at
]


def run(name: str, *arguments: str) -> str:
    """Run a benchmark as a user does, and return what it printed."""
    command = [sys.executable, WITHOUT_TENSORFLOW, ROOT / "benchmarks" / f"{name}.py", "--quick", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "experiment"), EACH)
@pytest.mark.slow
def test_quick_run_prints_its_table_and_writes_its_rows(name: str, experiment: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    printed = run(name, "--json", str(file))
    assert "measured" in printed
    assert experiment in printed
    content = json.loads(file.read_text())
    assert {"CPU", "cores", "Python", "numpy"} <= content["machine"].keys()
    assert any(row["name"].startswith(experiment) for row in content["rows"])


def test_run_knows_every_benchmark() -> None:
    text = (ROOT / "benchmarks" / "run.py").read_text()
    assert all(f'"{name}"' in text for name in BENCHMARKS)


@pytest.mark.slow
def test_devices_are_measured_where_there_is_a_gpu(tmp_path: Path) -> None:
    assert "ring, compute 4 copies" in run("devices", "--device", "simulated", "--json", str(tmp_path / "rows.json"))
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 23


@pytest.mark.torch
@pytest.mark.slow
def test_training_on_many_cores_is_measured_on_a_device(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert "small network on cpu: asyncdata" in run(
        "many_cores", "--device", "cpu", "--json", str(tmp_path / "rows.json")
    )


@pytest.mark.formats
@pytest.mark.slow
def test_formats_are_measured_where_their_packages_are(tmp_path: Path) -> None:
    pytest.importorskip("array_record")
    assert "JSON Lines, a line of 900 B" in run("loaders/formats", "--json", str(tmp_path / "rows.json"))
    expected = 12 if find_spec("torch") else 10  # Lance's own reader, of two rows, needs it
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == expected


@pytest.mark.torch
def test_without_a_gpu_nothing_is_measured() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "There is no GPU here" in run("devices")
    assert "DataLoader(pin_memory=True), compute 4 copies" in run("devices", "--device", "cpu")

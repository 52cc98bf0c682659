"""macOS and Windows, as far as they can be simulated on Linux: the log says once what they have not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulates the others on Linux")

ROOT = Path(__file__).parents[2]

PROGRAM = """
import importlib, logging, os, pkgutil, sys, tempfile
from tests.faults.other_systems import pretend
system = sys.argv[1]
pretend(system)

import numpy as np
import asyncdata as ad

for found in pkgutil.walk_packages(ad.__path__, "asyncdata."):
    if found.name not in ("asyncdata.__main__", "asyncdata.torch") and not found.name.startswith("asyncdata.torch."):
        importlib.import_module(found.name)  # PyTorch is not there in each environment

messages = []
handler = logging.Handler()
handler.emit = lambda record: messages.append(record.getMessage())
logging.getLogger("asyncdata").addHandler(handler)
logging.getLogger("asyncdata").setLevel(logging.INFO)

def pipelines(folder):
    images = ad.Dataset.from_tensor_slices(np.arange(40)).map(lambda x: x.tobytes())
    images.write_tfrecords(f"{folder}/shards", shards=2)
    read = ad.Dataset.list_files(f"{folder}/shards/*", seed=0).interleave(ad.TFRecordDataset, num_parallel_calls=2)
    numbers = read.map(lambda data: int(np.frombuffer(data, int)[0]), num_parallel_calls=2)
    for _ in range(2):
        assert sorted(numbers.cache(f"{folder}/cache")) == [*range(40)]
    shuffled = numbers.shuffle(8, seed=1).batch(4).with_options(ad.Options(record=f"{folder}/run"))
    with shuffled.iterate() as batches:
        next(batches)
        state = batches.state_dict()
        rest = [batch.tolist() for batch in batches]
        assert str(batches.stats()) and str(batches.bottleneck())
    assert [batch.tolist() for batch in shuffled.iterate(state=state)] == rest
    if "processes" in sys.argv:
        big = numbers.map(lambda x: np.full(50_000, x), num_parallel_calls=2, executor="process").batch(4)
        assert sorted(x for batch in big for x in batch[:, 0]) == [*range(40)]
    if system == "darwin":
        cache = ad.CacheDir(folder + "/objects")
        cache.folder.mkdir(parents=True)
        os.close(cache.created(cache.path_of("key", "partial"), 4096))
        assert os.stat(cache.path_of("key", "partial")).st_size == 4096

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        pipelines(folder)
    for message in messages:
        print(message)
"""


@pytest.mark.parametrize("how", ["darwin", "win32", pytest.param("darwin processes", marks=pytest.mark.slow)])
def test_every_module_is_imported_and_pipelines_run(how: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-W", "error", str(tmp_path / "program.py"), *how.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    system = how.partition(" ")[0]
    assert line.startswith(f"slower on {system}, as only Linux has the calls for it: files that are in memory")
    assert line.count(";") == 4

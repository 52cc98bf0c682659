"""What each writer has to do: the same bytes each time, and nothing to be seen of what is not whole."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from tests.persistence.writers import COUNT, WRITERS, elements, sums, visible, write

ROOT = Path(__file__).parents[2]
writers = pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.formats if one.needs else ()) for name, one in WRITERS.items()]
)


@pytest.fixture(autouse=True)
def needed(request: pytest.FixtureRequest) -> None:
    if "method" in request.fixturenames and (package := WRITERS[request.getfixturevalue("method")].needs):
        pytest.importorskip(package)


def plain(found: Any) -> Any:
    """Return elements as values that can be compared."""
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items()}
    return found.tolist() if isinstance(found, (np.ndarray, np.generic)) else found


@writers
def test_equal_seeds_give_equal_bytes(method: str, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    names = write(method, tmp_path / "a", progress=lambda *now: told.append(now))
    assert told == [(15, 1), (30, 2), (45, 3), (60, 4)]
    write(method, tmp_path / "b")
    write(method, tmp_path / "c", seed=2)
    assert len(sums(tmp_path / "a")) == 4
    assert sums(tmp_path / "a") == sums(tmp_path / "b")
    assert not set(sums(tmp_path / "a").values()) & set(sums(tmp_path / "c").values())
    found = [plain(one) for one in WRITERS[method].read(names)]
    assert found == [plain(one) for one in elements(method)]


@writers
@pytest.mark.slow
def test_killed_at_a_step(method: str, tmp_path: Path) -> None:
    """What others see are whole files of one run; the next run goes on behind them and gives the same.

    Every fourth step, another one of four with each writer.
    """
    whole, turn = tmp_path / "whole", ([*WRITERS].index(method), len(WRITERS))
    command = [sys.executable, "-m", "tests.persistence.writers", method, str(tmp_path), *map(str, turn)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    steps = int(ran.stdout)
    assert steps > 20
    for step in range(turn[0], steps, turn[1]):
        folder = tmp_path / f"{step}"
        seen = sums(folder)
        assert seen.items() <= sums(whole).items()
        begun = {path.name: path.stat().st_mtime_ns for path in visible(folder)}
        assert write(method, folder) == [str(folder / name) for name in sums(whole)]
        assert sums(folder) == sums(whole)
        assert not [*folder.glob(".*.partial")]
        told = json.loads((folder / ".asyncdata-write.json").read_text())
        assert told["complete"]
        kept = [name for name, when in begun.items() if (folder / name).stat().st_mtime_ns == when]
        assert len(kept) >= len(begun) - 1  # the last one is written again if nothing told of it yet
        shutil.rmtree(folder)


FULL = """
import errno, subprocess, sys
from pathlib import Path
from tests.persistence.writers import sums, visible, write
method, folder, other = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", folder], check=True)
try:
    write(method, folder)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    assert "write again: it continues" in error.__notes__[0], error.__notes__
else:
    raise AssertionError("the disk was not full")
write(method, other)
seen = sums(folder)
assert 0 < len(seen) < 4, seen
assert seen.items() <= sums(other).items()
assert not [*folder.glob(".*.partial")]
subprocess.run(["mount", "-o", "remount,size=10m", folder], check=True)
write(method, folder)
assert sums(folder) == sums(other)
"""


@writers
@pytest.mark.slow
def test_a_disk_that_is_full(method: str, tmp_path: Path) -> None:
    """A file system of 100 KB, which is there for a program alone."""
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    with suppress(FileNotFoundError):
        if subprocess.run([*alone, "mount", "-t", "tmpfs", "none", tmp_path], check=False).returncode == 0:
            (tmp_path / "full").mkdir()
            command = [*alone, sys.executable, "-c", FULL, method, tmp_path / "full", tmp_path / "other"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return
    pytest.skip("no file system can be mounted here")


# ---------------------------------------------------------------------------------------------------------------------
# Others read what is written


def by_tensorflow(names: list[str]) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf = pytest.importorskip("tensorflow", exc_type=ImportError)
        return [*tf.data.TFRecordDataset(names, "GZIP" if names[0].endswith("gz") else "").as_numpy_iterator()]


def by_webdataset(names: list[str]) -> list[Any]:
    expand = pytest.importorskip("webdataset").tariterators
    found: list[Any] = []
    for name in names:
        opened = [{"url": name, "stream": io.BytesIO(Path(name).read_bytes())}]
        found += expand.group_by_keys(expand.tar_file_expander(opened))
    return [
        {"__key__": one["__key__"], "jpg": one["jpg"], "cls": int(one["cls"]), "json": json.loads(one["json"])}
        for one in found
    ]


def by_pyarrow(names: list[str]) -> list[Any]:
    return pytest.importorskip("pyarrow.parquet").ParquetDataset(names).read().to_pylist()


def by_pyarrows_json(names: list[str]) -> list[Any]:
    read = pytest.importorskip("pyarrow.json").read_json
    return [row for name in names for row in read(name).to_pylist()]


PEERS: list[Any] = [
    pytest.param("write_tfrecords", by_tensorflow, marks=pytest.mark.tensorflow),
    pytest.param("write_webdataset", by_webdataset, marks=pytest.mark.formats),
    pytest.param("write_parquet", by_pyarrow, marks=pytest.mark.formats),
    pytest.param("write_jsonl", by_pyarrows_json, marks=pytest.mark.formats),
]


@pytest.mark.parametrize(("method", "read"), PEERS)
def test_others_read_it(method: str, read: Callable[[list[str]], list[Any]], tmp_path: Path) -> None:
    expected = [plain(one) for one in elements(method)]
    assert read(write(method, tmp_path / "plain")) == expected
    if method in ("write_tfrecords", "write_jsonl"):
        assert read(write(method, tmp_path / "packed", compression_type="GZIP")) == expected
    assert len(expected) == COUNT


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_tensorflow_parses_the_examples(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow", exc_type=ImportError)
    ds = ad.Dataset.range(40).map(lambda x: ad.make_example({"id": x, "raw": b"%d" % x, "half": [x / 2, 0.5]}))
    names = ds.write_tfrecords(tmp_path, shards=3)
    features = {
        "id": tf.io.FixedLenFeature((), tf.int64),
        "raw": tf.io.FixedLenFeature((), tf.string),
        "half": tf.io.FixedLenFeature((2,), tf.float32),
    }
    found = tf.data.TFRecordDataset(names).map(lambda one: tf.io.parse_single_example(one, features))
    for number, one in enumerate(found.as_numpy_iterator()):
        assert (one["id"], one["raw"], one["half"].tolist()) == (number, b"%d" % number, [number / 2, 0.5])

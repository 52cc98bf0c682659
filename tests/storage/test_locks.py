"""Locks: one has it, whoever dies has it no more, and where there is no flock msvcrt's does; also caches and saving."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import asyncdata as ad
from asyncdata.storage import FileLock, locks

ROOT = Path(__file__).parents[2]

PRELUDES = {"here": "", "windows": "from tests.faults.windows import pretend; pretend()\n"}


@pytest.fixture(
    params=[
        "here",
        pytest.param(
            "windows",
            marks=[pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="pretends by /proc")],
        ),
    ]
)
def prelude(request: pytest.FixtureRequest) -> str:
    """What a program begins with to run here, or as on Windows."""
    return PRELUDES[request.param]


def start(prelude: str, program: str) -> subprocess.Popen[str]:
    code = f"{prelude}import os, sys\nfrom pathlib import Path\n{program}"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT
    )


def output(prelude: str, program: str) -> list[str]:
    process = start(prelude, program)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.split("\n")[:-1]


TAKE = """
from asyncdata.storage import FileLock
path = Path({path!r})
lock = FileLock.take(path)
print(lock is not None, flush=True)
"""


def test_one_has_it_and_then_another(tmp_path: Path, prelude: str) -> None:
    program = TAKE.format(path=str(tmp_path / "a")) + "sys.stdin.read(); lock.release(); lock.release()"
    first = start(prelude, program)
    assert first.stdout is not None
    assert first.stdout.readline() == "True\n"
    assert output(prelude, TAKE.format(path=str(tmp_path / "a"))) == ["False"]
    first.communicate()
    assert os.listdir(tmp_path) == []
    assert output(prelude, TAKE.format(path=str(tmp_path / "a")) + "lock.release()") == ["True"]
    assert os.listdir(tmp_path) == []


def test_who_is_killed_has_it_no_more(tmp_path: Path, prelude: str) -> None:
    first = start(prelude, TAKE.format(path=str(tmp_path / "a")) + "sys.stdin.read()")
    assert first.stdout is not None
    assert first.stdout.readline() == "True\n"
    first.send_signal(signal.SIGKILL)
    first.communicate()
    again = "second = FileLock.take(path); print(second is None); lock.release()"
    assert output(prelude, TAKE.format(path=str(tmp_path / "a")) + again) == ["True", "True"]
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_removed_before_it_is_locked_is_no_lock(tmp_path: Path) -> None:
    late = FileLock(tmp_path / "a")  # opened, and not locked yet
    first = FileLock.take(tmp_path / "a")
    assert first is not None
    first.release()
    assert late.locked()
    assert not late.is_there()
    os.close(late.descriptor)


KEEP = """
import asyncdata as ad
os.chdir({folder!r})
def numbers():
    return ad.Dataset.range(1000).map(lambda x: x * x).cache("kept").with_options(ad.Options(optimize=False))
with numbers().iterate() as left:
    print(next(left), next(left), sorted(os.listdir()))
print(sum(numbers()), numbers()[30], sorted(os.listdir()))
numbers().save("saved")
print(sum(ad.Dataset.load("saved")), sorted(os.listdir("saved")))
numbers().save("small", compression="GZIP")
print(sum(ad.Dataset.load("small")), sorted(os.listdir()))
"""


def test_caches_and_saved_datasets_are_written(tmp_path: Path, prelude: str) -> None:
    total = sum(x * x for x in range(1000))
    assert output(prelude, KEEP.format(folder=str(tmp_path))) == [
        "0 1 ['kept.partial', 'kept.partial.lock']",
        f"{total} 900 ['.kept.index', 'kept']",
        f"{total} ['00000.tfrecord', 'dataset.json']",
        f"{total} ['.kept.index', 'kept', 'saved', 'small']",
    ]


READ = """
import asyncdata as ad
ds = ad.Dataset.range(10).cache({path!r}).with_options(ad.Options(optimize=False))
list(ds.take(3))
with open({path!r} + ".partial", "rb"):
    print(list(ds), sorted(os.listdir({folder!r})))
print(list(ds), sorted(os.listdir({folder!r})))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pretends by /proc")
def test_a_file_that_somebody_reads_gets_its_name_in_the_next_epoch(tmp_path: Path) -> None:
    lines = output(PRELUDES["windows"], READ.format(path=str(tmp_path / "kept"), folder=str(tmp_path)))
    assert lines == [f"{[*range(10)]} ['kept.partial', 'kept.position']", f"{[*range(10)]} ['kept']"]


def test_a_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "module", lambda _: None)
    with pytest.raises(ad.PlanError, match="needs a system that can lock files"):
        list(ad.Dataset.range(3).cache(tmp_path / "kept"))


PIPELINE = """
import asyncdata as ad
path = Path({folder!r}, "lines.txt")
path.write_text("one\\ntwo\\n")
with ad.TFRecordWriter(path.with_name("a.tfrecord")) as writer:
    for number in range(5):
        writer.write(bytes(100_000 * number))
print(list(ad.TextLineDataset(path)))
print(list(ad.TFRecordDataset(path.with_name("a.tfrecord")).map(len, num_parallel_calls=2)))
print(len(ad.TFRecordDataset(path.with_name("a.tfrecord"), index=True)[3]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pretends by /proc")
def test_files_are_read_without_what_other_systems_have_not(tmp_path: Path) -> None:
    lines = output(PRELUDES["windows"], PIPELINE.format(folder=str(tmp_path)))
    assert lines == ["[b'one', b'two']", "[0, 100000, 200000, 300000, 400000]", "300000"]

"""Files that a dataset is written to: what is in them, and what is there when writing was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import PlanError, ResumeError, StructureError
from asyncdata.storage import sinks
from tests.marks import first_by_default


def numbers(count: int = 100) -> ad.Dataset[bytes]:
    return ad.Dataset.range(count).shuffle(seed=1).map(lambda x: b"%05d" % x)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("compression", first_by_default(["GZIP", None, "ZLIB"]))
@pytest.mark.parametrize("shards", [1, 7, 100, 130, None])
def test_the_files_give_the_dataset(tmp_path: Path, shards: int | None, compression: str | None) -> None:
    names = numbers().write_tfrecords(tmp_path, shards, compression, shard_bytes=500)
    assert len(names) == (shards or 5)
    assert list(ad.TFRecordDataset(names, compression)) == list(numbers())
    assert [os.path.basename(name) for name in names] == visible(tmp_path)


def test_lines_of_json(tmp_path: Path) -> None:
    rows = [{"id": np.int64(3), "x": np.arange(2.0), "s": "ü\n", "n": None}, {"id": 1.5, "x": [], "s": "", "n": True}]
    names = ad.Dataset.from_generator(lambda: iter(rows)).write_jsonl(tmp_path)
    assert list(ad.JsonLinesDataset(names)) == [
        {"id": 3, "x": [0.0, 1.0], "s": "ü\n", "n": None},
        {"id": 1.5, "x": [], "s": "", "n": True},
    ]


def test_no_elements(tmp_path: Path) -> None:
    assert list(ad.TFRecordDataset(numbers(0).write_tfrecords(tmp_path / "a"))) == []
    assert len(numbers(0).write_tfrecords(tmp_path / "b", shards=3)) == 3


def test_goes_on_behind_the_last_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    def build() -> ad.Dataset[bytes]:
        return ad.Dataset.range(100).map(checked)

    monkeypatch.setenv("STOP", "57")
    with pytest.raises(ValueError, match="here"):
        build().write_tfrecords(tmp_path, shards=10, progress=lambda *now: told.append(now))
    assert visible(tmp_path) == [f"{place:05}.tfrecord" for place in range(5)]
    assert told[-1] == (50, 5)
    before = [(tmp_path / name).stat().st_mtime_ns for name in visible(tmp_path)]
    monkeypatch.setenv("STOP", "-1")
    names = build().write_tfrecords(tmp_path, shards=10)
    assert [(tmp_path / name).stat().st_mtime_ns for name in visible(tmp_path)][:5] == before
    assert list(ad.TFRecordDataset(names)) == [b"%05d" % x for x in range(100)]
    after = [(tmp_path / name).stat().st_mtime_ns for name in visible(tmp_path)]
    assert build().write_tfrecords(tmp_path, shards=10) == names  # all is there
    assert [(tmp_path / name).stat().st_mtime_ns for name in visible(tmp_path)] == after
    with pytest.raises(ResumeError, match="delete it"):
        build().write_tfrecords(tmp_path, shards=9)
    with pytest.raises(ResumeError, match="delete it"):
        build().take(50).write_tfrecords(tmp_path, shards=10)


def checked(x: int) -> bytes:
    if x == int(os.environ["STOP"]):
        raise ValueError("here")
    return b"%05d" % x


KILLED = """
import os, signal, sys
import asyncdata as ad
def fn(x):
    if x == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return b"%05d" % x * 1000
names = ad.Dataset.range(1000).shuffle(seed=3).map(fn).write_tfrecords(sys.argv[1], shard_bytes=1_000_000)
print(len(names), sum(map(len, ad.TFRecordDataset(names))))
"""


def test_nothing_is_seen_of_a_file_whose_writer_was_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran: list[Any] = []
    for stop in ("700", "-1"):
        command = [sys.executable, "-c", KILLED, str(tmp_path), stop]
        ran.append(subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False))
        for name in visible(tmp_path):
            assert len(list(ad.TFRecordDataset(tmp_path / name))) in {200, 199}
    assert ran[0].returncode == -signal.SIGKILL
    assert ran[1].stdout == "5 5000000\n", ran[1].stderr
    assert not list(tmp_path.glob(".*.partial"))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sinks.LocalSink, "write", full)
        with pytest.raises(OSError, match="No space left") as caught:
            numbers().write_tfrecords(tmp_path)
        assert "write again: it continues" in caught.value.__notes__[0]
    assert visible(tmp_path) == []
    assert list(ad.TFRecordDataset(numbers().write_tfrecords(tmp_path))) == list(numbers())


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(StructureError, match="elements that are bytes") as caught:
        ad.Dataset.range(3).write_tfrecords(tmp_path / "a")
    assert "element 0" in caught.value.__notes__[0]
    with pytest.raises(StructureError, match="cannot be represented in JSON"):
        ad.Dataset.from_list([b"x"]).write_jsonl(tmp_path / "b")
    with pytest.raises(PlanError, match="the number of elements"):
        numbers().filter(lambda x: True).write_tfrecords(tmp_path / "c", shards=2)
    with pytest.raises(PlanError, match=r"write_tfrecords\(progress=\) must be a function"):
        numbers().write_tfrecords(tmp_path / "d", progress=3)  # type: ignore[arg-type]


def test_web_servers_are_not_written_to() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(PlanError, match="this machine"):
        numbers().write_tfrecords("http://example.org/x")


def test_files_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "00000.tfrecord").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"00000\.tfrecord already exists, and this pipeline did not write it"):
        ad.Dataset.from_list([b"a"]).write_tfrecords(tmp_path)
    assert (tmp_path / "00000.tfrecord").read_bytes() == b"mine"


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    ds = ad.Dataset.from_list([b"a", b"b"])
    ds.write_tfrecords(tmp_path, shards=2)
    manifest = tmp_path / ".asyncdata-write.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"true", b"null"))
    with pytest.raises(ad.ResumeError, match="is damaged"):
        ds.write_tfrecords(tmp_path, shards=2)


def test_a_file_that_is_missing_or_was_changed_is_an_error(tmp_path: Path) -> None:
    names = numbers().write_tfrecords(tmp_path, shards=3)
    content = Path(names[1]).read_bytes()
    Path(names[1]).write_bytes(content[:-1])
    with pytest.raises(ResumeError, match=r"00001\.tfrecord was written with \d+ bytes, and now has \d+ bytes"):
        numbers().write_tfrecords(tmp_path, shards=3)
    Path(names[1]).unlink()
    with pytest.raises(ResumeError, match=r"00001\.tfrecord was written with \d+ bytes, and now is missing"):
        numbers().write_tfrecords(tmp_path, shards=3)
    Path(names[1]).write_bytes(content)
    assert numbers().write_tfrecords(tmp_path, shards=3) == names


def test_what_json_does_not_have_is_an_error_that_names_the_element(tmp_path: Path) -> None:
    with pytest.raises(ad.StructureError, match="write_jsonl") as caught:
        ad.Dataset.from_list([1.0, float("nan")]).write_jsonl(tmp_path)
    assert caught.value.__notes__ == ["element 1 of the dataset"]

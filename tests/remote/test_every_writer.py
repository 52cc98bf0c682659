"""Every writer, to a real S3 server: the bytes of local files, each object whole or not there."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from tests.persistence import writers
from tests.persistence.writers import WRITERS, elements
from tests.remote.conftest import Bucket

pytestmark = [pytest.mark.remote, pytest.mark.parametrize("method", WRITERS)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def needed(method: str) -> None:
    if package := WRITERS[method].needs:
        pytest.importorskip(package)


def sums(bucket: Bucket) -> dict[str, str]:
    """Return what the objects hold that are there, in short."""
    found = bucket.client.list_objects_v2(Bucket="tests", Prefix=f"{bucket.folder}/w/").get("Contents", [])
    names = [one["Key"] for one in found if not one["Key"].endswith(".json")]
    bodies = [bucket.client.get_object(Bucket="tests", Key=name)["Body"].read() for name in names]
    return {name.rpartition("/")[2]: hashlib.sha256(body).hexdigest() for name, body in zip(names, bodies)}


def test_the_same_bytes_as_on_this_machine(method: str, bucket: Bucket, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    writers.write(method, tmp_path / "here")
    names = writers.write(
        method, f"{bucket.url}/w", storage_options=bucket.options, progress=lambda *now: told.append(now)
    )
    assert sums(bucket) == writers.sums(tmp_path / "here")
    assert told == [(15, 1), (30, 2), (45, 3), (60, 4)]
    found = WRITERS[method].read(names, storage_options=bucket.options)
    assert str([*found]) == str([*WRITERS[method].read(sorted(map(str, writers.visible(tmp_path / "here"))))])


def test_stopped_by_an_error_and_gone_on_with(method: str, bucket: Bucket, tmp_path: Path) -> None:
    stop = [35]

    def checked(place: int, element: Any) -> Any:
        if place == stop[0]:
            raise ValueError("here")
        return element

    def write(where: Any, **more: Any) -> list[str]:
        ds = elements(method).enumerate().map(checked)
        return getattr(ds, method)(where, shards=4, **more)

    with pytest.raises(ValueError, match="here"):
        write(f"{bucket.url}/w", storage_options=bucket.options)
    seen = sums(bucket)
    assert len(seen) == 2
    assert "Uploads" not in bucket.client.list_multipart_uploads(Bucket="tests", Prefix=bucket.folder)
    stop[0] = -1
    write(tmp_path / "here")
    assert seen.items() <= writers.sums(tmp_path / "here").items()
    write(f"{bucket.url}/w", storage_options=bucket.options)
    assert sums(bucket) == writers.sums(tmp_path / "here")


KILLED = """
import json, os, signal, sys
from unittest import mock
from asyncdata.storage import sinks
from tests.persistence.writers import write
method, url, options, step = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
done = []
close = sinks.ObjectSink.close
def counted(sink):
    if len(done) == step:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(sink)
    close(sink)
with mock.patch.object(sinks.ObjectSink, "close", counted):
    write(method, url, storage_options=options)
"""


@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_killed_before_an_object_is_complete(method: str, step: int, bucket: Bucket, tmp_path: Path) -> None:
    """Before the first object, before what tells of it, and before the third."""
    command = [sys.executable, "-c", KILLED, method, f"{bucket.url}/w", json.dumps(bucket.options), str(step)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    writers.write(method, tmp_path / "here")
    whole = writers.sums(tmp_path / "here")
    assert sums(bucket).items() == {*whole.items()} & {*sums(bucket).items()}
    assert len(sums(bucket)) == step // 2
    names = writers.write(method, f"{bucket.url}/w", storage_options=bucket.options)
    assert sums(bucket) == whole
    assert sum(1 for _ in WRITERS[method].read(names, storage_options=bucket.options)) == writers.COUNT


def test_equal_seeds(method: str, bucket: Bucket) -> None:
    """With another seed a folder that was written is refused."""
    writers.write(method, f"{bucket.url}/w", storage_options=bucket.options)
    with pytest.raises(ad.ResumeError, match="seeds"):
        writers.write(method, f"{bucket.url}/w", seed=2, storage_options=bucket.options)

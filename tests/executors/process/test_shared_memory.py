"""SharedMemory: what is written into its file is in its map, here and in what attaches it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncdata.executors.process import shared_memory
from asyncdata.executors.process.shared_memory import SharedMemory
from asyncdata.executors.process.shm_arena import Buffers, SlotReader, Slots, dump_by_value, dumps, pack
from asyncdata.system import linux_only, thread_usage


@pytest.mark.parametrize("by_file", [True, False])
def test_what_is_written_is_in_all_maps(by_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "WRITTEN", 1000)
    if not by_file:
        monkeypatch.delattr(os, "pwrite")
    data = os.urandom(10_001)
    segment = SharedMemory.create(20_000)
    segment.write(7, memoryview(data))
    other = SharedMemory.attach(segment.handle, segment.size)
    for mapped in (segment.map, other):
        assert mapped[:] == bytes(7) + data + bytes(20_000 - 7 - len(data))
    other.close()
    segment.close()


@pytest.mark.skipif(linux_only.MEMFD_CREATE is None, reason="the system has no memfd")
def test_a_python_that_was_built_without_memfd_uses_that_of_the_system() -> None:
    """As those of uv and conda are; `/tmp` may be small, and on a disk."""
    program = (
        "import os\ndel os.memfd_create\n"
        "from asyncdata.executors.process.shared_memory import SharedMemory\n"
        "segment = SharedMemory.create(1000)\n"
        "segment.map[:3] = b'abc'\n"
        "print(segment.handle, bytes(SharedMemory.attach(segment.handle, 1000)[:4]), os.get_inheritable(segment.fd))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("/proc/")
    assert done.stdout.endswith("b'abc\\x00' False\n")


def refused(*_: object) -> int:
    raise PermissionError(errno.EPERM, "not in this sandbox")


def failed(*_: object) -> int:
    return -1


@pytest.mark.parametrize("call", [None, refused, failed], ids=["not there", "refused", "refused by C"])
def test_without_memfd_it_is_a_temporary_file(call: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "MEMFD_CREATE", call)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    segment = SharedMemory.create(20_000)
    assert Path(segment.handle).parent == tmp_path
    segment.write(7, memoryview(b"abc"))
    other = SharedMemory.attach(segment.handle, segment.size)
    assert other[6:11] == b"\0abc\0"
    assert not [*tmp_path.iterdir()], "the name goes with the last side that needs it"
    other.close()
    segment.close()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve space")
def test_a_full_disk_is_an_error_before_a_write_would_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shared_memory, "MEMFD_CREATE", None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left") as caught:
        SharedMemory.create(20_000)
    (note,) = caught.value.__notes__
    assert f"files of {tmp_path}" in note
    assert "TMPDIR" in note
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.skipif(thread_usage.C is None, reason="mounts a small file system")
def test_results_that_do_not_fit_into_the_folder_of_temporary_files_are_an_error(tmp_path: Path) -> None:
    small, site = tmp_path / "small", tmp_path / "site"
    small.mkdir()
    site.mkdir()
    mount = f"mount -t tmpfs -o size=16m tmpfs {small}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system")
    (site / "sitecustomize.py").write_text(
        "import ctypes, os\ndel os.memfd_create\nctypes.PyDLL = lambda *_, **__: None\n"
    )
    program = (
        "import numpy as np\nimport asyncdata as ad\n"
        "ds = ad.Dataset.range(64).map(lambda _: np.ones(4 << 20, np.uint8), 4, executor='process')\n"
        "for _ in ds.batch(8): pass\n"
    )
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(small)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 1, "no signal"
    assert f"in files of {small}, as this Python has no memfd: set TMPDIR" in done.stderr


@pytest.mark.parametrize("dump", [dumps, dump_by_value])
@pytest.mark.parametrize("large", [0, 30_000])
def test_a_value_is_pickled_once_and_its_large_arrays_are_views(dump: Any, large: int) -> None:
    """Small ones are in the pickle, in memory of their own."""
    dumped: list[bytes] = []

    def counted(value: Any, buffers: Buffers | None) -> bytes:
        dumped.append(dump(value, buffers))
        return dumped[-1]

    value = [np.arange(100), np.zeros(0), np.arange(large, dtype=np.int16), np.arange(7.0)]
    slots, reader = Slots(1 << 30), SlotReader()
    payload = pack(value, slots, 4000, dump=counted)
    assert len(dumped) == 1
    assert isinstance(payload, bytes) == (not large)
    found = reader.open(payload)
    for place, other in enumerate(value):
        np.testing.assert_array_equal(found[place], other)
        found[place] += 1
    if large:
        assert slots.slots[0].taken
        del found
        assert not slots.slots[0].taken
    reader.disown()
    slots.close()

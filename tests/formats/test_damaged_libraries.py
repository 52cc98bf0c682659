"""Files that a library of another language reads, with one byte changed at many places: every run ends.

They are read in a process of their own, as a library may end its process. Then it goes on at the next place.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults import flipped

pytestmark = pytest.mark.formats

ROWS = 60


def hdf5(folder: Path) -> Path:
    """An array whose rows have checksums, and what describes them too, in the latest version of the format."""
    with pytest.importorskip("h5py").File(folder / "a.h5", "w", libver="latest") as file:
        rows = np.arange(10 * ROWS).reshape(ROWS, 10)
        file.create_dataset("rows", data=rows, chunks=(7, 10), fletcher32=True)
    return folder / "a.h5"


def lance(folder: Path) -> Path:
    package, pa = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    columns = {
        "id": [*range(ROWS)],
        "text": [f"text {i}" for i in range(ROWS)],
        "some": [[i] * (i % 4) for i in range(ROWS)],
    }
    package.write_dataset(pa.table(columns), folder / "a.lance")
    (path,) = (folder / "a.lance/data").glob("*.lance")
    return path


def read_with_flips(kind: str, path: Path) -> list[Any]:
    """Return what was read with a byte changed at each place, `None` where the process ended."""
    content, found, first = path.read_bytes(), list[Any](), 0
    while first < len(content):
        command = [sys.executable, "-m", "tests.faults.flipped", kind, str(path), str(first)]
        child = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        lines = child.stdout.splitlines()
        assert lines, child.stderr
        found += [json.loads(line) for line in lines[1::2]] + [None] * (len(lines) % 2)
        first += flipped.EVERY * -(-len(lines) // 2)
        path.write_bytes(content)
    return found


@pytest.mark.parametrize(
    ("write", "errors", "checked"),
    [
        pytest.param(lance, {"DataLossError", "opened: DataLossError"}, False, id="lance"),
        pytest.param(hdf5, {"OSError", "opened: OSError", "opened: KeyError", "opened: RuntimeError"}, True, id="hdf5"),
    ],
)
def test_a_byte_changed(write: Any, errors: set[str], checked: bool, tmp_path: Path) -> None:
    """Errors are those that say what cannot be read; rows with a checksum are those that were written."""
    path = write(tmp_path)
    found = read_with_flips(write.__name__, path)
    assert len(found) == -(-path.stat().st_size // flipped.EVERY) > 20
    for names, others in filter(None, found):
        assert {*names} <= errors
        assert not (checked and others)
    assert any(names for names, _ in filter(None, found))

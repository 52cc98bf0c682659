"""Files of more than 4 GB: all of them is read, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.large import LARGE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by /proc")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.formats if one.needs else ()) for name, one in LARGE.items()]
)
def test_is_read_in_bounded_memory(name: str, tmp_path: Path) -> None:
    """Lines of text have no holes: to write 4 GB of them may take longer than to read them."""
    large, path = LARGE[name], tmp_path / f"a.{name}"
    large.make(path)
    try:
        command = [sys.executable, "-m", "tests.formats.large", name, str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        if path.is_file():
            path.unlink()  # what takes room is not kept with the last runs' files
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["count"], found["left"]) == (large.count, 0)
    assert found["bytes"] > 4 << 30
    assert found["grown"] < large.most

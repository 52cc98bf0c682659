"""Arrays of JAX by prefetch_to_device, in a process of its own: other tests fork, which JAX does not allow."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs/jax_arrays.py"


@pytest.mark.integrations
def test_in_a_process_of_its_own() -> None:
    if find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "integrations", str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "16 passed" in done.stdout

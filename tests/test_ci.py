"""What .ci/run does with tests that fail: once more, alone; who passes then is unstable, and the run goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import first_by_default

CHECKS = Path(__file__).parent.parent / ".ci" / "checks.sh"

UNSTABLE = """
from pathlib import Path

def test_once():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_sound(): pass
"""

pytestmark = pytest.mark.skipif(not CHECKS.exists() or os.name == "nt", reason="needs the repository and bash")


def run(folder: Path, commands: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run commands that use .ci/checks.sh in a folder with an environment and these modules of tests."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    program = f"set -euo pipefail; source {CHECKS}; {commands}; conclude"
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(["bash", "-c", program], cwd=folder, env=outside, capture_output=True, text=True, check=False)


def test_a_test_that_passes_alone_is_unstable_and_the_run_goes_on(tmp_path):
    found = run(tmp_path, "check_tests -m ''; check echo went on", test_first=UNSTABLE)
    assert found.returncode == 0, found
    assert "\nunstable: test_first.py::test_once\n" in found.stdout
    assert "1 passed" in found.stdout
    assert "\nwent on\n" in found.stdout
    assert found.stdout.endswith("=== All is well\n")


@pytest.mark.slow
def test_a_test_that_fails_again_has_failed(tmp_path):
    bad = "def test_bad():\n    assert False\n"
    found = run(tmp_path, "check_tests; check echo went on", test_first=UNSTABLE, test_second=bad)
    assert found.returncode == 1, found
    assert "\nunstable: test_first.py::test_once\n" in found.stdout
    assert "unstable: test_second" not in found.stdout
    assert "\nwent on\n" in found.stdout
    assert "=== Failed\npytest \n" in found.stdout


@pytest.mark.parametrize(
    "commands", first_by_default(["check_tests no_such_file.py", "check false", "check_tests --no-such-option"], 2)
)
def test_what_does_not_run_has_failed(tmp_path, commands):
    found = run(tmp_path, commands)
    assert found.returncode == 1, found
    assert "=== Failed\n" in found.stdout
    assert "Once more" not in found.stdout


WORKFLOW = CHECKS.parents[1] / ".github" / "workflows" / "tests.yml"


def test_the_workflow_runs_the_same_commands_on_all_systems_and_versions() -> None:
    workflow = WORKFLOW.read_text(encoding="utf-8")
    readme = (CHECKS.parents[1] / "README.md").read_text(encoding="utf-8")
    command = next(line for line in readme.splitlines() if line.endswith("-m pytest -n auto"))
    ran = [line.removeprefix("- run: ") for line in map(str.strip, workflow.splitlines()) if line.startswith("- run: ")]
    parts = [part.replace(".venv/bin/pip", "python -m pip").replace(".venv/bin/", "") for part in command.split(" && ")]
    assert parts[1:] == [ran[0].replace('"', "'").replace("install", "install -q"), ran[1]]
    assert ran[2] == "bash .ci/run"
    assert "system: [ubuntu-latest, macos-latest, windows-latest]" in workflow
    project = (CHECKS.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", project)
    quoted = ", ".join([f'"{version}"' for version in [*versions, "3.14t"]])
    assert f"python: [{quoted}]" in workflow
    assert "This file has not been run" in workflow

"""What docs/recipes.md shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.pages import check_examples

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    check_examples("recipes.md")


def test_the_debugger_stops_as_shown(tmp_path: Path) -> None:
    (program,), (session,) = blocks('python title="look.py"'), blocks("text")
    (tmp_path / "look.py").write_text(program)
    typed = "".join(re.findall(r"\(Pdb\) (.*\n)", session))
    run = subprocess.run(
        [sys.executable, "look.py"], cwd=tmp_path, input=typed, capture_output=True, text=True, timeout=100, check=True
    )
    shown = re.findall(r"^(?!\$|>|->|\(Pdb\)).+", session, re.MULTILINE)  # where it stops depends on the Python
    assert run.stdout.splitlines()[-len(shown) :] == [f"(Pdb) {line}" for line in shown]

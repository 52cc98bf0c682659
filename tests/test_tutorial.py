"""What docs/tutorial.md shows is what happens."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.pages import DOCS, check_examples


def test_the_examples_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    check_examples("tutorial.md")


def test_blocks_of_the_tutorial_can_be_pasted_into_a_file() -> None:
    assert ">>>" not in (DOCS / "tutorial.md").read_text(encoding="utf-8")

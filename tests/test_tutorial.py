"""What docs/tutorial.md shows is what happens."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.pages import check_examples


def test_the_examples_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    check_examples("tutorial.md")

"""Each test that tests/known_faults.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_fault_has_tests_that_are_there() -> None:
    page = (TESTS / "known_faults.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    named = [re.findall(r"`([\w/]+\.py)::(test_\w+)`", row) for row in rows]
    assert all(named), [row for row, tests in zip(rows, named, strict=True) if not tests]
    texts = {path: (TESTS / path).read_text(encoding="utf-8") for path, _ in sum(named, [])}
    assert [f"{path}::{name}" for path, name in sum(named, []) if f"def {name}(" not in texts[path]] == []

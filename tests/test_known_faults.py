"""Each test that tests/known_faults.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_fault_has_tests_that_are_there() -> None:
    page = (TESTS / "known_faults.md").read_text(encoding="utf-8")
    for row in page.splitlines():
        if row.startswith("| ") and not row.startswith("| fault"):
            tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
            assert tests, row
            missing = [name for path, name in tests if f"def {name}(" not in (TESTS / path).read_text(encoding="utf-8")]
            assert not missing, row

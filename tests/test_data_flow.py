"""What docs/data-flow.md shows is what happens; where CONTRIBUTING.md says to look, there are files; and docs/design.md
has the sections that modules name."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pages import check_examples

ROOT = Path(__file__).parents[1]


def test_the_examples_of_the_documentation() -> None:
    check_examples("data-flow.md")


def test_the_files_to_look_at_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Where to look\n")[2].partition("\n## ")[0]
    names = re.findall(r"`([a-z_/]+\.py)`", table)
    assert len(names) > 10
    assert [name for name in names if not (ROOT / "asyncdata" / name.removeprefix("asyncdata/")).exists()] == []


def test_the_reasons_that_modules_name_are_there() -> None:
    headings = re.findall(r"^##+ (.+)$", (ROOT / "docs/design.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {
        found
        for path in (ROOT / "asyncdata").rglob("*.py")
        for found in re.findall(r'docs/design\.md, "([^"]+)"', path.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= {*headings}

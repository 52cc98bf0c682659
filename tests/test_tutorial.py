"""What docs/tutorial.md shows is what happens."""

from __future__ import annotations

import doctest
import re
import tempfile
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"


def test_the_examples_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    printed: list[str] = []
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append).failed == 0, "".join(
        printed
    )

"""What docs/data-flow.md shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "data-flow.md"


def test_the_examples_of_the_documentation() -> None:
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    runner, printed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), list[str]()
    assert runner.run(test, out=printed.append).failed == 0, "".join(printed)

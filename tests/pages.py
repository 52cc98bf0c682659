"""Checks that the examples of a page of docs/ print what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np

__all__ = ("as_printed_here", "check_examples")

DOCS = Path(__file__).parent.parent / "docs"

OLD_NUMPY = int(np.__version__.split(".")[0]) < 2

NUMBER = re.compile(r"\bnp\.(?!datetime64|timedelta64)\w+\(([^()]*)\)")


def check_examples(name: str) -> None:
    """Run the examples of the page of that name, one after another, and compare what they print."""
    page = DOCS / name
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    test = as_printed_here(doctest.DocTestParser().get_doctest(examples, {}, name, str(page), 0))
    said: list[str] = []
    assert test.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append).failed == 0, "".join(said)


def as_printed_here(test: doctest.DocTest) -> doctest.DocTest:
    """Let the examples expect numbers as the NumPy in use prints them: `np.int64(3)` was `3` before NumPy 2."""
    for example in test.examples if OLD_NUMPY else ():
        example.want = NUMBER.sub(r"\1", example.want)
        example.exc_msg = example.exc_msg and NUMBER.sub(r"\1", example.exc_msg)
    return test

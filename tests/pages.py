"""Checks that the examples of a page of docs/ print what the page says."""

from __future__ import annotations

import ast
import doctest
import re
from itertools import takewhile
from pathlib import Path

import numpy as np

__all__ = ("DOCS", "as_printed_here", "check_examples")

DOCS = Path(__file__).parent.parent / "docs"

OLD_NUMPY = int(np.__version__.split(".")[0]) < 2

NUMBER = re.compile(r"\bnp\.(?!datetime64|timedelta64)\w+\(([^()]*)\)")


def check_examples(name: str) -> None:
    """Run the examples of the page of that name, one after another, and compare what they print.

    They are blocks of `python`, which can be pasted into a file: the comment right below a statement is what it prints.
    """
    page = DOCS / name
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    examples = [example for indent, block in blocks for example in statements(re.sub(f"(?m)^{indent}", "", block))]
    test = as_printed_here(doctest.DocTest(examples, {}, name, str(page), 0, None))
    said: list[str] = []
    assert test.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append).failed == 0, "".join(said)


def statements(block: str) -> list[doctest.Example]:
    """Return the statements of a block of Python, each with what it prints."""
    lines, found = block.splitlines(), list[doctest.Example]()
    for node in ast.parse(block).body:
        begin = min([node.lineno, *[decorator.lineno for decorator in getattr(node, "decorator_list", ())]])
        after = takewhile(lambda line: line.startswith("#"), lines[node.end_lineno :])
        printed = [line.removeprefix("#").removeprefix(" ") for line in after]
        source = "\n".join([*lines[begin - 1 : node.end_lineno], ""])
        found.append(doctest.Example(source, "".join([f"{line}\n" for line in printed]), lineno=begin))
    return found


def as_printed_here(test: doctest.DocTest) -> doctest.DocTest:
    """Let the examples expect numbers as the NumPy in use prints them: `np.int64(3)` was `3` before NumPy 2."""
    for example in test.examples if OLD_NUMPY else ():
        example.want = NUMBER.sub(r"\1", example.want)
        example.exc_msg = example.exc_msg and NUMBER.sub(r"\1", example.exc_msg)
    return test

"""Which parameters of a test run by default, and which modules of tests are imported for an expression of `-m`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

__all__ = ("MARKERS", "asked_for", "first_by_default", "markers_in")

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))

MARKERS = [line.partition(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]]

GIVEN_BY = {"laws": "@given", "slow": "first_by_default"}
"""What marks tests beside `pytest.mark`."""


def first_by_default(values: Sequence[Any], count: int = 1) -> list[Any]:
    """Return parameters of which the first `count` run by default, and the others with `-m slow` alone.

    A tuple has one value for each of several arguments.
    """
    rest = [one if isinstance(one, tuple) else (one,) for one in values[count:]]
    return [*values[:count], *[pytest.param(*one, marks=pytest.mark.slow) for one in rest]]


@cache
def markers_in(module: Path) -> frozenset[str]:
    """Return the project's markers that a module of tests gives, by its text, to some of its tests."""
    words = set(re.findall(r"\bmark\.(\w+)|(@given|first_by_default)\b", module.read_text(encoding="utf-8")))
    found = {word for pair in words for word in pair}
    return frozenset(name for name in MARKERS if name in found or GIVEN_BY.get(name) in found)


def asked_for(expression: str, given: frozenset[str]) -> bool:
    """Return whether the expression of `-m` may be true of a test that has some of the given markers and no other."""
    some = chain.from_iterable(combinations(given, count) for count in range(len(given) + 1))
    try:
        program = compile(expression or "True", "-m", "eval")
        return any(eval(program, {"__builtins__": {}}, {name: name in one for name in MARKERS}) for one in some)
    except (NameError, SyntaxError):  # pytest knows more markers, and more of their language
        return True

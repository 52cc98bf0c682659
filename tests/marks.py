"""Which of a test's parameters run by default, and which with `-m slow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ("first_by_default",)


def first_by_default(values: Sequence[Any], count: int = 1) -> list[Any]:
    """Return parameters of which the first `count` run by default, and the others with `-m slow` alone.

    A tuple has one value for each of several arguments.
    """
    rest = [one if isinstance(one, tuple) else (one,) for one in values[count:]]
    return [*values[:count], *[pytest.param(*one, marks=pytest.mark.slow) for one in rest]]

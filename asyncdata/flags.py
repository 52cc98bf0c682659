"""Arguments that are True or False: what else Python takes for one of the two is more likely another argument."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncdata.errors import PlanError

__all__ = ("check_choice", "check_flag")

BOOLS: Final = (bool, np.bool_)


def check_flag(method: str, name: str, value: Any) -> bool:
    """Return `value` as a bool; raise `PlanError` if it is none."""
    if type(value) not in BOOLS:
        raise PlanError(f"{method}({name}=) must be True or False, got {value!r:.80}")
    return bool(value)


def check_choice(method: str, name: str, value: Any) -> bool | None:
    """Return `value` as a bool, or `None` where it is left open; raise `PlanError` if it is neither."""
    if value is not None and type(value) not in BOOLS:
        raise PlanError(f"{method}({name}=) must be True, False or None, got {value!r:.80}")
    return None if value is None else bool(value)

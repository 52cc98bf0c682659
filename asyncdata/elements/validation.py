"""Checks of arguments and values: flags, dtypes and masks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncdata.errors import PlanError, StructureError

__all__ = ("check_choice", "check_dtype", "check_flag", "check_unmasked")

BOOLS: Final = (bool, np.bool_)


def check_flag(method: str, name: str, value: Any) -> bool:
    """Return `value` as a bool; raise `PlanError` if it is not one."""
    if type(value) not in BOOLS:
        raise PlanError(f"{method}({name}=) must be True or False, got {value!r:.80}")
    return bool(value)


def check_choice(method: str, name: str, value: Any) -> bool | None:
    """Return `value` as a bool, or `None`; raise `PlanError` if it is neither."""
    if value is not None and type(value) not in BOOLS:
        raise PlanError(f"{method}({name}=) must be True, False or None, got {value!r:.80}")
    return None if value is None else bool(value)


def check_dtype(argument: str, value: Any) -> np.dtype[Any]:
    """Return a NumPy dtype, also for one of TensorFlow's; raise `PlanError` if it is not a dtype."""
    kind = getattr(value, "as_numpy_dtype", value)
    try:
        if kind is not None:  # None would be float64
            return np.dtype(kind)
    except (TypeError, ValueError):
        pass
    raise PlanError(f"{argument} must be a dtype, as np.int32, 'int32' or str, got {value!r:.80}")


def check_unmasked(value: Any, what: str) -> None:
    """Raise `StructureError` for a masked array, where only its numbers would be left."""
    if isinstance(value, np.ma.MaskedArray):
        raise StructureError(f"{what} is a masked array, whose mask would be lost: fill it, `.filled(value)`, in a map")

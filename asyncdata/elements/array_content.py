"""What tells arrays apart: their bytes, or their values where bytes do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ("array_content",)

FILLED: Final = frozenset("?bhilqpBHILQPefdFDmMSU")
"""The characters of dtypes whose equal values have equal bytes, which say all of them."""


def array_content(array: npt.NDArray[Any]) -> tuple[str, bytes | Sequence[Any]]:
    """Return an array's dtype as a text, and with it what only arrays of equal dtype, shape and values have in common.

    It is the array's bytes; but the values of objects and of `StringDType`, which are elsewhere in memory; of long
    doubles, which do not fill theirs, the texts; of structured arrays, whose fields may be apart, the arrays of the
    fields; and of masked arrays the mask, and the values that it shows.
    """
    dtype = array.dtype
    if isinstance(array, np.ma.MaskedArray) and dtype.names is None:
        mask, shown = np.ma.getmaskarray(array), np.array(array.data)
        shown[mask] = np.zeros((), dtype)
        return f"masked {dtype}", (mask, shown)
    if dtype.char in FILLED:
        return dtype.str, array.tobytes()
    if dtype.names is not None:
        return str(dtype), [array[name] for name in dtype.names]
    if dtype.hasobject:
        return dtype.str, array.ravel().tolist()
    if dtype.char in "gG":
        return dtype.str, [repr(one) for one in array.ravel()]
    return str(dtype), array.tobytes()

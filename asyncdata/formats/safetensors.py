"""Safetensors: where the rows of the tensors in a file are, by its header, without I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from struct import unpack
from typing import Any, Final

import numpy as np

from asyncdata.system.optional_packages import require

__all__ = ("BEGIN_BYTES", "TensorRows", "header_bytes", "rows_of_header")

BEGIN_BYTES: Final = 8
"""The size of what comes first: the size of the header."""

LARGEST_HEADER: Final = 100_000_000
"""More bytes than a header may have."""

DTYPES: Final = {
    "BOOL": "bool",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""NumPy's dtypes by the names in files."""

EXTENDED: Final = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}
"""Those that ml_dtypes adds."""


@dataclass(frozen=True)
class TensorRows:
    """The rows of a tensor: their dtype and shape, how many there are, and at which bytes they begin and end."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The dtype; `ValueError` for one that is not read."""
        if self.kind in EXTENDED:
            return np.dtype(getattr(require("ml_dtypes", f"a tensor of {self.kind}", "ml_dtypes"), EXTENDED[self.kind]))
        if self.kind not in DTYPES:
            raise ValueError(f"its tensor at byte {self.begin} is of {self.kind}, which is not read")
        return np.dtype(DTYPES[self.kind]).newbyteorder("<")

    @cached_property
    def row_bytes(self) -> int:
        """The size of a row."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    def check(self, name: str) -> None:
        """Raise `ValueError` unless there are rows, which have the size that their shape says."""
        if not self.shape:
            raise ValueError(f"its tensor {name!r} at byte {self.begin} has no axis, and so no rows")
        if self.shape[0] * self.row_bytes != self.end - self.begin:
            raise ValueError(
                f"its tensor {name!r} is bytes {self.begin} to {self.end}, which is not the size of {self.kind} "
                f"{self.shape}"
            )


def header_bytes(begin: bytes, size: int) -> int:
    """Return how many bytes the header of a file of `size` bytes has; `ValueError` if that cannot be."""
    length = unpack("<Q", begin)[0] if len(begin) == BEGIN_BYTES else 0
    if not 2 <= length <= min(LARGEST_HEADER, size - BEGIN_BYTES):
        raise ValueError(f"at byte 0 the size of a header was expected, which ends before byte {size}, got {begin!r}")
    return length


def rows_of_header(data: bytes, size: int, names: Sequence[str] | None) -> dict[str, TensorRows]:
    """Return the tensors with these names, or all, of a file of `size` bytes with this header; `ValueError` if it is
    damaged, or if they have no rows, or not equally many."""
    begin = BEGIN_BYTES + len(data)
    try:
        header = json.loads(data.decode(), object_pairs_hook=without_repeats)
        tensors = {name: tensor_of(fields, begin) for name, fields in header.items() if name != "__metadata__"}
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"its header, byte {BEGIN_BYTES} to byte {begin}, is damaged: {error!r}") from None
    spans = sorted((rows.begin, rows.end) for rows in tensors.values())
    for (_, stop), (start, end) in pairwise([(begin, begin), *spans, (size, size)]):
        if not stop == start <= end:
            raise ValueError(f"a tensor, or the end of the file, was expected at byte {stop}, and is at byte {start}")
    if missing := [name for name in names or () if name not in tensors]:
        raise ValueError(f"it has no tensor {missing[0]!r}: its header, to byte {begin}, names {', '.join(tensors)}")
    found = tensors if names is None else {name: tensors[name] for name in names}
    for name, rows in found.items():
        rows.check(name)
    if len({rows.shape[0] for rows in found.values()}) > 1:
        counts = {name: rows.shape[0] for name, rows in found.items()}
        raise ValueError(f"its tensors, from byte {begin} on, differ in their numbers of rows, {counts}: give tensors=")
    return found


def tensor_of(fields: Any, begin: int) -> TensorRows:
    """Return the tensor that an entry of a header describes."""
    start, end = map(natural, fields["data_offsets"])
    return TensorRows(str(fields["dtype"]), tuple(map(natural, fields["shape"])), begin + start, begin + end)


def natural(value: Any) -> int:
    """Return a number that is not negative."""
    if type(value) is not int or value < 0:
        raise ValueError(f"a number was expected, got {value!r:.40}")
    return value


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; `ValueError` if a name is in it twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is in it twice")
    return found

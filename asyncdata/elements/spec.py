"""TensorSpec: the shape and dtype of a leaf of an element."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.promotion import unchanged
from asyncdata.elements.ragged import Ragged
from asyncdata.elements.tensors import as_array, from_array, is_tensor
from asyncdata.elements.validation import check_dtype, check_unmasked
from asyncdata.errors import PlanError, StructureError

__all__ = ("RaggedTensorSpec", "TensorSpec")

Shape: TypeAlias = Sequence[int | None]


@dataclasses.dataclass(frozen=True, init=False)
class TensorSpec:
    """Shape and dtype of one leaf, as `tf.TensorSpec`.

    >>> import asyncdata as ad
    >>> ad.TensorSpec(shape=(None, 3), dtype="float32")
    TensorSpec(shape=(None, 3), dtype=float32)
    """

    shape: tuple[int | None, ...] | None
    """Size of each dimension, `None` for any size; `None` instead of a tuple for any shape."""

    dtype: np.dtype[Any]
    """NumPy dtype; `object` for `str`, `bytes` and any other Python object."""

    def __init__(self, shape: Shape | None = None, dtype: npt.DTypeLike = np.float32) -> None:
        if shape is not None and not hasattr(shape, "__iter__"):
            raise PlanError(f"{type(self).__name__}(shape=) is a list of sizes, as {[shape]}, got {shape!r:.80}")
        object.__setattr__(self, "shape", None if shape is None else tuple(shape))
        kind = check_dtype(f"{type(self).__name__}(dtype=)", dtype)
        object.__setattr__(self, "dtype", np.dtype(object) if kind.kind in "US" else kind)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype.name})"

    def conform(self, value: Any, where: str) -> Any:
        """Return `value` with this dtype, or raise `StructureError` if it cannot have this shape and dtype."""
        if self.dtype == object and (self.shape is None or self.shape == ()):
            return value
        check_unmasked(value, where)
        try:
            if is_tensor(value):
                return self.conform_tensor(value, where)
            array = held(value, self.dtype)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise StructureError(f"{where}: expected {self}, got {value!r:.80} ({error})") from None
        if not self.fits(array.shape):
            raise StructureError(f"{where}: expected {self}, got an array of shape {array.shape}")
        return array if array.ndim or isinstance(value, np.ndarray) else array[()]

    def conform_tensor(self, tensor: Any, where: str) -> Any:
        """Return a tensor with this dtype."""
        given = as_array(tensor)
        array = np.asarray(self.conform(given, where))
        return tensor if array.dtype == given.dtype else from_array(array)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array of `shape` is allowed."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want is None or want == got for want, got in zip(self.shape, shape, strict=True)
        )

    def stacked(self, size: int | None) -> TensorSpec:
        """Return the spec of `size` of these stacked, `None` for any number."""
        return TensorSpec(None if self.shape is None else (size, *self.shape), self.dtype)

    def row(self) -> TensorSpec:
        """Return the spec of a row along the first axis."""
        return TensorSpec(self.shape[1:] if self.shape else None, self.dtype)


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class RaggedTensorSpec(TensorSpec):
    """Shape and dtype of a leaf that is a `Ragged`, as `tf.RaggedTensorSpec`: the second size is `None`.

    `ragged_rank` is the number of ragged axes, which must be one; `PlanError` for another number.

    >>> import asyncdata as ad
    >>> spec = ad.RaggedTensorSpec(shape=(None, None), dtype="int32")
    >>> list(ad.Dataset.from_generator(lambda: [[[1], [2, 3]]], output_signature=spec))
    [Ragged([[1], [2, 3]])]
    """

    def __init__(
        self, shape: Shape | None = None, dtype: npt.DTypeLike = np.float32, ragged_rank: int | None = None
    ) -> None:
        super().__init__(shape, dtype)
        if ragged_rank not in (None, 1):
            raise PlanError(f"RaggedTensorSpec: a Ragged has one ragged axis, got ragged_rank={ragged_rank!r}")
        if self.shape is not None and (len(self.shape) < 2 or self.shape[1] is not None):
            raise PlanError(f"RaggedTensorSpec: the second size of a Ragged is None, as in (3, None), got {self.shape}")

    def conform(self, value: Any, where: str) -> Any:
        """Return a `Ragged`, or a list of rows as one, with this dtype; raise `StructureError` if it does not fit."""
        try:
            ragged = value if isinstance(value, Ragged) else of_rows(value, self)
            found = Ragged(held(ragged.values, self.dtype), ragged.row_splits)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise StructureError(f"{where}: expected {self}, got {value!r:.80} ({error})") from None
        if self.shape is not None and not TensorSpec((*self.shape[:1], *self.shape[2:])).fits(sizes_of(found)):
            raise StructureError(f"{where}: expected {self}, got a Ragged of shape {found.shape}")
        return found

    def stacked(self, size: int | None) -> TensorSpec:
        """Return the spec of a batch of `size` of these: an array of objects."""
        return TensorSpec((size,), object)

    def row(self) -> TensorSpec:
        """Return the spec of a row."""
        return TensorSpec(None if self.shape is None else self.shape[1:], self.dtype)


def of_rows(rows: Any, spec: RaggedTensorSpec) -> Ragged:
    """Return rows, which are arrays or lists, as a `Ragged`."""
    if not isinstance(rows, (list, tuple, np.ndarray)):
        raise TypeError("neither a Ragged nor a list of rows")
    none = np.zeros([size or 0 for size in (spec.shape or (0, 0))[1:]], spec.dtype)
    arrays = [held(row, spec.dtype) if len(row) else none for row in cast("Sequence[Any]", rows)]
    return Ragged(np.concatenate([none, *arrays]), np.cumsum([0, *map(len, arrays)]))


def sizes_of(ragged: Ragged) -> tuple[int, ...]:
    """Return the number of rows, and the shape of an item."""
    return (len(ragged), *ragged.values.shape[1:])


REFUSES_INTEGERS: Final = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
"""Whether NumPy raises for Python integers that a dtype cannot hold; before, they wrapped around."""


def held(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return `value` as an array of a dtype; raise if a number would change by more than rounding, or if strings would
    become numbers, or other values bools."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    is_integer = kind is int and dtype.kind in "iu"
    if is_integer and not REFUSES_INTEGERS:
        value = np.asarray(value)
    elif is_integer or getattr(value, "dtype", float if kind is float else object) == dtype:
        return np.asarray(value, dtype=dtype)
    if dtype.names is not None:
        return held_record(value, dtype)
    given = np.asarray(value, object) if dtype.kind in "OT" else unchanged(value, declared=True)
    if kind is list and not given.size:
        return np.empty(given.shape, dtype)
    if kind is list and dtype.kind in "iu" and given.dtype.kind == "f":  # which may have rounded integers
        given = np.asarray(value, object)
    with np.errstate(over="raise", invalid="raise"):
        array = np.asarray(given if given.dtype.kind in "biuf" else value, dtype=dtype)
        if dtype.kind in "mM":
            check_times(*known_times(given, array))
        elif dtype.kind == "T" or dtype.type is np.void:
            check_sizes(given, array)
        elif dtype.kind != "O":
            check_held(given, array)
    return array


def held_record(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return records, or tuples of their fields in order, as `held` does for each field."""
    if isinstance(value, list):
        return np.array([held_record(one, dtype) for one in cast("list[Any]", value)], dtype)
    names = dtype.names or ()
    if isinstance(value, tuple):
        parts = dict(zip(names, cast("tuple[Any, ...]", value), strict=True))
        array = np.empty((), dtype)
    elif getattr(getattr(value, "dtype", None), "names", None) == names:
        parts = {name: value[name] for name in names}
        array = np.empty(value.shape, dtype)
    else:
        raise ValueError(f"it has no fields {[*names]}")
    for name, part in parts.items():
        array[name] = held(part, dtype[name].base)
    return array


def known_times(given: npt.NDArray[Any], array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the times that were given as strings or objects as times or counts, without those that are missing, beside
    what an array has in their places."""
    if given.dtype.kind in "OUS":
        there = np.array([one is not None for one in given.flat], bool).reshape(given.shape)
        given, array = given[there], array[there]
        counts = all(isinstance(one, (int, np.integer)) for one in given)
        given = given.astype(np.int64 if counts else array.dtype.kind + "8")
    return given, array


def check_times(given: npt.NDArray[Any], array: npt.NDArray[Any]) -> None:
    """Raise unless an array of times has those that were given, or as many units."""
    dtype, kind = array.dtype, given.dtype.kind
    back = array.astype(given.dtype if kind == dtype.kind else np.int64)
    if kind not in {"i", "u", dtype.kind} or not np.array_equal(back, given, equal_nan=kind == dtype.kind):
        raise ValueError(f"{dtype} cannot hold it")


def check_sizes(given: npt.NDArray[Any], array: npt.NDArray[Any]) -> None:
    """Raise unless an array has only the strings, or all the bytes, that were given."""
    dtype = array.dtype
    if dtype.kind == "T":
        same = all(isinstance(one, str) or one is getattr(dtype, "na_object", "") for one in given.flat)
    else:
        same = given.dtype.kind in "SV" and given.dtype.itemsize == dtype.itemsize
    if not same:
        raise ValueError(f"{dtype} cannot hold it")


def check_held(given: npt.NDArray[Any], array: npt.NDArray[Any]) -> None:
    """Raise unless an array of bools or numbers fits the declared spec."""
    dtype, kind = array.dtype, given.dtype.kind
    textual = kind in "USTmM" or (kind == "O" and any(isinstance(one, (str, bytes)) for one in given.flat))
    if textual or (dtype.kind == "b" != kind and given.size) or (kind == "c" != dtype.kind):
        raise ValueError(f"{'a string' if textual and kind not in 'mM' else given.dtype} is not {dtype}")
    if dtype.kind in "fc" and kind != "V":
        return  # NumPy raises for what they cannot hold
    if kind == "V" or dtype.kind == "V":  # numbers of ml_dtypes
        given, array = given.astype(np.float64), array.astype(np.float64)
    exact = kind == "O" or ((np.isfinite(given) == np.isfinite(array)) & (np.isnan(given) == np.isnan(array)))
    if not np.all(given == array if "int" in dtype.name else exact):
        raise ValueError(f"{dtype} cannot hold it")

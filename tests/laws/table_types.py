"""What the values of Arrow's types are, in rows and in batches: what docs/formats.md says, for the laws of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tests.reference import Misfit

pa: Any = pytest.importorskip("pyarrow")

__all__ = ("TABLE", "form", "objects", "stacked", "value_of")

TABLE = [
    (
        "`bool`, `bool8`, integers, floats with 16, 32 or 64 bits",
        "NumPy's scalar of that type",
        "array of that type",
    ),
    ("`date32`, `date64`", "`datetime64` in days, in milliseconds", "`datetime64` array"),
    (
        "`timestamp`",
        "`datetime64` in the column's unit; with a time zone the instant, in UTC. INT96 of Parquet: microseconds",
        "`datetime64` array",
    ),
    (
        "`time32`, `time64`, `duration`",
        "`timedelta64` in the column's unit; for a time of day, since midnight",
        "`timedelta64` array",
    ),
    ("`string`, `large_string`, `string_view`, `json`", "`str`", "array of objects"),
    ("`binary`, `large_binary`, `binary_view`, `fixed_size_binary`, `uuid`", "`bytes`", "array of objects"),
    ("decimals", "`decimal.Decimal`", "array of objects"),
    (
        "`fixed_size_list` of numbers or times",
        "array of one axis, and one more for each list within",
        "array with one more axis",
    ),
    ("`fixed_shape_tensor`", "array of that shape", "array with one more axis"),
    (
        "`list`, `large_list`, `list_view`, `large_list_view`",
        (
            "array of one axis; of numbers or times, and of lists of a fixed size of these, of their dtype; of all "
            "others, also lists of any length, an array of objects"
        ),
        "array with one more axis if lengths are equal, else an error: use `ragged_batch` or `padded_batch`",
    ),
    ("`fixed_size_list` of all others", "array of objects", "array of objects with one more axis"),
    (
        "`map`",
        "array of objects: a tuple of key and value for each pair, so `dict(value)` is a dict",
        "as a list",
    ),
    ("`struct`", "dict", "dict of batches"),
    ("`month_day_nano_interval`", "dict of `months`, `days` and `nanoseconds`", "dict of arrays"),
    ("`union`", "value of the type that the row has", "what its rows give"),
    (
        "`dictionary`, `run_end_encoded`, other extension types",
        "value of the type of their values, or of their storage",
        "as that type",
    ),
    ("`null`", "`None`", "array of objects"),
]
"""The table of that page: types, values in rows, and batches."""


def objects(items: Iterable[Any]) -> Any:
    """Return an array of objects of one axis, each unchanged."""
    known = [*items]
    found = np.empty(len(known), object)
    for place, item in enumerate(known):
        found[place] = item
    return found


def value_of(scalar: Any) -> Any:
    """Return the value of a scalar of pyarrow as an element has it."""
    if not scalar.is_valid:
        return None
    name = kind_name(scalar.type)
    return next((convert for names, convert in VALUES.items() if name in names.split()), plain)(scalar)


def kind_name(kind: Any) -> str:
    """Return the name of a type without its parameters."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name.removeprefix("arrow.")
    return str(kind).partition("[")[0].partition("(")[0].partition("<")[0]


def plain(scalar: Any) -> Any:
    """Texts, bytes and decimals."""
    return scalar.as_py()


def number(scalar: Any) -> Any:
    return np.dtype(scalar.type.to_pandas_dtype()).type(scalar.as_py())


def moment(scalar: Any) -> Any:
    return np.datetime64(scalar.value, {"date32": "D", "date64": "ms"}.get(kind_name(scalar.type)) or scalar.type.unit)


def span(scalar: Any) -> Any:
    return np.timedelta64(scalar.value, scalar.type.unit)


def interval(scalar: Any) -> Any:
    months, days, nanoseconds = scalar.as_py()
    return {"months": np.int32(months), "days": np.int32(days), "nanoseconds": np.int64(nanoseconds)}


def sequence(scalar: Any) -> Any:
    return listed([*map(value_of, scalar.values)], scalar.type.value_type)


def listed(items: list[Any], kind: Any) -> Any:
    """Return the items of a list as one array: of their dtype if they are numbers, all there, or arrays of numbers."""
    dtype, shape = of_numbers(kind)
    if dtype is None or any(np.shape(item) != shape for item in items):
        return objects(items)
    if shape or None not in items:
        found = [item if isinstance(item, np.ndarray) else np.array(item, dtype) for item in items]
        if any(item.dtype == object for item in found):
            found = [objects(item.reshape(-1)).reshape(shape) for item in found]
        return np.stack(found) if found else np.empty((0, *shape), dtype)
    return objects(items)


def of_numbers(kind: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the dtype and shape of values of a type that are numbers, or arrays of them; `None` for others."""
    name, shape = kind_name(kind), ()
    if name == "fixed_shape_tensor":
        axes = kind.permutation or range(len(kind.shape))
        shape = tuple(kind.shape[axis] for axis in axes)
    elif name == "fixed_size_list":
        shape = (kind.list_size,)
    if name in INTEGERS_OF_TIMES:
        return value_of(pa.array([0], INTEGERS_OF_TIMES[name]).view(kind)[0]).dtype, ()
    if name in NUMBERS.split():
        return np.dtype(kind.to_pandas_dtype()), ()
    if name == "bool8":
        return np.dtype(bool), ()
    inner = kind.storage_type if name in ("uuid", "json", "opaque") else getattr(kind, "value_type", None)
    if inner is None or not (shape or name in ("dictionary", "run_end_encoded", "opaque")):
        return None, ()
    dtype, more = of_numbers(inner)
    return dtype, (*shape, *more)


def pairs(scalar: Any) -> Any:
    return objects((value_of(pair["key"]), value_of(pair["value"])) for pair in scalar.values)


def struct(scalar: Any) -> Any:
    kind = scalar.type
    return {kind.field(place).name: value_of(scalar[place]) for place in range(kind.num_fields)}


def tensor(scalar: Any) -> Any:
    kind = scalar.type
    axes = kind.permutation or range(len(kind.shape))
    items = value_of(scalar.value)
    return items.reshape(kind.shape).transpose(*axes)


NUMBERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 halffloat float double"

INTEGERS_OF_TIMES = {"date32": "int32", "time32": "int32"} | dict.fromkeys(
    ("date64", "timestamp", "time64", "duration"), "int64"
)
"""The integers that times are stored as."""

VALUES: dict[str, Callable[[Any], Any]] = {
    NUMBERS: number,
    "date32 date64 timestamp": moment,
    "time32 time64 duration": span,
    "month_day_nano_interval": interval,
    "list large_list list_view large_list_view fixed_size_list": sequence,
    "map": pairs,
    "struct": struct,
    "fixed_shape_tensor": tensor,
    "bool8": lambda scalar: np.bool_(scalar.value.as_py()),
    "dictionary run_end_encoded union sparse_union dense_union opaque uuid json": lambda scalar: value_of(scalar.value),
}
"""How values of each kind of type are made."""


def stacked(column: list[Any]) -> Any:
    """Return what a batch is of values in turn; `Misfit` if there is none."""
    kinds = {*map(type, column)}
    if dict in kinds and len(kinds - {type(None), dict}) > 0:  # the rows of batches: a struct, and a missing one
        raise Misfit
    if type(None) in kinds:
        return objects(column)
    if kinds == {dict}:
        return {name: stacked([row[name] for row in column]) for name in column[0]}
    if kinds == {np.ndarray}:
        if len({array.shape for array in column}) > 1:
            raise Misfit
        if any(array.dtype == object for array in column):
            column = [objects([*array.reshape(-1)]).reshape(array.shape) for array in column]
        return np.stack(column)
    return np.array(column) if all(issubclass(kind, np.generic) for kind in kinds) else objects(column)


def form(value: Any) -> str:
    """Return a text that shows everything of a value: types, dtypes and shapes too."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}[{', '.join(map(form, value))}]" if value.ndim else f"0-d {value!r}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {form(part)}' for name, part in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(form, value))})"
    return f"{value.dtype} {value}" if isinstance(value, np.generic) else repr(value)

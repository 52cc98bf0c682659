"""PlainRecords: items whose fields are numbers and texts, as records that become arrays without a dict for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import chain
from keyword import iskeyword
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Required, Union, final, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import numpy.typing as npt

from asyncdata.elements.structure import objects, open_level
from asyncdata.system.optional_packages import require

__all__ = ("PlainRecords",)

NUMBERS: Final[dict[Any, Any]] = {float: np.float64, int: np.int64, bool: np.bool_}
TEXTS: Final = (str, NoneType)

Column = Callable[[list[Any]], npt.NDArray[Any]]
"""Makes an array of the values of a field; `ValueError` or `OverflowError` if `batch` does not make such an array."""


@final
class PlainRecords:
    """The records of a `TypedDict` or dataclass whose fields are numbers, texts and lists of numbers, without defaults.

    An integer has the 64 bits of an array: a larger one is no value of a record, so that its item fails alone.
    msgspec decodes and checks a record as it does a dict, in two thirds of the time. Arrays of records are equal to a
    batch of the items.
    """

    def __init__(self, kind: Any, columns: dict[str, Column], fields: dict[str, Any]) -> None:
        msgspec: Any = require("msgspec", "schema=", "'asyncdata[web]'")
        self.columns = columns
        held = [(name, fitting(of, msgspec.Meta)) for name, of in fields.items()]
        self.record: Any = msgspec.defstruct("Record", held, gc=False)
        lists = ", ".join([f"[record.{name} for record in records]" for name in fields])
        self.values: Callable[[list[Any]], tuple[list[Any], ...]] = eval(f"lambda records: ({lists},)")
        """Returns the values of each field, in two thirds of the time of `attrgetter`; the names are checked."""
        self.has_lists = any(get_origin(bare(of)) is list for of in fields.values())
        self.is_dict = is_typeddict(kind)
        convert = partial(msgspec.convert, type=list[kind], from_attributes=True)
        self.elements: Callable[[list[Any]], list[Any]] = msgspec.to_builtins if self.is_dict else convert
        """Returns the items, each a new object."""

    @staticmethod
    def of(kind: Any) -> PlainRecords | None:
        """Return the records of a type; `None` for other types."""
        fields = fields_of(kind) if isinstance(kind, type) else {}
        columns = {name: make for name, of in fields.items() if (make := column_of(bare(of))) is not None}
        plain = columns and len(columns) == len(fields) and all(map(is_name, fields))
        return PlainRecords(kind, columns, fields) if plain else None

    def arrays(self, records: list[Any]) -> Any:
        """Return the items as a structure of arrays; as an array of objects if they have lists of several lengths."""
        try:
            found = [make(values) for make, values in zip(self.columns.values(), self.values(records), strict=True)]
        except (ValueError, OverflowError):
            return objects(self.elements(records))
        if self.is_dict:
            return dict(zip(self.columns, found, strict=True))
        level = open_level(self.elements(records[:1])[0])
        return None if level is None else level.rebuild(found)


def fields_of(kind: type[Any]) -> dict[str, Any]:
    """Return the types of the fields of a type, if an item has all of them and nothing else; none for other types."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001  msgspec may know better
        return {}
    if is_typeddict(kind):
        hints = {name: get_args(of)[0] if get_origin(of) is Required else of for name, of in hints.items()}
        return hints if hints.keys() == getattr(kind, "__required_keys__", None) else {}
    if not dataclasses.is_dataclass(kind) or hasattr(kind, "__post_init__"):
        return {}
    fields = dataclasses.fields(kind)
    needed = all(one.init and one.default is one.default_factory is dataclasses.MISSING for one in fields)
    return {one.name: hints[one.name] for one in fields} if needed else {}


def bare(of: Any) -> Any:
    """Return a type without its constraints."""
    return get_args(of)[0] if get_origin(of) is Annotated else of


def fitting(of: Any, meta: Any) -> Any:
    """Return a type whose integers, also those of its lists, have at most 64 bits, beside the bounds that it has."""
    kind, *told = get_args(of) if get_origin(of) is Annotated else (of,)
    if get_origin(kind) is list:
        kind = list[fitting(get_args(kind)[0], meta)]
    elif kind is int:
        bounds = [one for one in told if isinstance(one, meta)]
        if all(one.ge is None and one.gt is None for one in bounds):
            told.append(meta(ge=-(1 << 63)))
        if all(one.le is None and one.lt is None for one in bounds):
            told.append(meta(le=(1 << 63) - 1))
    return Annotated[kind, *told] if told else kind


def is_name(name: str) -> bool:
    """Return whether a record may have a field of this name."""
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")


def column_of(of: Any) -> Column | None:
    """Return what makes the array of values of a type; `None` for other types than those of plain records."""
    if isinstance(of, type) and of in NUMBERS:
        return partial(numbers, NUMBERS[of])
    parts = get_args(of) if get_origin(of) in (Union, UnionType) else (of,)
    if all(isinstance(part, type) and (part in NUMBERS or part in TEXTS) for part in parts):
        return objects
    part = get_args(of)[0] if get_origin(of) is list else None
    return partial(rows_of_numbers, NUMBERS[part]) if isinstance(part, type) and part in NUMBERS else None


def numbers(dtype: Any, values: list[Any]) -> npt.NDArray[Any]:
    return np.fromiter(values, dtype, len(values))


def rows_of_numbers(dtype: Any, values: list[Any]) -> npt.NDArray[Any]:
    """Return lists of one length, which is not 0, as an array of two axes."""
    (length,) = set(map(len, values))
    if not length:
        raise ValueError("batch makes floats of empty lists")
    return np.fromiter(chain.from_iterable(values), dtype, len(values) * length).reshape(len(values), length)

"""Elements of a list, converted to arrays column by column."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from asyncdata.elements.isolation import isolated
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.structure import NUMBERS, PLAIN, as_arrays, common_spec, endless, spec_of
from asyncdata.errors import PlanError, StructureError
from asyncdata.graph.node import REPLACEABLE
from asyncdata.sources.random_access import InMemorySource

__all__ = ("Elements",)


@dataclass(frozen=True, eq=False)
class Elements(InMemorySource):
    """Elements of one structure and dtype, whose shapes may differ."""

    elements: Sequence[Any] = field(repr=False, metadata=REPLACEABLE)
    spec: Any = field(repr=False, metadata=REPLACEABLE)

    @staticmethod
    def of(tensors: object, *leaves: type[Any]) -> Elements:
        """Return the source for the elements of a list; the types `leaves` are not converted."""
        if not isinstance(tensors, list) or not tensors:
            raise PlanError(
                f"from_list needs a list with at least one element, got {tensors!r:.60}; use from_iterable for "
                "other iterables, and for lists of arbitrary objects"
            )
        elements = cast("list[Any]", tensors)
        try:
            return Elements(*columns_of(elements, leaves))
        except RecursionError:
            raise endless(elements[0]) from None

    def rows(self, start: int, stop: int) -> list[Any]:
        return isolated(list(self.elements[start:stop]))

    @property
    def size(self) -> int:
        return len(self.elements)

    @property
    def signature(self) -> Any:
        return self.spec

    def label(self) -> str:
        return f"from_list({len(self.elements)} elements)"


def columns_of(column: list[Any], leaves: tuple[type[Any], ...], where: str = "") -> tuple[list[Any], Any]:
    """Return values as `as_arrays` converts them, and the spec of all; numbers and strings all at once.

    See docs/design.md, "Sources of rows".
    """
    kinds = set(map(type, column))
    kind = kinds.pop()
    if not kinds and kind in NUMBERS:
        with suppress(OverflowError):
            numbers = np.fromiter(column, NUMBERS[kind], len(column))
            return list(numbers), TensorSpec((), numbers.dtype)
    if not kinds and kind in PLAIN:
        return [*column], TensorSpec((), object)
    if not kinds and kind in (tuple, dict) and column[0]:
        shapes = set[Any](map(len if kind is tuple else tuple, column))
        if len(shapes) == 1:
            return parts_of(column, kind, leaves, where)
    return converted_singly(column, leaves, where)


def parts_of(column: list[Any], kind: type[Any], leaves: tuple[type[Any], ...], where: str) -> tuple[list[Any], Any]:
    """Return tuples, or dicts of the same keys, as `columns_of` does."""
    keys = range(len(column[0])) if kind is tuple else [*column[0]]
    values = column if kind is tuple else map(dict[Any, Any].values, column)
    pairs = zip(keys, zip(*values, strict=True), strict=True)
    parts, specs = zip(*(columns_of([*part], leaves, f"{where}[{key!r}]") for key, part in pairs), strict=True)
    rows = zip(*parts, strict=True)
    if kind is tuple:
        return [*rows], specs
    return [dict(zip(value, row, strict=True)) for value, row in zip(column, rows, strict=True)], dict(
        zip(keys, specs, strict=True)
    )


def converted_singly(column: list[Any], leaves: tuple[type[Any], ...], where: str) -> tuple[list[Any], Any]:
    made = [as_arrays(value, *leaves, tensors=True, where=where) for value in column]
    spec = spec_of(made[0])
    for place, value in enumerate(made):
        try:
            spec = common_spec(spec, spec_of(value), where)
        except StructureError as error:
            raise PlanError(
                f"from_list: in element {place} {error}; make all elements alike, or use from_iterable"
            ) from None
    return made, spec

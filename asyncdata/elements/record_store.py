"""RecordStore: rows as records of a decoder, of which elements or arrays are made when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

from asyncdata.elements.column_store import LazyColumnStore
from asyncdata.elements.structure import nbytes, objects

__all__ = ("RecordStore",)


class RecordForm(Protocol):
    """Makes elements and arrays of the records of a decoder."""

    def elements(self, records: list[Any], /) -> list[Any]:
        """Return the element of each record: Python objects, to which rows of the arrays are not equal in type."""
        ...

    def arrays(self, records: list[Any], /) -> Any:
        """Return the elements as a structure of arrays."""
        ...


@final
class RecordStore(LazyColumnStore):
    """Records. Once there are elements, which users may change, arrays are made of these."""

    __slots__ = ("form", "made", "records")

    objects = True

    def __init__(self, records: list[Any], form: RecordForm, items: list[Any] | None = None) -> None:
        super().__init__(len(records), 0, lambda: form.elements(records), lambda: form.arrays(records))
        self.records = records
        self.form = form
        self.items = items
        del self.weight  # it is found when it is needed

    def __getattr__(self, name: str) -> Any:
        if name == "value" and self.items is not None:
            self.value = objects(self.items)
            return self.value
        if name == "weight":
            self.weight = nbytes(self.form.elements(self.records[:1])[0])
            return self.weight
        return super().__getattr__(name)

    def at(self, places: Sequence[int]) -> RecordStore:
        items = None if self.items is None else [self.items[place] for place in places]
        return RecordStore([self.records[place] for place in places], self.form, items)

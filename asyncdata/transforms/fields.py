"""Fields: the parts of elements that a user declares a function to read, or not to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from asyncdata.errors import PlanError

__all__ = ("Field", "Fields", "check_fields", "fields_of", "shown")

Field: TypeAlias = str | int
"""A key of a dict, or a place in a tuple."""

Fields: TypeAlias = tuple[Field, ...]


def fields_of(method: str, name: str, value: Any) -> Fields:
    """Return one field or several as a tuple; `PlanError` if they are neither keys nor places."""
    fields = cast("tuple[Any, ...]", value if type(value) is tuple else (value,))
    for field in fields:
        if not isinstance(field, str) and (type(field) is not int or field < 0):
            raise PlanError(
                f"{method}({name}=) must be a field of the elements, or a tuple of them, a key of a dict or a place in "
                f"a tuple (from 0), got {value!r:.80}"
            )
    if not fields or len(set(fields)) < len(fields):
        raise PlanError(f"{method}({name}=) must name at least one field, and each of them once, got {value!r:.80}")
    return fields


def check_fields(method: str, name: str, fields: Fields, signature: Any) -> None:
    """Raise `PlanError` if elements have no such fields, if their structure is known."""
    if signature is None:
        return
    known: list[Any] = []
    if isinstance(signature, Mapping):
        known = [*cast("Mapping[Any, Any]", signature)]
    elif isinstance(signature, (tuple, list)):
        known = [*range(len(cast("list[Any]", signature)))]
    for field in fields:
        if field not in known:
            hint = f"their fields are {', '.join(map(repr, known))}" if known else f"elements are {signature}"
            raise PlanError(f"{method}({name}={shown(fields)}): elements have no field {field!r}; {hint}")


def shown(fields: Fields) -> str:
    """Return fields as they are written in a call."""
    return repr(fields[0] if len(fields) == 1 else fields)

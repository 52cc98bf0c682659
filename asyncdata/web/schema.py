"""Schema: the declared type of the items of a channel, by which they are checked and made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Protocol, final

from asyncdata.errors import PlanError
from asyncdata.system.optional_packages import require
from asyncdata.web.plain_records import PlainRecords

__all__ = ("Detail", "MismatchError", "Schema", "schema_for")

Detail = dict[str, Any]
"""What is wrong with one field, as FastAPI says it: `loc`, `msg` and `type`."""

WHERE: Final = re.compile(r" - at (?:key in )?`\$(.*)`$")
STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
MISSING: Final = re.compile(r"missing required field `(.*?)`")


class MismatchError(ValueError):
    """An item that is no value of the declared type; `details` says of each field what is wrong."""

    def __init__(self, details: list[Detail]) -> None:
        self.details = details
        super().__init__("; ".join(map(words, details)))


def words(detail: Detail) -> str:
    place = ".".join(map(str, detail["loc"]))
    return f"{place}: {detail['msg']}" if place else str(detail["msg"])


class Reader(Protocol):
    """Makes items of one type."""

    @property
    def lines(self) -> Callable[[bytes], list[Any]] | None:
        """What makes the items of some lines of JSON at once, if there is such a function."""
        ...

    @property
    def arrays(self) -> Mapping[str, Callable[[bytes], list[Any]]]:
        """What makes the items of an array at once, by the format."""
        ...

    def decode(self, form: str, data: bytes) -> Any:
        """Return the item in the bytes of one value of JSON or MessagePack; `ValueError` if they are malformed."""
        ...

    def convert(self, value: Any) -> Any:
        """Return the item that a Python object is."""
        ...


@final
class Schema:
    """Makes items of a declared type from bytes or objects; `MismatchError` for what is none.

    Types with pydantic's validators are checked by pydantic, others by msgspec, which does not convert text to numbers.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        by_pydantic = hasattr(kind, "__pydantic_validator__") or hasattr(kind, "__pydantic_core_schema__")
        self.records = None if by_pydantic else PlainRecords.of(kind)
        """What `decode` and `lines` make items of: they return records, if it is not `None`."""
        self.reader: Reader = PydanticReader(kind) if by_pydantic else MsgspecReader(kind, self.records)
        self.lines: Callable[[bytes], list[Any]] | None = self.reader.lines
        """Makes the items of some lines at once, quicker than one by one; its errors do not name the line."""
        self.arrays: Mapping[str, Callable[[bytes], list[Any]]] = self.reader.arrays
        """By the format, what makes the items of an array at once; its errors do not name the element."""

    def __reduce__(self) -> Any:
        return schema_for, ("from_channel", self.kind)

    def decode(self, form: str, data: bytes) -> Any:
        """Return the item in the bytes of one value of JSON or MessagePack, or its record."""
        return self.reader.decode(form, data)

    def convert(self, value: Any) -> Any:
        """Return the item that a Python object is, itself if it is one already."""
        if isinstance(self.kind, type) and type(value) is self.kind:
            return value
        return self.reader.convert(value)


@final
class MsgspecReader:
    """Of Structs, dataclasses, TypedDicts, attrs classes, named tuples and the types that annotations are made of."""

    def __init__(self, kind: Any, records: PlainRecords | None) -> None:
        self.kind = kind
        self.msgspec: Any = require("msgspec", "schema=", "'asyncdata[web]'")
        forms = {form: require(f"msgspec.{form}", "schema=", "'asyncdata[web]'") for form in ("json", "msgpack")}
        made = kind if records is None else records.record
        self.decoders = {form: module.Decoder(made) for form, module in forms.items()}
        self.arrays: Mapping[str, Callable[[bytes], list[Any]]] = {
            form: module.Decoder(list[made]).decode for form, module in forms.items()
        }
        self.lines: Callable[[bytes], list[Any]] | None = self.decoders["json"].decode_lines

    def decode(self, form: str, data: bytes) -> Any:
        try:
            return self.decoders[form].decode(data)
        except self.msgspec.ValidationError as error:
            raise MismatchError([detail_of(str(error))]) from None

    def convert(self, value: Any) -> Any:
        try:
            return self.msgspec.convert(value, self.kind, from_attributes=True)
        except self.msgspec.ValidationError as error:
            raise MismatchError([detail_of(str(error))]) from None


def detail_of(text: str) -> Detail:
    """Return what a message of msgspec says, and of which field."""
    where, missing = WHERE.search(text), MISSING.search(text)
    steps = STEP.findall(where[1]) if where else []
    place: list[str | int] = [name or (int(index) if index.isdecimal() else index) for name, index in steps]
    if missing:
        place.append(missing[1])
    return {"loc": place, "msg": WHERE.sub("", text), "type": "missing" if missing else "invalid"}


@final
class PydanticReader:
    """Of models and dataclasses of pydantic."""

    def __init__(self, kind: Any) -> None:
        pydantic = require("pydantic", "schema=", "pydantic")
        self.error: type[Exception] = pydantic.ValidationError
        self.adapter: Any = pydantic.TypeAdapter(kind)
        self.lines: Callable[[bytes], list[Any]] | None = None
        self.arrays: Mapping[str, Callable[[bytes], list[Any]]] = {}

    def decode(self, form: str, data: bytes) -> Any:
        decoder = require(f"msgspec.{form}", "schema=", "'asyncdata[web]'").decode
        value = decoder(data)  # pydantic would take NaN, which is no JSON
        try:
            return self.adapter.validate_json(data) if form == "json" else self.adapter.validate_python(value)
        except self.error as error:
            raise MismatchError(details_of(error)) from None

    def convert(self, value: Any) -> Any:
        try:
            return self.adapter.validate_python(value)
        except self.error as error:
            raise MismatchError(details_of(error)) from None


def details_of(error: Any) -> list[Detail]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{"loc": list(one["loc"]), "msg": one["msg"], "type": one["type"]} for one in found]


@cache
def known(kind: Any) -> Schema:
    return Schema(kind)


def schema_for(method: str, kind: Any) -> Schema | None:
    """Return the schema of a type; `PlanError` for what is no type of items."""
    if kind is None:
        return None
    try:
        return known(kind)
    except Exception as error:  # whatever a type's own code raises
        if isinstance(error, ImportError):
            raise
        raise PlanError(
            f"{method}(schema=) must be a pydantic model, a msgspec Struct, a dataclass, a TypedDict or another type "
            f"of items, got {kind!r:.80}: {error}"
        ) from None

"""Bodies of requests in, items out: JSON, JSON lines, MessagePack and plain bytes, without I/O."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeAlias, cast

from asyncdata.runtime.block import Failure
from asyncdata.system.optional_packages import require
from asyncdata.web.schema import Detail, MismatchError, Schema

__all__ = ("BodyDecoder", "BodyError", "Decode", "InvalidItemError", "UndecodableError", "elements_of", "format_of")

Decode: TypeAlias = Callable[[bytes], Any]
"""Makes an item from bytes: from a line of NDJSON, otherwise from the complete body."""

FORMATS: Final = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    "application/octet-stream": "bytes",
}

LINE: Final = re.compile(rb"\S[^\n]*")
"""A line that is not blank, from its first character on."""

BYTE: Final = re.compile(r" ?\(byte (\d+)\)")

TRAILING: Final = "JSON is malformed: trailing characters"

COMPRESSED: Final = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
"""How compressed bodies begin."""

MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How texts of other programs begin, which JSON must not (RFC 8259, 8.1)."""


class BodyError(ValueError):
    """A body that is refused, with the status of the reply, and the number of the wrong line if the body has lines."""

    def __init__(self, status: int, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.line = line


class UndecodableError(BodyError):
    """A body that the user's function did not decode. The text of its error is for the server's log."""

    def __init__(self, error: Exception, line: int | None) -> None:
        place = "" if line is None else f"line {line}: "
        super().__init__(400, f"{place}{type(error).__name__}: {error}", line)
        self.reply = f"{place}the server's decode= cannot decode it"


class InvalidItemError(BodyError):
    """An item that is no value of the declared type, the one at `place` of its body; `details` names the fields."""

    def __init__(self, error: MismatchError, place: int, line: int | None) -> None:
        where = f"item {place}" if line is None else f"line {line}"
        super().__init__(422, f"{where}: {error}", line)
        self.details: list[Detail] = [{**one, "loc": ["body", place, *one["loc"]]} for one in error.details]


@lru_cache(maxsize=64)
def format_of(content_type: str) -> str:
    """Return the format of a body by its content type; `BodyError` for an unknown one."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in FORMATS:
        raise BodyError(415, f"Content-Type must be one of {', '.join(FORMATS)}, got {kind or 'none'}")
    return FORMATS[kind]


class BodyDecoder:
    """Decodes a body as it arrives: lines at once, anything else when it is complete.

    `decode` makes an item from its bytes. Without it an item is a value of JSON or MessagePack, of the declared type if
    there is a schema, or its record, and a body that is an array has one item for each element. With
    `failures_in_place` an item that cannot be made is a failure in its place, and does not refuse the others.
    """

    def __init__(
        self,
        form: str,
        decode: Decode | Schema | None,
        max_body_bytes: int,
        max_item_bytes: int,
        *,
        failures_in_place: bool = False,
    ) -> None:
        self.form = form
        self.decode = decode
        self.max_body_bytes = max_body_bytes
        self.max_item_bytes = max_item_bytes
        self.failures_in_place = failures_in_place
        self.size = 0
        self.lines = 0
        self.rest: list[bytes] = []
        self.waiting = 0
        self.items: list[Any] = []

    def feed(self, data: bytes) -> None:
        """Decode the next bytes; `BodyError` as soon as they are wrong or too many."""
        self.size += len(data)
        if self.size > self.max_body_bytes:
            raise BodyError(413, f"the body has more than {self.max_body_bytes} bytes; send it in parts")
        end = data.rfind(b"\n") + 1 if self.form == "ndjson" else 0
        if end:
            self.rest.append(data[:end])
            complete_lines, data = b"".join(self.rest), data[end:]
            self.rest, self.waiting = [], 0
            self.take_lines(complete_lines)
        if data:
            self.rest.append(data)
            self.waiting += len(data)
            if self.waiting > self.max_item_bytes and self.form in ("ndjson", "bytes"):
                raise self.too_long(self.lines + 1)

    def finish(self) -> list[Any]:
        """Return the items of the complete body."""
        body = b"".join(self.rest)
        if self.form == "ndjson":
            self.take_lines(body)
            return self.items
        if isinstance(self.decode, Schema):
            return self.typed_items(body, self.decode)
        if self.decode is not None or self.form == "bytes":
            if len(body) > self.max_item_bytes:
                raise self.too_long(1)
            return [body if self.decode is None else self.call_decode(body, None)]
        if len(body) > self.max_item_bytes:
            self.check_elements(body)
        found = self.parsed(body)
        return cast("list[Any]", found) if isinstance(found, list) else [found]

    def whole(self, body: bytes) -> list[Any]:
        """Return the items of a body that is there completely."""
        self.feed(body)
        return self.finish()

    def take_lines(self, data: bytes) -> None:
        """Add the items of complete lines."""
        count = data.count(b"\n")
        lines = json_lines if self.decode is None else self.decode.lines if isinstance(self.decode, Schema) else None
        if lines is not None and len(data) <= self.max_item_bytes:
            try:
                found: list[Any] | None = lines(data)
            except Exception:  # noqa: BLE001  also of a type's own code; the code below names the line
                found = None
            if found is not None and len(found) == count + (not data.endswith(b"\n")):  # none is blank
                self.items += found
                self.lines += count
                return
        before, counted = self.lines, 0
        for line in LINE.finditer(data):
            self.lines += data.count(b"\n", counted, line.start())
            counted = line.start()
            self.items.append(self.item(self.one_line, line[0].rstrip(), self.lines + 1))
        self.lines = before + count

    def typed_items(self, body: bytes, schema: Schema) -> list[Any]:
        """Return the items of a body of JSON or MessagePack, each of the declared type."""
        if self.form == "bytes":
            raise BodyError(415, "items of a declared type are sent as JSON, NDJSON or MessagePack, got bytes")
        if len(body) > self.max_item_bytes:
            self.check_elements(body)
        if self.form in schema.arrays:
            with suppress(Exception):  # the code below names the element, or there is one item alone
                return schema.arrays[self.form](body)
        elements = elements_of(self.form, body)
        self.items = []
        for element in [body] if elements is None else elements:
            self.items.append(self.item(partial(self.typed, schema), element, None))
        return self.items

    def typed(self, schema: Schema, data: bytes, line: int | None) -> Any:
        """Return the item of the declared type that some bytes are."""
        try:
            return schema.decode("msgpack" if self.form == "msgpack" else "json", data)
        except MismatchError as error:
            raise InvalidItemError(error, len(self.items), line) from None
        except (ValueError, RecursionError) as error:
            raise malformed(error, line, data) from None
        except Exception as error:  # of a validator of the user's
            raise UndecodableError(error, line) from error

    def item(self, make: Callable[[bytes, int | None], Any], data: bytes, line: int | None) -> Any:
        """Return an item; a failure in its place if it cannot be made and that does not refuse the body."""
        try:
            return make(data, line)
        except Exception as error:
            if not self.failures_in_place:
                raise
            return Failure(error)

    def one_line(self, line: bytes, number: int | None) -> Any:
        if len(line) > self.max_item_bytes:
            raise self.too_long(number or 1)
        if isinstance(self.decode, Schema):
            return self.typed(self.decode, line, number)
        if self.decode is not None:
            return self.call_decode(line, number)
        try:
            return json_decoder().decode(line)
        except (ValueError, RecursionError) as error:
            raise malformed(error, number, line) from None

    def call_decode(self, data: bytes, line: int | None) -> Any:
        """Return what the user's function makes from some bytes."""
        try:
            return cast("Decode", self.decode)(data)
        except Exception as error:
            raise UndecodableError(error, line) from error

    def parsed(self, body: bytes) -> Any:
        """Return the value of a body of JSON or MessagePack."""
        decoder = json_decoder() if self.form == "json" else msgpack_decoder()
        try:
            return decoder.decode(body)
        except (ValueError, RecursionError) as error:
            raise malformed_body(self.form, body, error) from None

    def check_elements(self, body: bytes) -> None:
        """Raise if an element of an array of JSON or MessagePack is too long, or the body is no array."""
        try:
            elements: list[Any] = element_decoder(self.form).decode(body)
        except (ValueError, RecursionError) as error:
            if isinstance(error, require("msgspec", "JSON of a channel", "'asyncdata[web]'").ValidationError):
                raise self.too_long(1) from None
            return  # what is malformed is found where it is parsed
        if any(len(memoryview(element)) > self.max_item_bytes for element in elements):
            raise self.too_long(1)

    def too_long(self, number: int) -> BodyError:
        """Return the error for an item that is too long, in the line of this number if there are lines."""
        line = number if self.form == "ndjson" else None
        where = "the item" if line is None else f"line {line}"
        return BodyError(413, f"{where} has more than {self.max_item_bytes} bytes", line)


def malformed(error: Exception, line: int | None, data: bytes) -> BodyError:
    """Return the error for a line or an element that is no JSON or MessagePack."""
    if line is None:
        return BodyError(400, f"{error}{cure_of(data, error)}")
    column = BYTE.search(str(error))
    where = f" at byte {column[1]} of the line" if column else ""
    return BodyError(400, f"line {line}: {BYTE.sub('', str(error))}{where}{cure_of(data, error)}", line)


def cure_of(data: bytes, error: Exception) -> str:
    """Say what a request lacks, if its bytes tell."""
    if TRAILING in str(error) and b"\n" in data.strip():
        return "; values on a line each are application/x-ndjson"
    if data.startswith(MARKS) and "JSON" in str(error):
        return "; it begins with a byte order mark: send UTF-8 without it"
    name = next((name for name, magic in COMPRESSED.items() if data.startswith(magic)), None)
    return f"; it begins as {name} does: say so by Content-Encoding: {name}" if name else ""


def elements_of(form: str, body: bytes) -> list[bytes] | None:
    """Return the bytes of each element of an array of JSON or MessagePack; `None` if the body is no array.

    `BodyError` if it is malformed.
    """
    try:
        return list(map(bytes, element_decoder(form).decode(body)))
    except (ValueError, RecursionError) as error:
        if isinstance(error, require("msgspec", "JSON of a channel", "'asyncdata[web]'").ValidationError):
            return None
        raise malformed_body(form, body, error) from None


def malformed_body(form: str, body: bytes, error: Exception) -> BodyError:
    """Return the error for a body that is no JSON or MessagePack."""
    column = BYTE.search(str(error))
    line = body.count(b"\n", 0, int(column[1])) + 1 if column and form == "json" else None
    return BodyError(400, f"{error}{cure_of(body, error)}", line)


def json_lines(data: bytes) -> list[Any]:
    return json_decoder().decode_lines(data)


@cache
def json_decoder() -> Any:
    return require("msgspec.json", "JSON of a channel", "'asyncdata[web]'").Decoder()


@cache
def msgpack_decoder() -> Any:
    return require("msgspec.msgpack", "MessagePack of a channel", "'asyncdata[web]'").Decoder()


@cache
def element_decoder(form: str) -> Any:
    """Return what finds the elements of an array and does not parse them."""
    raw = require("msgspec", "JSON of a channel", "'asyncdata[web]'").Raw
    return require(f"msgspec.{form}", "JSON of a channel", "'asyncdata[web]'").Decoder(list[raw])

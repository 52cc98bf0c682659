"""Bodies of requests in, items out: JSON, JSON lines, MessagePack and plain bytes, without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias, cast

from asyncdata.runtime.optional_packages import require

__all__ = ("BodyDecoder", "BodyError", "Decode", "UndecodableError", "format_of")

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


def format_of(content_type: str) -> str:
    """Return the format of a body by its content type; `BodyError` for an unknown one."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in FORMATS:
        raise BodyError(415, f"Content-Type must be one of {', '.join(FORMATS)}, got {kind or 'none'}")
    return FORMATS[kind]


class BodyDecoder:
    """Decodes a body as it arrives: lines at once, anything else when it is complete.

    `decode` makes an item from its bytes. Without it an item is a value of JSON or MessagePack, and a body that is an
    array has one item for each element.
    """

    def __init__(self, form: str, decode: Decode | None, max_body_bytes: int, max_item_bytes: int) -> None:
        self.form = form
        self.decode = decode
        self.max_body_bytes = max_body_bytes
        self.max_item_bytes = max_item_bytes
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
        if self.decode is not None or self.form == "bytes":
            if len(body) > self.max_item_bytes:
                raise self.too_long(1)
            return [body if self.decode is None else self.made(body, None)]
        if len(body) > self.max_item_bytes:
            self.check_elements(body)
        found = self.parsed(body)
        return cast("list[Any]", found) if isinstance(found, list) else [found]

    def take_lines(self, data: bytes) -> None:
        """Add the items of complete lines."""
        count = data.count(b"\n")
        if self.decode is None and len(data) <= self.max_item_bytes:
            try:
                found: list[Any] | None = json_decoder().decode_lines(data)
            except (ValueError, RecursionError):  # the code below names the line
                found = None
            if found is not None and len(found) == count:
                self.items += found
                self.lines += count
                return
        before, counted = self.lines, 0
        for line in LINE.finditer(data):
            self.lines += data.count(b"\n", counted, line.start())
            counted = line.start()
            self.items.append(self.one_line(line[0].rstrip(), self.lines + 1))
        self.lines = before + count

    def one_line(self, line: bytes, number: int) -> Any:
        if len(line) > self.max_item_bytes:
            raise self.too_long(number)
        if self.decode is not None:
            return self.made(line, number)
        try:
            return json_decoder().decode(line)
        except (ValueError, RecursionError) as error:
            column = BYTE.search(str(error))
            where = f" at byte {column[1]} of the line" if column else ""
            raise BodyError(400, f"line {number}: {BYTE.sub('', str(error))}{where}", number) from None

    def made(self, data: bytes, line: int | None) -> Any:
        """Return what the user's function makes from some bytes."""
        try:
            return None if self.decode is None else self.decode(data)
        except Exception as error:
            raise UndecodableError(error, line) from error

    def parsed(self, body: bytes) -> Any:
        """Return the value of a body of JSON or MessagePack."""
        decoder = json_decoder() if self.form == "json" else msgpack_decoder()
        try:
            return decoder.decode(body)
        except (ValueError, RecursionError) as error:
            column = BYTE.search(str(error))
            line = body.count(b"\n", 0, int(column[1])) + 1 if column and self.form == "json" else None
            raise BodyError(400, str(error), line) from None

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
        where = "an item" if line is None else f"line {line}"
        return BodyError(413, f"{where} has more than {self.max_item_bytes} bytes", line)


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

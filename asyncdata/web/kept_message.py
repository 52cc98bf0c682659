"""KeptMessage: a message of a queue or stream with what a dead letter of it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from asyncdata.runtime.block import Failure
from asyncdata.system.optional_packages import require

__all__ = ("CONTENT_TYPES", "KeptMessage", "Request", "kept_data")

CONTENT_TYPES: Final = {
    "bytes": "application/octet-stream",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "msgpack": "application/msgpack",
}


class Request(NamedTuple):
    """The body of a request that has one item alone, and its type."""

    content_type: str
    body: bytes


class KeptMessage(NamedTuple):
    """A message, and the element that was made of it, or the `Failure` if none could be made."""

    source: str
    """The name of the queue, or the address of the stream."""
    place: str
    """Its partition and offset, or its ID or number."""
    form: str
    """Of `content`: `bytes`, `json`, or `msgpack` for a dict that is encoded when it is needed."""
    content: Any
    element: Any
    channel: str = ""
    """That of an item of a durable channel, where this is none."""

    @property
    def id(self) -> str:
        """Its name in the dead letters."""
        return f"{self.source}:{self.place}"

    def __str__(self) -> str:
        return f"message {self.id}"

    def request(self) -> Request:
        """Return the request that sends it to a durable channel, from which it comes as the queue gave it."""
        if self.form == "msgpack":
            return Request(CONTENT_TYPES["msgpack"], b"\x91" + packed(self.content))
        return Request(CONTENT_TYPES[self.form], b"[%b]" % self.content if self.form == "json" else self.content)


def packed(content: Any) -> bytes:
    """Return a dict or list of bytes as MessagePack; names that are no text become bytes."""
    encode = require("msgspec.msgpack", "Consumer(on_error='dead-letter')", "'asyncdata[web]'").encode
    try:
        return encode(content)
    except UnicodeEncodeError:
        return encode({name.encode(errors="surrogateescape"): value for name, value in content.items()})


def kept_data(source: str, place: str, data: bytes, decode: Callable[[bytes], Any], form: str) -> KeptMessage:
    """Return what a stream sent, and the element that `decode` makes of it; what cannot be decoded is kept as bytes."""
    try:
        return KeptMessage(source, place, form, data, decode(data))
    except Exception as error:  # noqa: BLE001  of the user's function, or of JSON
        return KeptMessage(source, place, "bytes", data, Failure(error))

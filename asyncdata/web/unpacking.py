"""Compressed bodies of requests: they are unpacked as they come, and what is wrong with them is a reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from asyncdata.errors import DataLossError, MissingDependencyError
from asyncdata.web.content_encoding import ContentDecoder, accepted_encodings
from asyncdata.web.decoding import BodyError

__all__ = ("EncodingError", "Unpacker", "unpacker_for")

SLICE: Final = 1 << 14
"""Compressed bytes that are unpacked at once, to 16 MiB at most: so little is unpacked beyond a limit."""


class EncodingError(BodyError):
    """A `Content-Encoding` that is not read: the reply has those that are, in `Accept-Encoding` (RFC 9110, 15.5.16)."""

    def __init__(self, encoding: str) -> None:
        self.accepted = accepted_encodings()
        super().__init__(415, f"Content-Encoding must be one of {self.accepted}, and only one, got {encoding!r:.80}")


@final
class Unpacker:
    """Unpacks a body of one encoding."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        try:
            self.content = ContentDecoder(encoding, f"the body with Content-Encoding: {encoding}")
        except (ValueError, MissingDependencyError):
            raise EncodingError(encoding) from None
        self.max_bytes = max_bytes
        self.size = 0
        """How many compressed bytes came."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes are unpacked, in pieces; `BodyError` for damage, and for compression that adds."""
        self.size += len(data)
        if self.size > self.max_bytes:  # of parts that are empty when they are unpacked
            raise BodyError(413, f"the body has more than {self.max_bytes} bytes; send it in parts")
        try:
            for start in range(0, len(data), SLICE):
                yield from map(bytes, self.content.feed(data[start : start + SLICE]))
        except DataLossError as error:
            raise BodyError(400, str(error)) from None

    def finish(self) -> None:
        """Raise `BodyError` if the body ends too early."""
        try:
            self.content.finish()
        except DataLossError as error:
            raise BodyError(400, str(error)) from None


def unpacker_for(encoding: str, max_bytes: int) -> Unpacker | None:
    """Return what unpacks a body with this `Content-Encoding`; `None` if it is not compressed."""
    if not encoding:
        return None
    names = [name for one in encoding.split(",") if (name := one.strip().lower()) not in ("", "identity")]
    if len(names) > 1:
        raise EncodingError(encoding)
    return Unpacker(names[0], max_bytes) if names else None

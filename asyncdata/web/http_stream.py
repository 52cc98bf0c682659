"""HTTP streams of other services: server-sent events, which resume where they were, and NDJSON."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from operator import index
from secrets import token_hex
from typing import Any, Final, Protocol, Self, final
from zlib import crc32

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.redaction import redacted
from asyncdata.system.optional_packages import require
from asyncdata.web.content_encoding import ContentDecoder, accepted_encodings
from asyncdata.web.decoding import Decode, json_decoder
from asyncdata.web.kept_message import KeptMessage, kept_data
from asyncdata.web.reconnecting import RETRIED_STATUSES, Reconnecting
from asyncdata.web.server_sent_events import Event, EventParser

__all__ = ("HttpStream",)

EVENTS: Final = "text/event-stream"
LINES: Final = ("application/x-ndjson", "application/jsonl", "application/json")

ITEM_BYTES: Final = 16 << 20
MOST_REDIRECTS: Final = 20

MOST_DIGESTS: Final = 256
"""How many events without an id are known by their content; those after them are counted only."""


@dataclass(frozen=True)
class HttpStream:
    """The items of a URL; each iteration connects anew."""

    url: str
    decode: Decode | None
    headers: Mapping[str, str]
    idle_seconds: float
    give_up_seconds: float
    keep: bool = False
    """Whether it gives events and lines as they are kept."""

    def __aiter__(self) -> HttpStreamReader:
        return HttpStreamReader(self)


class Parser(Protocol):
    """Makes events from bytes."""

    def feed(self, data: bytes) -> list[Event]: ...


@final
class LineParser:
    """Makes an event without an id from each line of NDJSON."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[Event]:
        """Return the lines that the next bytes complete; `DataLossError` after them if the next one is too long."""
        self.check_size()
        *lines, self.rest = (self.rest + data).split(b"\n")
        found = [Event(line, "", False) for line in map(bytes.strip, lines) if line]
        if not found:
            self.check_size()
        return found

    def check_size(self) -> None:
        if len(self.rest) > ITEM_BYTES:
            raise DataLossError(f"a line has more than {ITEM_BYTES} bytes")


@final
class Given:
    """Where a stream is: the id of the last event that had one, and which events without an id came after it.

    A server that stores those too sends them again, and they are known by their content. What else comes is new: a
    server that only stores events with ids sends other ones, such as pings.
    """

    def __init__(self) -> None:
        self.id = ""
        self.since = 0
        self.digests = ""
        """Of the first of the events without an id, 8 digits each."""
        self.repeated = 0
        """How many of the events without an id have come again."""
        self.repeating = False

    def add(self, event: Event) -> None:
        """Record that an event was given."""
        if event.is_marked:
            self.id, self.since, self.digests = event.id, 0, ""
            return
        self.since += 1
        if self.id and self.since <= MOST_DIGESTS:
            self.digests += digest_of(event)

    def begin_again(self) -> None:
        """Expect the events without an id again, as the server is asked for what comes after the id."""
        self.repeated, self.repeating = 0, bool(self.id)

    def is_new(self, event: Event) -> bool:
        """Return whether an event was not given before."""
        at = 8 * self.repeated
        known = self.digests[at : at + 8]
        self.repeating = (
            self.repeating and not event.is_marked and self.repeated < self.since and known in ("", digest_of(event))
        )
        self.repeated += self.repeating
        return not self.repeating


def digest_of(event: Event) -> str:
    return f"{crc32(event.data or b''):08x}"


@final
class HttpStreamReader:
    """Reads a stream and reconnects when it breaks. Its state is what was `Given`."""

    def __init__(self, stream: HttpStream) -> None:
        self.stream = stream
        self.decode: Decode = json_decoder().decode if stream.decode is None else stream.decode
        self.address = redacted(stream.url).partition("?")[0]
        self.name = f"from_http_stream({self.address})"
        self.token = token_hex(4)
        """Distinguishes what has no id from that of other readers."""
        self.again = Reconnecting(self.name, stream.give_up_seconds)
        self.given = Given()
        self.parser: Parser | None = None
        self.client: Any = None
        self.response: Any = None
        self.chunks: AsyncIterator[bytes] | None = None
        self.decoder = ContentDecoder("", self.name)
        self.pieces: Iterator[Any] = iter(())
        """The rest of the last chunk, decompressed."""
        self.ready: deque[Event] = deque()
        self.ended = False

    def __aiter__(self) -> Self:
        return self

    def state_dict(self) -> dict[str, Any]:
        given = self.given
        found: dict[str, Any] = {"id": given.id, "since": given.since, "digests": given.digests}
        return {name: value for name, value in found.items() if value}

    def state_text(self) -> str:
        """Return the state as JSON."""
        given = self.given
        return (
            json.dumps(self.state_dict())
            if given.since or not given.id
            else f'{{"id": {encode_basestring_ascii(given.id)}}}'
        )

    @property
    def has_id(self) -> bool:
        """Whether there is an id from which it can resume."""
        return bool(self.given.id)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        given = self.given
        given.id, given.since = str(state.get("id", "")), index(state.get("since", 0))
        given.digests = str(state.get("digests", ""))
        if state and not given.id:
            raise ResumeError(
                "no event had an id when the state was saved, so the stream cannot resume; start without the state"
            )

    async def __anext__(self) -> Any:
        while True:
            while not self.ready:
                if self.ended:
                    await self.aclose()
                    raise StopAsyncIteration
                await self.read()
            event = self.ready.popleft()
            self.given.add(event)
            if event.data is not None:  # others only move the id
                return self.kept(event.data) if self.stream.keep else self.decode(event.data)

    def kept(self, data: bytes) -> KeptMessage:
        """Return the data of an event or line as it is kept."""
        given = self.given
        place = f"{given.id}+{given.since}" if given.since else given.id
        return kept_data(
            self.address,
            place if given.id else f"{self.token}-{given.since}",
            data,
            self.decode,
            "json" if self.stream.decode is None else "bytes",
        )

    async def read(self) -> None:
        """Read what comes next; connect before that, and again if the stream breaks. Any error is the end."""
        httpx = require("httpx", "from_http_stream", "'asyncdata[web]'")
        self.ended = True
        try:
            await (self.connect(httpx) if self.chunks is None else self.read_from(self.chunks))
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:  # the same would happen again
            raise ConnectionError(f"{self.name}: {error}") from error
        except httpx.TransportError as error:
            await self.broken(ConnectionError(f"{self.name}: {type(error).__name__}: {error}"))

    async def read_from(self, chunks: AsyncIterator[bytes]) -> None:
        """Read the next piece of the body."""
        piece = next(self.pieces, None)
        if piece is None:
            data = await anext(chunks, None)
            if data is None:
                await self.over()
                return
            self.pieces = self.decoder.feed(data)
        elif self.parser is not None:
            self.take(self.parser.feed(bytes(piece)))
        self.ended = False

    def take(self, events: list[Event]) -> None:
        """Queue the events that were not given before."""
        self.again.heard()
        if isinstance(self.parser, EventParser) and self.parser.retry is not None:
            self.again.first = self.parser.retry
        new = [event for event in events if self.given.is_new(event)] if self.given.repeating else events
        if any(event.data is not None for event in new):
            self.again.received()
        self.ready += new

    async def connect(self, httpx: Any) -> None:
        """Request the stream, from the last id on."""
        if self.client is None:
            self.client = httpx.AsyncClient(timeout=httpx.Timeout(30.0, read=self.stream.idle_seconds))
        self.response = await self.ask(self.client)
        status = self.response.status_code
        if status in RETRIED_STATUSES:
            await self.broken(ConnectionError(f"{self.name}: the server answered {status}"))
        elif status == 204:
            return
        elif status != 200:
            raise ConnectionError(f"{self.name}: the server answered {status} {self.response.reason_phrase}")
        else:
            self.begin(self.response.headers)
            self.ended = False

    async def ask(self, client: Any) -> Any:
        """Send the request, follow redirects, and return the response without its body.

        The user's headers, which may have secrets, go to the host of the URL alone.
        """
        own = {"accept": f"{EVENTS}, {LINES[0]}", "accept-encoding": accepted_encodings(), "cache-control": "no-store"}
        users = {name.lower(): value for name, value in self.stream.headers.items()}
        if self.given.id:
            own["last-event-id"] = users["last-event-id"] = self.given.id.strip(" \t")
        request = client.build_request("GET", self.stream.url, headers=encoded({**own, **users}))
        first = request.url
        for _ in range(MOST_REDIRECTS + 1):
            response = await client.send(request, stream=True)
            request = response.next_request
            if request is None:
                return response
            await response.aclose()
            if request.url.netloc == first.netloc and (first.scheme, request.url.scheme) != ("https", "http"):
                request.headers.update(encoded(users))
                continue
            for name in users:
                request.headers.pop(name, None)
            request.headers.update(encoded(own))
        raise ConnectionError(f"{self.name}: it redirects more than {MOST_REDIRECTS} times")

    def begin(self, headers: Mapping[str, str]) -> None:
        """Read a body of some type."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == EVENTS:
            self.parser = EventParser(ITEM_BYTES)
            self.parser.id = self.given.id
            self.given.begin_again()
        elif kind in LINES and not isinstance(self.parser, EventParser):
            self.parser = LineParser()
        else:
            raise ValueError(f"{self.name}: it must be {EVENTS} or {', '.join(LINES)}, got {kind or 'no Content-Type'}")
        self.decoder = ContentDecoder(headers.get("content-encoding", ""), self.name)
        self.chunks = self.response.aiter_raw()

    async def over(self) -> None:
        """Handle the end of a body: with lines it is the end of the data, with events a closed connection."""
        if isinstance(self.parser, LineParser):
            self.decoder.finish()
            self.take(self.parser.feed(b"\n"))
        else:
            await self.broken(ConnectionError(f"{self.name}: the server closed the connection"))

    async def broken(self, error: ConnectionError) -> None:
        """Wait until it may reconnect; raise if it may not."""
        await self.disconnect()
        if isinstance(self.parser, LineParser) and self.given.since:
            raise ConnectionError(
                f"{error}; it broke off after {self.given.since} lines, and lines have no ids from which it could "
                "resume"
            ) from error
        await self.again.wait(error)
        self.ended = False

    async def disconnect(self) -> None:
        """Close the connection."""
        response, self.response, self.chunks = self.response, None, None
        if response is not None:
            await response.aclose()

    async def aclose(self) -> None:
        """Stop reading, and close the connection."""
        self.ended = True
        await self.disconnect()
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()


def encoded(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return headers as they are sent: ids may have any characters."""
    return {name.encode(): value.encode() for name, value in headers.items()}

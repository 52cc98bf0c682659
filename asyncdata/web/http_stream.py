"""HTTP streams of other services: server-sent events, which resume where they were, and NDJSON."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, final

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.runtime.optional_packages import require
from asyncdata.web.decoding import Decode, json_decoder
from asyncdata.web.reconnecting import Reconnecting
from asyncdata.web.server_sent_events import Event, EventParser

__all__ = ("HttpStream",)

EVENTS: Final = "text/event-stream"
LINES: Final = ("application/x-ndjson", "application/jsonl", "application/json")

RETRIED_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
ITEM_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class HttpStream:
    """The items of a URL; each iteration connects anew."""

    url: str
    decode: Decode | None
    headers: Mapping[str, str]
    idle_seconds: float
    give_up_seconds: float

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
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > ITEM_BYTES:
            raise DataLossError(f"a line has more than {ITEM_BYTES} bytes")
        return [Event(line, "", False) for line in map(bytes.strip, lines) if line]


@final
class HttpStreamReader:
    """Reads a stream and reconnects when it breaks. Its state is an id, and the number of events since that id."""

    def __init__(self, stream: HttpStream) -> None:
        self.stream = stream
        self.name = f"from_http_stream({stream.url.partition('?')[0]})"
        self.again = Reconnecting(self.name, stream.give_up_seconds)
        self.id = ""
        self.since = 0
        """How many events were given since the one with that id."""
        self.skip = 0
        self.parser: Parser = LineParser()
        self.client: Any = None
        self.response: Any = None
        self.chunks: AsyncIterator[bytes] | None = None
        self.ready: deque[Event] = deque()
        self.ended = False

    def __aiter__(self) -> Self:
        return self

    def state_dict(self) -> dict[str, Any]:
        return {"id": self.id, "since": self.since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.id, self.since = str(state["id"]), int(state["since"])
        if not self.id:
            raise ResumeError(
                "no event had an id when the state was saved, so the stream cannot resume; start without the state"
            )

    async def __anext__(self) -> Any:
        while not self.ready:
            if self.ended:
                await self.aclose()
                raise StopAsyncIteration
            await self.read()
        event = self.ready.popleft()
        if event.is_marked:
            self.id, self.since = event.id, 0
        else:
            self.since += 1
        decode = self.stream.decode
        return json_decoder().decode(event.data) if decode is None else decode(event.data)

    async def read(self) -> None:
        """Read the next bytes; connect before that, and again if the stream breaks."""
        transport = require("httpx", "from_http_stream", "'asyncdata[web]'").TransportError
        try:
            if self.chunks is None:
                await self.connect()
            data = None if self.chunks is None else await anext(self.chunks, None)
        except transport as error:
            await self.broken(ConnectionError(f"{self.name}: {type(error).__name__}: {error}"))
            return
        if data is None:
            await self.over()
            return
        try:
            self.take(self.parser.feed(data))
        except DataLossError:
            self.ended = True
            raise

    def take(self, events: list[Event]) -> None:
        """Queue the events, except those that were given already since the last id."""
        self.again.received()
        if isinstance(self.parser, EventParser) and self.parser.retry is not None:
            self.again.first = self.parser.retry
        left = min(self.skip, len(events))
        self.skip -= left
        self.ready += events[left:]

    async def connect(self) -> None:
        """Request the stream, from the last id on."""
        httpx = require("httpx", "from_http_stream", "'asyncdata[web]'")
        if self.client is None:
            timeout = httpx.Timeout(30.0, read=self.stream.idle_seconds)
            self.client = httpx.AsyncClient(timeout=timeout, follow_redirects=True)
        headers = {"Accept": f"{EVENTS}, {LINES[0]}", "Cache-Control": "no-store", **self.stream.headers}
        if self.id:
            headers["Last-Event-ID"] = self.id
        request = self.client.build_request("GET", self.stream.url, headers=headers)
        self.response = await self.client.send(request, stream=True)
        status = self.response.status_code
        if status in RETRIED_STATUSES:
            await self.broken(ConnectionError(f"{self.name}: the server answered {status}"))
        elif status == 204:
            self.ended = True
        elif status != 200:
            self.ended = True
            raise ConnectionError(f"{self.name}: the server answered {status} {self.response.reason_phrase}")
        else:
            self.begin(self.response.headers.get("content-type", ""))

    def begin(self, content_type: str) -> None:
        """Read a body of some type."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind == EVENTS:
            self.parser = EventParser(ITEM_BYTES)
            self.parser.id = self.id
            self.skip = self.since if self.id else 0
        elif kind in LINES:
            self.parser = LineParser()
        else:
            self.ended = True
            raise ValueError(f"{self.name}: it must be {EVENTS} or {', '.join(LINES)}, got {kind or 'no Content-Type'}")
        self.chunks = self.response.aiter_bytes()

    async def over(self) -> None:
        """Handle the end of a body: with lines it is the end of the data, with events a closed connection."""
        if isinstance(self.parser, LineParser):
            self.ended = True
            self.take(self.parser.feed(b"\n"))
        elif not self.ended and self.chunks is not None:
            await self.broken(ConnectionError(f"{self.name}: the server closed the connection"))

    async def broken(self, error: ConnectionError) -> None:
        """Wait until it may reconnect; raise if it may not."""
        await self.disconnect()
        self.ended = True
        if isinstance(self.parser, LineParser) and self.since:
            raise ConnectionError(
                f"{error}; it broke off after {self.since} lines, and lines have no ids from which it could resume"
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

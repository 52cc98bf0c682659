"""WebSocket streams of other services: each message is an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any, Final, Self, TypeAlias, final
from urllib.parse import urlsplit

from asyncdata.errors import DataLossError, PlanError, ResumeError
from asyncdata.redaction import redacted
from asyncdata.runtime.block import Failure
from asyncdata.system.optional_packages import require
from asyncdata.web.decoding import Decode, json_decoder
from asyncdata.web.kept_message import kept_data
from asyncdata.web.reconnecting import RETRIED_STATUSES, Reconnecting

__all__ = ("Subscribe", "WebSocketStream")

Subscribe: TypeAlias = str | bytes | Callable[[Any], str | bytes]
"""The first message to send, or a function that makes it from the last item that came (`None` if none did)."""

MESSAGE_BYTES: Final = 16 << 20

PING_SECONDS: Final = 20.0
"""How often the server is asked whether it is there, and how long it may take to answer."""

END: Final = 1000
"""The code with which a server closes a WebSocket that has ended; with any other one it broke."""

TOO_LONG: Final = 1009
"""The code with which a WebSocket is closed after a message that is too long."""

REFUSALS: Final = frozenset({1002, 1003, 1007, 1008, TOO_LONG, 1010, 3000, 3003})
"""The codes by which a server says that it would refuse the same again."""


@dataclass(frozen=True)
class WebSocketStream:
    """The messages of a URL; each iteration connects anew."""

    url: str
    decode: Decode | None
    subscribe: Subscribe | None
    headers: Mapping[str, str]
    give_up_seconds: float
    keep: bool = False
    """Whether it gives messages as they are kept."""

    def __aiter__(self) -> WebSocketReader:
        return WebSocketReader(self)


@final
class WebSocketReader:
    """Reads messages, and reconnects when the connection breaks."""

    def __init__(self, stream: WebSocketStream) -> None:
        self.stream = stream
        self.address = redacted(stream.url).partition("?")[0]
        self.name = f"from_websocket({self.address})"
        self.token = token_hex(4)
        """Distinguishes its messages from those of other readers."""
        self.again = Reconnecting(self.name, stream.give_up_seconds)
        self.socket: Any = None
        self.count = 0
        self.last: Any = None
        self.ended = False

    def __aiter__(self) -> Self:
        return self

    def state_dict(self) -> dict[str, Any]:
        return {"messages": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise ResumeError(
            f"a WebSocket does not store its messages, so it cannot resume after {state['messages']} of them; start "
            "without the state"
        )

    async def __anext__(self) -> Any:
        exceptions = require("websockets.exceptions", "from_websocket", "'asyncdata[web]'")
        while not self.ended:
            self.ended = True  # unless a message comes, or it may connect again
            try:
                socket = self.socket or await self.connect()
                message = await socket.recv()
            except exceptions.ConnectionClosed as error:
                if error.rcvd is None or error.rcvd.code != END:
                    self.check_code(error)
                    await self.broken(error)
            except exceptions.InvalidURI as error:
                raise PlanError(f"{self.name}: {error.msg}") from None
            except exceptions.InvalidStatus as error:
                if error.response.status_code not in RETRIED_STATUSES:
                    raise ConnectionError(f"{self.name}: {error}") from error
                await self.broken(error)
            except (exceptions.InvalidMessage, OSError, TimeoutError) as error:
                await self.broken(error)
            else:
                self.ended = False
                return self.item(message)
        await self.aclose()
        raise StopAsyncIteration

    def check_code(self, error: Any) -> None:
        """Raise if the connection was closed for a reason that would be the same again.

        A message that is too long would be lost, or come again.
        """
        if error.sent is not None and error.sent.code == TOO_LONG and not error.rcvd_then_sent:
            raise DataLossError(f"{self.name}: message {self.count} has more than {MESSAGE_BYTES} bytes")
        if error.rcvd is not None and error.rcvd.code in REFUSALS:
            raise ConnectionError(f"{self.name}: the server refuses the connection: {error}") from error

    def item(self, message: str | bytes) -> Any:
        """Return the item of a message: text is JSON, bytes stay as they are; the user's function decodes both."""
        self.again.received()
        self.count += 1
        data, decode = message.encode() if isinstance(message, str) else message, self.stream.decode
        is_json = decode is None and isinstance(message, str)
        make: Decode = decode or (json_decoder().decode if is_json else bytes)
        if not self.stream.keep:
            self.last = make(data)
            return self.last
        kept = kept_data(self.address, f"{self.token}-{self.count}", data, make, "json" if is_json else "bytes")
        self.last = self.last if type(kept.element) is Failure else kept.element
        return kept

    async def connect(self) -> Any:
        """Connect, subscribe, and return the connection."""
        connect = require("websockets.asyncio.client", "from_websocket", "'asyncdata[web]'").connect
        opening = connect(
            self.stream.url,
            additional_headers=dict(self.stream.headers),
            max_size=MESSAGE_BYTES,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
        )
        opening.process_redirect = partial(redirected, opening, opening.process_redirect)
        self.socket = await opening
        subscribe = self.stream.subscribe
        if subscribe is not None:
            await self.socket.send(subscribe(self.last) if callable(subscribe) else subscribe)
        return self.socket

    async def broken(self, error: Exception) -> None:
        """Wait until it may reconnect; raise if it may not."""
        self.socket = None
        await self.again.wait(ConnectionError(f"{self.name}: {error or type(error).__name__}"))
        self.ended = False

    async def aclose(self) -> None:
        """Stop reading, and close the connection."""
        self.ended = True
        socket, self.socket = self.socket, None
        if socket is not None:
            await socket.close()


def redirected(opening: Any, follow: Callable[[Exception], Any], answer: Exception) -> Any:
    """Return the address to which a server redirects, or the error. The user's headers go to no other server."""
    found = follow(answer)
    if isinstance(found, str) and origin_of(found) != origin_of(opening.uri):
        opening.additional_headers = None
    return found


def origin_of(url: str) -> tuple[str, str | None, int]:
    """Return the scheme, host and port of a URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"ws": 80, "wss": 443}.get(parts.scheme, 0)

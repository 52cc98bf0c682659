"""WebSocket streams of other services: each message is an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, final

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.runtime.optional_packages import require
from asyncdata.web.decoding import Decode, json_decoder
from asyncdata.web.reconnecting import Reconnecting

__all__ = ("Subscribe", "WebSocketStream")

Subscribe: TypeAlias = str | bytes | Callable[[Any], str | bytes]
"""The first message to send, or a function that makes it from the last item that came (`None` if none did)."""

MESSAGE_BYTES: Final = 16 << 20

TOO_LONG: Final = 1009
"""The code with which a WebSocket is closed after a message that is too long."""


@dataclass(frozen=True)
class WebSocketStream:
    """The messages of a URL; each iteration connects anew."""

    url: str
    decode: Decode | None
    subscribe: Subscribe | None
    headers: Mapping[str, str]
    give_up_seconds: float

    def __aiter__(self) -> WebSocketReader:
        return WebSocketReader(self)


@final
class WebSocketReader:
    """Reads messages, and reconnects when the connection breaks."""

    def __init__(self, stream: WebSocketStream) -> None:
        self.stream = stream
        self.name = f"from_websocket({stream.url.partition('?')[0]})"
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
            try:
                socket = self.socket or await self.connect()
                message = await socket.recv()
            except exceptions.ConnectionClosedOK:
                self.ended = True
            except (exceptions.ConnectionClosed, OSError, TimeoutError) as error:
                self.check_size(error)
                await self.broken(ConnectionError(f"{self.name}: {error}"))
            except exceptions.WebSocketException:  # the address is wrong, or access is refused
                self.ended = True
                raise
            else:
                return self.item(message)
        await self.aclose()
        raise StopAsyncIteration

    def check_size(self, error: Exception) -> None:
        """Raise if the connection was closed because a message is too long: it would be lost, or come again."""
        sent = getattr(error, "sent", None)
        if sent is not None and sent.code == TOO_LONG:
            self.ended = True
            raise DataLossError(f"{self.name}: message {self.count} has more than {MESSAGE_BYTES} bytes")

    def item(self, message: str | bytes) -> Any:
        """Return the item of a message: text is JSON, bytes stay as they are; the user's function decodes both."""
        self.again.received()
        self.count += 1
        if self.stream.decode is not None:
            self.last = self.stream.decode(message.encode() if isinstance(message, str) else message)
        else:
            self.last = json_decoder().decode(message) if isinstance(message, str) else message
        return self.last

    async def connect(self) -> Any:
        """Connect, subscribe, and return the connection."""
        client = require("websockets.asyncio.client", "from_websocket", "'asyncdata[web]'")
        self.socket = await client.connect(
            self.stream.url, additional_headers=dict(self.stream.headers), max_size=MESSAGE_BYTES
        )
        subscribe = self.stream.subscribe
        if subscribe is not None:
            await self.socket.send(subscribe(self.last) if callable(subscribe) else subscribe)
        return self.socket

    async def broken(self, error: ConnectionError) -> None:
        """Wait until it may reconnect; raise if it may not."""
        self.socket, self.ended = None, True
        await self.again.wait(error)
        self.ended = False

    async def aclose(self) -> None:
        """Stop reading, and close the connection."""
        self.ended = True
        socket, self.socket = self.socket, None
        if socket is not None:
            await socket.close()

"""The base of readers of queues on servers: messages are read many at a time, in order, and each has an offset."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from asyncdata.errors import ResumeError
from asyncdata.runtime.redaction import redacted
from asyncdata.web.reconnecting import Reconnecting

__all__ = ("MESSAGES", "WAIT_SECONDS", "Begin", "Message", "Queue", "QueueReader")

MESSAGES: Final = 1000
"""The most messages that are requested at once."""

WAIT_SECONDS: Final = 5.0
"""How long a server waits for a message before it answers that there is none."""

Begin: TypeAlias = Literal["oldest", "new"]

Offset = TypeVar("Offset", str, int)

Message: TypeAlias = tuple[Offset, Any]
"""An offset, and the content of the message there."""


class QueueReader(Generic[Offset]):
    """Reads a queue from an offset on, and reconnects when the connection breaks.

    If a consumer `group` shares the messages, the server stores the offset, and there is no state.
    """

    kind: ClassVar[type]
    """The type of an offset."""

    def __init__(self, name: str, group: str | None, follow: bool, give_up_seconds: float) -> None:
        self.name = redacted(name)
        self.group = group
        self.follow = follow
        self.again = Reconnecting(name, give_up_seconds)
        self.offset: Offset | None = None
        """The offset of the last message that was read, or after which to begin; `None` before that is known."""
        self.expected: Offset | None = None
        """The offset of the first message to read, if a state has it: that message must still be there."""
        self.connected = False

    # what differs between kinds of queues

    async def connect(self) -> None:
        """Connect, and find `offset` if there is none and no message is `expected`; otherwise check it.

        `ResumeError` if messages after it may have been removed.
        """
        raise NotImplementedError

    async def receive(self) -> list[Message[Offset]]:
        """Return the messages after `offset`, or from the `expected` one on.

        The list is empty if no message came for a while, or if there is none now and `follow` is off. Messages for a
        group are acknowledged before they are returned.
        """
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Close the connection, if there is one."""
        raise NotImplementedError

    def transient_errors(self) -> tuple[type[Exception], ...]:
        """Return the errors after which the reader reconnects."""
        raise NotImplementedError

    # what is common to them

    def state(self, at: Offset | None, after: Offset | None) -> dict[str, Any] | ResumeError:
        """Return the state of the message `at` an offset, or `after` one; or the error that says why there is none."""
        if self.group is None:
            return {"queue": self.name, "at": at, "after": after}
        return ResumeError(
            f"{self.name}: messages for {self.group!r} are acknowledged and not delivered again, so there is no state; "
            "a reader without it resumes from states"
        )

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from a state; `ResumeError` if it is of another queue."""
        at, after = state["at"], state["after"]
        if self.group is not None or state["queue"] != self.name or {type(at), type(after)} != {self.kind, type(None)}:
            raise ResumeError(
                f"{self.name}: the state is of {state['queue']}, at {at!r:.80}, after {after!r:.80}; give the "
                "arguments that it was saved with"
            )
        self.offset, self.expected = after, at

    async def ensure_connected(self) -> None:
        """Connect if it is not connected; after that the offset is known."""
        transient = self.transient_errors()
        while not self.connected:
            try:
                await self.connect()
                self.connected = True
            except transient as error:
                await self.broken(error)

    async def messages(self) -> list[Message[Offset]]:
        """Return the next messages, at least one; an empty list at the end."""
        transient = self.transient_errors()
        while True:
            await self.ensure_connected()
            try:
                found = await self.receive()
            except transient as error:
                await self.broken(error)
                continue
            self.again.received()
            if found:
                self.check_expected(found[0][0])
                self.offset = found[-1][0]
            if found or not self.follow:
                return found

    def check_expected(self, first: Offset) -> None:
        """Raise if the first message is not the one that a state expects."""
        expected, self.expected = self.expected, None
        if expected is not None and first != expected:
            raise ResumeError(
                f"{self.name}: the state resumes at {expected}, which is no longer there; the next message is at "
                f"{first}: start without the state"
            )

    async def broken(self, error: Exception) -> None:
        """Wait until it may reconnect; raise if it may not."""
        await self.close()
        failure = ConnectionError(redacted(f"{self.name}: {type(error).__name__}: {error}"))
        failure.__cause__ = error
        await self.again.wait(failure)

    async def close(self) -> None:
        """Stop reading, and close the connection."""
        self.connected = False
        await self.disconnect()


class Queue(Protocol):
    """A queue on a server."""

    def reader(self) -> QueueReader[Any]:
        """Return a reader that is not connected yet."""
        ...

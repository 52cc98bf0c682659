"""What readers of queues on servers share: messages are read many at a time, in order, and each has an offset."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from asyncdata.errors import ResumeError
from asyncdata.web.reconnecting import Reconnecting

__all__ = ("MESSAGES", "WAIT_SECONDS", "Begin", "Message", "Queue", "QueueReader")

MESSAGES: Final = 1000
"""What is asked for at once, at most."""

WAIT_SECONDS: Final = 5.0
"""How long a server waits for a message before it says that there is none."""

Begin: TypeAlias = Literal["oldest", "new"]

Offset = TypeVar("Offset", str, int)

Message: TypeAlias = tuple[Offset, Any]
"""What a message says, behind its offset."""


class QueueReader(Generic[Offset]):
    """Reads a queue from an offset on, and connects again where the connection breaks.

    Where a consumer `group` shares the messages out, the server keeps the offset, and there is no state.
    """

    kind: ClassVar[type]
    """Of an offset."""

    def __init__(self, name: str, group: str | None, follow: bool, give_up_seconds: float) -> None:
        self.name = name
        self.group = group
        self.follow = follow
        self.again = Reconnecting(name, give_up_seconds)
        self.offset: Offset | None = None
        """That of the last message that was read, or behind which to begin; `None` before that is known."""
        self.expected: Offset | None = None
        """That of the first message to read, where a state says so: it must be there still."""
        self.connected = False

    # what differs between kinds of queues

    async def connect(self) -> None:
        """Connect; find `offset` if there is none, unless a message is `expected`, and else see that it is still good.

        `ResumeError` if what followed it may be gone.
        """
        raise NotImplementedError

    async def receive(self) -> list[Message[Offset]]:
        """Return what follows `offset`, or begins with what is `expected`.

        Nothing if nothing came for a while, or if there is nothing now and `follow` is off. What a group is given is
        acknowledged before that.
        """
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Close the connection, if there is one."""
        raise NotImplementedError

    def transient_errors(self) -> tuple[type[Exception], ...]:
        """Return the errors after which it is connected again."""
        raise NotImplementedError

    # what does not

    def state(self, at: Offset | None, after: Offset | None) -> dict[str, Any] | ResumeError:
        """Return what leads back to the message `at` an offset, or to what follows another; or why nothing does."""
        if self.group is None:
            return {"queue": self.name, "at": at, "after": after}
        return ResumeError(
            f"{self.name}: what was given to {self.group!r} is acknowledged, and not given again; a reader without it "
            "goes on from states"
        )

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a state; `ResumeError` if it is of another queue."""
        at, after = state["at"], state["after"]
        if self.group is not None or state["queue"] != self.name or {type(at), type(after)} != {self.kind, type(None)}:
            raise ResumeError(
                f"{self.name}: the state is of {state['queue']}, at {at!r:.80}, after {after!r:.80}; give the "
                "arguments that it was saved with"
            )
        self.offset, self.expected = after, at

    async def ensure_connected(self) -> None:
        """Connect unless it is connected; then the offset is known."""
        transient = self.transient_errors()
        while not self.connected:
            try:
                await self.connect()
                self.connected = True
            except transient as error:
                await self.broken(error)

    async def messages(self) -> list[Message[Offset]]:
        """Return the next messages, at least one; nothing at the end."""
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
        """Raise if what comes first is not what a state says."""
        expected, self.expected = self.expected, None
        if expected is not None and first != expected:
            raise ResumeError(
                f"{self.name}: the state goes on at {expected}, which is no longer there, and the next message is at "
                f"{first}: start without the state"
            )

    async def broken(self, error: Exception) -> None:
        """Wait until the connection may be made again; raise if it may not."""
        await self.close()
        failure = ConnectionError(f"{self.name}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        await self.again.wait(failure)

    async def close(self) -> None:
        """Read nothing more on this connection."""
        self.connected = False
        await self.disconnect()


class Queue(Protocol):
    """A queue on a server, whenever it is read."""

    def reader(self) -> QueueReader[Any]:
        """Return a reader that is not connected yet."""
        ...

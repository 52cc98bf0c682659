"""QueueReader: what a new kind of queue on a server implements. Messages come many at a time, in order of offsets."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.redaction import redacted
from asyncdata.web.reconnecting import Reconnecting

__all__ = ("MESSAGES", "WAIT_SECONDS", "Begin", "Message", "MessagesRemovedError", "Queue", "QueueReader")

MESSAGES: Final = 1000
"""The most messages that are requested at once."""

FIRST_MESSAGES: Final = 16
"""How many are requested at first, when it is not known how large they are."""

GIVEN: Final = 1 << 17
"""How many messages of a group are remembered, so that they are not given again."""

READ_BYTES: Final = 16 << 20
"""How much is requested at once, by the size of the messages that came last."""

WAIT_SECONDS: Final = 5.0
"""How long a server waits for a message before it answers that there is none."""

Begin: TypeAlias = Literal["oldest", "new"]

Offset = TypeVar("Offset", str, int)


class Message(NamedTuple):
    """A message of a queue."""

    offset: Any
    known: Any
    """What is known of the messages behind it, as a JSON value: so the reader finds out which were removed."""
    content: Any


class MessagesRemovedError(DataLossError):
    """The server removed messages before they were read; those behind them can be read."""


class QueueReader(Generic[Offset]):
    """Reads a queue from an offset on, and reconnects when the connection breaks.

    If a consumer `group` shares the messages, the server stores the offset, and there is no state.
    """

    kind: ClassVar[type]
    """The type of an offset."""
    start: Begin = "oldest"
    """Where a run without a state begins."""

    def __init__(self, name: str, group: str | None, follow: bool, give_up_seconds: float) -> None:
        self.name = redacted(name)
        self.stream = self.name.partition("(")[2].removesuffix(")") or self.name
        self.group = group
        self.follow = follow
        self.again = Reconnecting(name, give_up_seconds)
        self.offset: Offset | None = None
        """The offset of the last message that was read, or after which to begin; `None` before that is known."""
        self.expected: Offset | None = None
        """The offset of the first message to read, if a state has it: that message must still be there."""
        self.known: Any = None
        """What is known of the messages behind that offset, or from the expected one on; `None` if nothing is."""
        self.known_before: Any = None
        """What was known before the messages that were returned last."""
        self.created: str | None = None
        """When the stream was made, or what else distinguishes it from another one of the same name."""
        self.given: dict[Any, None] = {}
        """The last messages that were given of a group: their offsets, as its server has them."""
        self.connected = False
        self.most = FIRST_MESSAGES
        """How many messages to request."""

    # what differs between kinds of queues

    async def connect(self) -> None:
        """Connect, and find `offset` if there is none and no message is `expected`; otherwise check that it is of this
        stream."""
        raise NotImplementedError

    async def receive(self) -> list[Message]:
        """Return the messages after `offset`, or from the `expected` one on.

        The list is empty if no message came for a while, or if there is none now and `follow` is off. Messages for a
        group are acknowledged before they are returned. `MessagesRemovedError` if some of them were removed; when it is
        called again it returns the others.
        """
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Close the connection, if there is one."""
        raise NotImplementedError

    def transient_errors(self) -> tuple[type[Exception], ...]:
        """Return the errors after which the reader reconnects."""
        raise NotImplementedError

    # what is common to them

    def state(self, at: Offset | None, after: Offset | None, known: Any) -> dict[str, Any] | ResumeError:
        """Return the state of the message `at` an offset, or `after` one; or the error that says why there is none."""
        if self.group is None:
            return {"queue": self.name, "at": at, "after": after, "known": known, "made": self.created}
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
        self.known, self.created = state.get("known"), state.get("made")  # earlier states have neither

    def not_given(self, messages: dict[Any, Any]) -> dict[Any, Any]:
        """Return those messages of a group, by their offsets, that this iteration has not given yet, and remember them.

        Some come again where a server did not get an acknowledgement, or was killed before it stored that.
        """
        new = {offset: content for offset, content in messages.items() if offset not in self.given}
        self.given.update(dict.fromkeys(new))
        for offset in [*islice(self.given, max(0, len(self.given) - GIVEN))]:
            del self.given[offset]
        return new

    def check_made(self, made: str) -> None:
        """Raise if the stream is not the one that was read before."""
        before, self.created = self.created, made
        if before is not None and before != made:
            raise self.renewed(f"this one was made at {made}, that one at {before}")

    def renewed(self, reason: str) -> DataLossError:
        """Return the error for a stream that is not the one that was read before."""
        return DataLossError(
            f"{self.name}: the stream that was read before was deleted, and perhaps made anew: {reason}; start without "
            "the state"
        )

    async def ensure_connected(self) -> None:
        """Connect if it is not connected; after that the offset is known."""
        while not self.connected:
            try:
                await self.connect()
                self.connected = True
            except Exception as error:
                if not self.is_broken(error):
                    raise
                await self.broken(error)

    async def messages(self) -> list[Message]:
        """Return the next messages, at least one; an empty list at the end."""
        while True:
            await self.ensure_connected()
            try:
                found = await self.receive()
            except Exception as error:
                if not self.is_broken(error):
                    raise
                await self.broken(error)
                continue
            self.again.received()
            if found:
                self.check_expected(found[0].offset)
                self.known_before = self.known
                self.offset, self.known, _ = found[-1]
                size = sum(bytes_of(content) for _, _, content in found) // len(found)
                self.most = max(1, min(MESSAGES, 4 * self.most, READ_BYTES // max(1, size)))
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

    def is_broken(self, error: Exception) -> bool:
        """Return whether an error tells of a connection that broke. If a client writes to one that has just been closed
        by the server, uvloop's is a RuntimeError."""
        closed = type(error) is RuntimeError and str(error).endswith("; the handler is closed")
        return closed or isinstance(error, self.transient_errors())

    def is_refused(self, error: Exception) -> bool:
        """Return whether such an error tells of a password that is wrong, or is no longer valid."""
        return False

    async def broken(self, error: Exception) -> None:
        """Wait until it may reconnect; raise if it may not."""
        await self.close()
        failure = ConnectionError(redacted(f"{self.name}: {type(error).__name__}: {error}"))
        failure.__cause__ = error
        if self.is_refused(error):
            raise failure
        await self.again.wait(failure)

    async def close(self) -> None:
        """Stop reading, and close the connection."""
        self.connected = False
        try:
            await self.disconnect()
        except Exception as error:
            if not self.is_broken(error):
                raise


def bytes_of(content: Any) -> int:
    """Return how many bytes a message has: it is bytes, or has some by names."""
    if isinstance(content, bytes):
        return len(content)
    return sum(map(len, cast("dict[str, bytes]", content).values())) if isinstance(content, dict) else 0


class Queue(Protocol):
    """A queue on a server."""

    def reader(self) -> QueueReader[Any]:
        """Return a reader that is not connected yet."""
        ...

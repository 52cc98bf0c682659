"""NATS JetStream: the messages of a stream after an offset, or those that a durable consumer distributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.runtime.optional_packages import require
from asyncdata.web.queue_reader import MESSAGES, WAIT_SECONDS, Begin, Message, QueueReader

__all__ = ("NatsStream",)

EXTRA: Final = "'asyncdata[nats]'"


@dataclass(frozen=True)
class NatsStream:
    """The messages of a stream; each iteration connects anew."""

    url: str
    stream: str
    subject: str | None
    start: Begin
    durable: str | None
    follow: bool
    give_up_seconds: float

    def reader(self) -> NatsReader:
        return NatsReader(self)


@final
class NatsReader(QueueReader[int]):
    """Reads a stream through a pull consumer, its own or a durable one."""

    kind: ClassVar[type] = int

    def __init__(self, source: NatsStream) -> None:
        super().__init__(f"from_nats({source.stream})", source.durable, source.follow, source.give_up_seconds)
        self.source = source
        self.connection: Any = None
        self.jetstream: Any = None
        self.subscription: Any = None
        self.taken = 0
        """How many messages of its own consumer it has."""

    def transient_errors(self) -> tuple[type[Exception], ...]:
        errors = require("nats.errors", "from_nats", EXTRA)
        return (
            OSError,
            errors.ConnectionClosedError,
            errors.NoServersError,
            errors.NoRespondersError,
            errors.OutboundBufferLimitError,
            errors.StaleConnectionError,
            errors.TimeoutError,
            errors.UnexpectedEOF,
        )

    async def connect(self) -> None:
        nats = require("nats", "from_nats", EXTRA)
        once = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
        self.connection = nats.NATS()
        try:
            await self.connection.connect(self.source.url, error_cb=ignore_error, **once)
        except nats.errors.Error as error:
            if "empty response" in str(error):  # closed by a proxy, or by a server that is starting
                raise ConnectionError(str(error)) from error
            raise
        self.jetstream = self.connection.jetstream()
        first, last = await self.held_numbers()
        if self.offset is not None or self.expected is not None:
            self.check_held(first, last)
        else:
            self.offset = last if self.source.start == "new" else max(0, first - 1)
        await self.subscribe()

    async def subscribe(self) -> None:
        """Ask for the messages from the next one on, or for those of the durable consumer."""
        consumer, self.taken = await self.consumer(), 0
        self.subscription = await self.jetstream.pull_subscribe_bind(consumer=consumer, stream=self.source.stream)

    async def held_numbers(self) -> tuple[int, int]:
        """Return the numbers of the first and the last message that the stream holds."""
        state = (await self.jetstream.stream_info(self.source.stream)).state
        return state.first_seq, state.last_seq

    @property
    def next(self) -> int:
        """The number of the first message that may come."""
        return (self.offset or 0) + 1 if self.expected is None else self.expected

    def check_held(self, first: int, last: int) -> None:
        """Raise if messages that are still to be read were removed, or the stream is another one."""
        if self.next < first:
            raise ResumeError(
                f"{self.name}: the state resumes at message {self.next}, but messages before {first} were removed; "
                "start without the state"
            )
        if self.next > last + 1:
            raise ResumeError(
                f"{self.name}: the state resumes at message {self.next}, but the stream ends at {last}: it is another "
                "stream; start without the state"
            )

    async def consumer(self) -> str:
        """Return the name of the consumer; create it if there is none."""
        api = require("nats.js.api", "from_nats", EXTRA)
        missing = require("nats.js.errors", "from_nats", EXTRA).NotFoundError
        durable, stream = self.source.durable, self.source.stream
        if durable is None:
            how = {"ack_policy": api.AckPolicy.NONE, "deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE}
            how["opt_start_seq"] = self.next
        else:
            try:
                return (await self.jetstream.consumer_info(stream, durable)).name
            except missing:
                new = self.source.start == "new"
                policy = api.DeliverPolicy.NEW if new else api.DeliverPolicy.ALL
                how = {"durable_name": durable, "ack_policy": api.AckPolicy.EXPLICIT, "deliver_policy": policy}
        config = api.ConsumerConfig(**how, filter_subject=self.source.subject)
        return (await self.jetstream.add_consumer(stream, config)).name

    async def receive(self) -> list[Message[int]]:
        errors = require("nats.js.errors", "from_nats", EXTRA)
        try:
            return await self.fetched()
        except (errors.NotFoundError, errors.ServiceUnavailableError):
            if self.source.durable is not None:
                raise
            await self.subscription.unsubscribe()
            await self.subscribe()  # a server removes a consumer that has requested nothing for seconds
            return await self.fetched()

    async def fetched(self) -> list[Message[int]]:
        """Return the next messages: with `follow` none if none comes within `WAIT_SECONDS`, else none at the end."""
        no_messages = require("nats.errors", "from_nats", EXTRA).TimeoutError
        while self.source.follow or not await self.all_taken():
            try:
                found: list[Any] = await self.subscription.fetch(MESSAGES, WAIT_SECONDS)
            except no_messages:
                await self.connection.flush()  # raises if there is no connection
                if self.source.follow:
                    break
                continue  # the server is slow
            return await self.accepted(found)
        return []

    async def all_taken(self) -> bool:
        """Return whether the consumer has no more messages, on the server or on their way."""
        told = await self.subscription.consumer_info()
        if told.num_pending:
            return False
        if self.source.durable is not None:
            return not self.subscription.pending_msgs
        return bool(told.delivered.consumer_seq == self.taken)

    async def accepted(self, found: Sequence[Any]) -> list[Message[int]]:
        """Return what has come, when it is known to be complete, or is acknowledged."""
        numbers = [message.metadata.sequence for message in found]
        if self.source.durable is None:
            self.taken = numbers[-1].consumer
            await self.check_complete([number.stream for number in numbers])
        else:
            for message in found:
                await message.ack()
            await self.connection.flush()
        return [(number.stream, message.data) for number, message in zip(numbers, found, strict=True)]

    async def check_complete(self, offsets: Sequence[int]) -> None:
        """Raise if messages were removed before they were read; messages of other subjects are missing too."""
        if self.offset and offsets[0] > self.next:
            first, _ = await self.held_numbers()
            if first > self.next:
                raise DataLossError(
                    f"{self.name}: messages from {self.next} to {first - 1} were removed before they were read: raise "
                    "the limits of the stream, or read faster"
                )

    async def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()


async def ignore_error(error: Exception) -> None:
    """Log nothing: errors are raised where messages are read."""

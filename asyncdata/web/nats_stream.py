"""NATS JetStream: the messages of a stream after an offset, or those that a durable consumer distributes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, final

from asyncdata.errors import DataLossError, PlanError, ResumeError
from asyncdata.system.optional_packages import require
from asyncdata.web.queue_reader import MESSAGES, WAIT_SECONDS, Begin, Message, MessagesRemovedError, QueueReader

__all__ = ("NatsStream",)

EXTRA: Final = "'asyncdata[nats]'"

REPLY_SECONDS: Final = 5.0
"""How long a reply to a question about a stream or a consumer is waited for."""


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


class Known(NamedTuple):
    """What is known of the messages behind an offset: how many there are up to a later one.

    Without a subject all numbers behind `last` must come. With one it is not known which numbers are of that subject.
    """

    unread: int
    last: int


@final
class NatsReader(QueueReader[int]):
    """Reads a stream through a pull consumer, its own or a durable one."""

    kind: ClassVar[type] = int

    def __init__(self, source: NatsStream) -> None:
        super().__init__(f"from_nats({source.stream})", source.durable, source.follow, source.give_up_seconds)
        self.source, self.start = source, source.start
        self.connection: Any = None
        self.subscription: Any = None
        self.consumer = ""
        self.consumer_made: str | None = None
        """When the durable consumer was made."""
        self.batch = MESSAGES
        self.wait = WAIT_SECONDS
        """How many messages, and for how long, the consumer may be asked for."""
        self.taken = 0
        """How many messages of its own consumer it has."""
        self.more = False
        """Whether its own consumer had more messages when it sent the last one."""
        self.kept: list[Any] = []
        """Messages that came behind some that were removed."""
        self.acknowledges = True
        """Whether the durable consumer waits for acknowledgements."""
        self.ack_wait = self.waited = 0.0
        """After how many seconds it gives a message again that was not acknowledged, and how long nothing has come."""

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

    # the stream and the consumer

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
        await self.subscribe()

    async def subscribe(self) -> None:
        """Ask for the messages from the next one on, or for those of the durable consumer."""
        state = await self.stream_state()
        if self.offset is None and self.expected is None:
            self.offset = state["last_seq"] if self.source.start == "new" else max(0, state["first_seq"] - 1)
        if self.next > state["last_seq"] + 1:
            raise self.renewed(f"this one ends at message {state['last_seq']}, and {self.next - 1} was read")
        if self.known is None and self.next < state["first_seq"]:
            raise ResumeError(
                f"{self.name}: the state resumes at message {self.next}, but messages before {state['first_seq']} were "
                "removed; start without the state"
            )
        self.taken, self.more, self.kept = 0, False, []
        if self.source.durable is None:
            await self.make_consumer()
            self.known = Known(*self.known) if self.known else await self.now_known(state)
        else:
            await self.check_durable(self.source.durable)
        jetstream = self.connection.jetstream()
        self.subscription = await jetstream.pull_subscribe_bind(consumer=self.consumer, stream=self.source.stream)

    async def ask(self, subject: str) -> dict[str, Any]:
        """Return the server's reply to a question about a stream or a consumer."""
        reply = json.loads((await self.connection.request(f"$JS.API.{subject}", timeout=REPLY_SECONDS)).data)
        if "error" in reply:
            require("nats.js.errors", "from_nats", EXTRA).APIError.from_error(reply["error"])
        return reply

    async def stream_state(self) -> dict[str, Any]:
        """Return which messages the stream holds; raise if it is not the one that was read before."""
        missing = require("nats.js.errors", "from_nats", EXTRA).NotFoundError
        try:
            told = await self.ask(f"STREAM.INFO.{self.source.stream}")
        except missing:
            if self.created is None and self.offset is None:
                raise PlanError(f"{self.name}: there is no such stream") from None
            raise self.renewed("there is none now") from None
        self.check_made(told["created"])
        return told["state"]

    async def consumer_info(self) -> dict[str, Any]:
        """Return what the server says about the consumer."""
        return await self.ask(f"CONSUMER.INFO.{self.source.stream}.{self.consumer}")

    @property
    def next(self) -> int:
        """The number of the first message that may come."""
        return (self.offset or 0) + 1 if self.expected is None else self.expected

    async def make_consumer(self) -> None:
        """Make a consumer that gives the messages from the next one on, or in turn if it is durable."""
        api = require("nats.js.api", "from_nats", EXTRA)
        if self.source.durable is None:
            how = {"ack_policy": api.AckPolicy.NONE, "deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE}
            how["opt_start_seq"] = self.next
        else:
            new = self.source.start == "new"
            policy = api.DeliverPolicy.NEW if new else api.DeliverPolicy.ALL
            how = {"durable_name": self.source.durable, "ack_policy": api.AckPolicy.EXPLICIT, "deliver_policy": policy}
        config = api.ConsumerConfig(**how, filter_subject=self.source.subject)
        self.consumer = (await self.connection.jetstream().add_consumer(self.source.stream, config)).name

    async def check_durable(self, name: str) -> None:
        """Find the durable consumer, or make it; raise if it cannot be read, or is not the one that was read before."""
        missing = require("nats.js.errors", "from_nats", EXTRA).NotFoundError
        self.consumer = name
        try:
            told = await self.consumer_info()
        except missing:
            if self.consumer_made is not None:
                raise self.consumer_deleted() from None
            await self.make_consumer()
            told = await self.consumer_info()
        if self.consumer_made not in (None, told["created"]):
            raise self.consumer_deleted()
        self.consumer_made = told["created"]
        self.check_config(told["config"])

    def check_config(self, config: dict[str, Any]) -> None:
        """Raise if a durable consumer is of another kind or another subject; find what it may be asked for."""
        if "deliver_subject" in config:
            raise PlanError(
                f"{self.name}: {self.consumer!r} is a push consumer, which sends messages to "
                f"{config['deliver_subject']!r}; give the name of a pull consumer (one without a deliver subject), or "
                "one that does not exist yet"
            )
        subject, filters = self.source.subject, filters_of(config)
        if subject is not None and filters != [subject]:
            raise PlanError(
                f"{self.name}: durable consumer {self.consumer!r} selects {', '.join(filters) or 'all subjects'}, and "
                f"subject= is {subject!r}; leave subject= out, or give another name to a consumer of that subject"
            )
        limits = [config.get("max_batch", 0), config.get("max_ack_pending", 0), MESSAGES]
        self.batch = min(limit for limit in limits if limit > 0)
        self.acknowledges = config.get("ack_policy") != "none"
        self.ack_wait = max([config.get("ack_wait", 0), *config.get("backoff", [])]) / 1e9
        self.wait = min(WAIT_SECONDS, config.get("max_expires", 0) / 1e9 or WAIT_SECONDS)

    def consumer_deleted(self) -> DataLossError:
        return DataLossError(
            f"{self.name}: durable consumer {self.consumer!r} was deleted while it was read, so it is not known which "
            "messages it has given: they would come again, or be left out"
        )

    # messages

    async def receive(self) -> list[Message]:
        errors = require("nats.js.errors", "from_nats", EXTRA)
        try:
            return await self.fetched()
        except (errors.NotFoundError, errors.ServiceUnavailableError):
            await self.subscription.unsubscribe()
            await self.subscribe()  # a server removes a consumer that has requested nothing for seconds
            return await self.fetched()

    async def fetched(self) -> list[Message]:
        """Return the next messages: with `follow` none if none comes for a while, else none at the end."""
        while True:
            if not self.source.follow and not self.more and await self.all_taken():
                return []
            found = self.kept or await self.requested()
            if found and (accepted := await self.accepted(found)):
                return accepted
            self.more = False
            if self.source.follow:
                await self.all_taken()
                return []

    async def requested(self) -> list[Any]:
        """Return what comes within a while; raise if there is no connection."""
        try:
            found = await self.subscription.fetch(min(self.batch, self.most), self.wait)
        except TimeoutError:
            await self.connection.flush()
            self.waited += self.wait
            return []
        self.waited = 0.0
        return found

    async def all_taken(self) -> bool:
        """Return whether the consumer has no more messages, on the server or on their way; check that none is lost."""
        if self.kept:
            return False
        if self.source.durable is not None:
            await self.check_durable(self.source.durable)
            told = await self.consumer_info()
            if self.acknowledges:  # the client may have more, which are end marks of requests
                more = told["num_ack_pending"] and self.waited <= self.ack_wait  # what a reader that died had comes
            else:
                more = self.subscription.pending_msgs
            return not told["num_pending"] and not more
        state, told = await self.stream_state(), await self.consumer_info()
        is_end = not told["num_pending"] and told["delivered"]["consumer_seq"] == self.taken
        if is_end:
            self.check_end(state)
        return is_end

    async def accepted(self, found: list[Any]) -> list[Message]:
        """Return what has come, when it is known to be complete, or is acknowledged."""
        if self.source.durable is not None:
            return await self.acknowledged(found)
        places = [message.metadata.sequence for message in found]
        if found is not self.kept:
            self.check_received(places[0].consumer, places[-1].consumer, len(places))
            self.more = found[-1].metadata.num_pending > 0
        self.kept = found
        numbers = [place.stream for place in places]
        known = await self.complete(numbers)
        self.kept = []
        return [Message(number, one, item.data) for number, one, item in zip(numbers, known, found, strict=True)]

    async def acknowledged(self, found: list[Any]) -> list[Message]:
        """Acknowledge messages, and return those that were not given before."""
        new = self.not_given({message.metadata.sequence.stream: message.data for message in found})
        with suppress(*self.transient_errors()):  # the next request tells
            for message in found:
                await (message.ack_sync() if self.acknowledges and message is found[-1] else message.ack())
            await self.connection.flush()
        return [Message(number, None, content) for number, content in new.items()]

    def check_received(self, first: int, last: int, count: int) -> None:
        """Raise if messages that the consumer has sent were lost on their way; they come again after a reconnection."""
        if first != self.taken + 1 or last - first != count - 1:
            raise ConnectionError(f"{self.name}: messages were lost on their way")
        self.taken = last

    async def complete(self, numbers: Sequence[int]) -> list[Known]:
        """Return what is known after each of these messages; raise if some before or among them were removed."""
        unread, last = self.known
        if self.source.subject is None:
            return self.consecutive(numbers)
        among = sum(number <= last for number in numbers)
        known = [Known(unread - place, last) for place in range(1, among + 1)]
        if among < len(numbers):
            state = await self.stream_state()
            self.check_removed(unread - among, state["first_seq"], Known(len(numbers), numbers[-1]))
            known += [Known(0, number) for number in numbers[among:]]
            known[-1] = await self.now_known(state)
        return known

    def consecutive(self, numbers: Sequence[int]) -> list[Known]:
        """Return the same where only numbers may be missing that were free when reading began."""
        end = max(self.known.last, numbers[-1])
        free = [self.free - (number - self.next + 1 - place) for place, number in enumerate(numbers, 1)]
        self.check_removed(-free[-1], 0, Known(len(numbers) + end - numbers[-1], end))
        return [Known(end - number - left, end) for number, left in zip(numbers, free, strict=True)]

    @property
    def free(self) -> int:
        """How many of the numbers of the messages to come are free, as messages were removed before reading began."""
        return max(0, self.known.last - (self.next - 1) - self.known.unread)

    def check_end(self, state: dict[str, Any]) -> None:
        """Raise if some of the messages that were not read, of which there are no more, were removed."""
        end = max(self.known.last, state["last_seq"])
        lost = self.known.unread if self.source.subject else end - (self.next - 1) - self.free
        self.check_removed(lost, state["first_seq"], Known(0, end))
        self.known = Known(0, end)

    def check_removed(self, lost: int, first: int, known: Known) -> None:
        """Raise if messages were removed, or may have been because the stream begins later; then go on as `known`."""
        begin = max(self.next, self.known.last + 1)
        many = f"{lost} messages" if lost > 0 else f"messages {begin} to {first - 1}, if they were of this subject,"
        if lost > 0 or (self.source.subject is not None and first > begin):
            self.known = known
            raise MessagesRemovedError(
                f"{self.name}: {many} were removed before they were read: raise the limits of the stream, or read "
                "faster"
            )

    async def now_known(self, state: dict[str, Any]) -> Known:
        """Return how many messages the consumer has, up to the last one of an earlier state of the stream.

        Messages that came since then, and may be of the subject, are not counted.
        """
        pending = (await self.consumer_info())["num_pending"]
        since = (await self.stream_state())["last_seq"] - state["last_seq"] if pending else 0
        return Known(max(0, pending - since), state["last_seq"])

    async def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()


def filters_of(config: dict[str, Any]) -> list[str]:
    """Return the subjects that a consumer selects; none if it selects all."""
    return config.get("filter_subjects") or [one for one in [config.get("filter_subject")] if one]


async def ignore_error(error: Exception) -> None:
    """Log nothing: errors are raised where messages are read."""

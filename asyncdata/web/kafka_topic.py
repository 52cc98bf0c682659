"""The source that reads a topic of Kafka: one position for each partition, all of them in a state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

from asyncdata.errors import DataLossError, PlanError, ResumeError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, PHYSICAL, Node, in_turn
from asyncdata.graph.stages import Produce
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, Share
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.tickets import END, Position, Ticket, Tickets
from asyncdata.sources.stateful import StreamPlace
from asyncdata.system.optional_packages import require
from asyncdata.web.kafka_client import EXTRA, client_arguments, reason_of, refusals, words_of
from asyncdata.web.kept_message import KeptMessage
from asyncdata.web.queue_reader import MESSAGES, Begin
from asyncdata.web.reconnecting import Reconnecting

__all__ = ("KafkaTopic",)

WAIT_MILLISECONDS: Final = 1000
"""How long the client waits for records before the broker is asked whether it is there."""

PROBE_SECONDS: Final = 10.0
"""How long the broker may take to answer that."""

PARTITIONS_SECONDS: Final = 30.0
"""How often the broker is asked for partitions that were added."""

Offsets: TypeAlias = dict[int, int]
"""The offset of the next record of each partition."""

Last: TypeAlias = dict[int, tuple[int, int | None]]
"""The offset and the timestamp of the last record that was read of each partition: where another one is there now, the
topic was made anew, or its brokers lost records."""

Place: TypeAlias = tuple[int, int, int | None]
"""The partition of a record, its offset and its timestamp."""

WHOLE: Final = Share(1, 0)


class Progress(NamedTuple):
    """Where each partition is read next. One that is not named was added since, and is read from its beginning; or it
    is `unread`, and is read from where the source says."""

    offsets: Offsets
    last: Last
    unread: Sequence[Sequence[Sequence[int]]] = ()
    """The partitions of a share that nothing was read by, and which it was a share of."""

    def is_unread(self, partition: int) -> bool:
        """Return whether nothing was read by whoever was to read a partition."""
        return any(all(partition % count == index for count, index in shares) for shares in self.unread)


NOTHING_READ: Final = Progress({}, {}, [[]])


@dataclass(frozen=True, eq=False)
class KafkaTopic(Node):
    """The records of a topic: those of a partition in order, those of several as they come.

    A share of it reads some of the partitions. Its elements have every n-th ordinal, so that those of no two shares are
    the same, also after the number of shares has changed.
    """

    servers: str = field(repr=False, metadata=ELSEWHERE)
    topic: str = field(metadata=ELSEWHERE)
    begin: Begin = field(default="oldest", metadata=PHYSICAL)
    follow: bool = field(default=True, metadata=PHYSICAL)
    give_up_seconds: float = field(default=300.0, repr=False, metadata=PHYSICAL)
    client: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, metadata=ELSEWHERE)
    part: Share | None = field(default=None, metadata=ELSEWHERE)
    keep: bool = field(default=False, repr=False, metadata=PHYSICAL)
    """Whether it gives records as they are kept."""

    def stage(self) -> Produce:
        return Produce(self.blocks)

    @property
    def repeatable(self) -> bool:
        return False

    @property
    def may_grow(self) -> bool:
        return not self.follow

    @property
    def resume_note(self) -> str:
        return f"{self.label()} resumes at the offset of each partition"

    def label(self) -> str:
        return self.identity if self.part is None else f"{self.identity}.{self.part}"

    @property
    def identity(self) -> str:
        return f"from_kafka({self.topic})"

    @property
    def share(self) -> Share | None:
        return self.part

    @property
    def own_order(self) -> str:
        return (
            "gives the records of several partitions as they arrive: put shard() right after it, once, without "
            "drop_remainder or pad_remainder"
        )

    def divided(self, share: Share) -> Node | None:
        return replace(self, part=share) if self.part is None else None

    def reads(self, partition: int) -> bool:
        """Return whether a partition is this share's."""
        return self.part is None or partition % self.part.num_shards == self.part.number

    def read_before(self, position: Position) -> int | None:
        return None if position == END else self.parse_position(position, StreamPlace.of).number

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        places = [self.parse_position(position, StreamPlace.of) for position in positions]
        offsets: Offsets = {}
        last: Last = {}
        unread: list[Sequence[Sequence[int]]] = []
        for index, place in enumerate(places):
            found = self.progress(place)
            offsets |= {one: offset for one, offset in found.offsets.items() if one % len(places) == index}
            last |= {one: record for one, record in found.last.items() if one % len(places) == index}
            unread += [[[len(places), index], *shares] for shares in found.unread]
        share, most = resharding.share, max(place.number for place in places)
        number = (most // share.num_shards + 1) * share.num_shards + share.number
        return position_at(self.identity, Progress(offsets, last, unread), number)

    def progress(self, place: StreamPlace) -> Progress:
        """Return where each partition is read next."""
        return NOTHING_READ if place.state is None else self.parse_position(place.state, self.progress_in)

    def progress_in(self, state: str) -> Progress:
        """Return what a state says; `ResumeError` if it is of another topic."""
        saved = json.loads(state)
        if saved["queue"] != self.identity:
            raise ResumeError(
                f"{self.label()}: the state is of {saved['queue']}; give the topic that it was saved with"
            )
        unread = [[[int(count), int(index)] for count, index in shares] for shares in saved.get("unread", ())]
        last: Last = {
            int(partition): (int(offset), timestamp) for partition, (offset, timestamp) in saved.get("last", {}).items()
        }
        return Progress({int(partition): int(offset) for partition, offset in saved["next"].items()}, last, unread)

    def item(self, record: Any) -> Any:
        """Return a record as an element, or as it is kept."""
        item = item_of(record)
        place = f"{record.partition}-{record.offset}"
        return KeptMessage(self.topic, place, "msgpack", dict(item), item) if self.keep else item

    def reader(self, scope: Scope) -> KafkaReader:
        """Return a reader, whose connections end with the scope."""
        reader = KafkaReader(self)
        scope.owned.adopt(scope.loop.create_task(reader.close_at_end()))
        return reader

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the records from a position on, and an error in the place of those that were removed."""
        place = self.parse_position(position, StreamPlace.of)
        if place.number and place.state is None:
            raise ResumeError(f"{self.label()}: the state has no offsets")
        progress = self.progress(place)
        share, reader = self.part or WHOLE, self.reader(scope)
        number = share.number if place.state is None else place.number
        try:
            await reader.start(progress)
            async with aclosing(reader.read(want)) as source:
                async for records in source:
                    before = reader.progress()
                    if isinstance(records, DataLossError):
                        items: list[Any] = [noted(records, self.label(), number, of_source=True)]
                        places = [reader.take_lost()]
                    else:
                        items, places = list(map(self.item, records)), reader.give(records)
                    ordinals = range(number, number + len(items) * share.num_shards, share.num_shards)
                    tickets = KafkaTickets(self.identity, ordinals, before, places, reader.progress())
                    yield Block(items, tickets, Failure in set(map(type, items)))
                    number = ordinals.stop
        finally:
            reader.stopped.set()

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield records that were read before: the ticket of each has its partition and offset."""
        places: dict[Ticket, Place] = {}
        for ticket in tickets:
            state = ticket.snapshot.state if isinstance(ticket, RestorableItem) else None
            saved: Any = json.loads(state) if isinstance(state, str) else {}
            if saved.get("queue") != self.identity or "partition" not in saved:
                raise ResumeError(f"{self.label()}: the state has no offset for element {ticket!r:.40}")
            places[ticket] = saved["partition"], saved["offset"], saved.get("timestamp")
        reader = self.reader(scope)
        try:
            records = await reader.records_at([*places.values()])
            found = {ticket: records[place[:2]] for ticket, place in places.items()}
        finally:
            reader.stopped.set()
        for block in in_turn(found, tickets, want):
            yield block


def position_at(queue: str, progress: Progress, number: int) -> Position:
    """Return the position of element `number`, from which a topic is read on."""
    following = {str(partition): offset for partition, offset in progress.offsets.items()}
    last = {str(partition): list(record) for partition, record in progress.last.items()}
    more = {"last": last, "unread": progress.unread}
    state = {"queue": queue, "next": following, **{name: value for name, value in more.items() if value}}
    return {"state": state, "skip": 0, "number": number}


def item_of(record: Any) -> dict[str, Any]:
    """Return a record as an element."""
    return {
        "key": record.key,
        "value": record.value,
        "headers": tuple(record.headers),
        "timestamp": record.timestamp,
        "partition": record.partition,
        "offset": record.offset,
    }


@final
class KafkaReader:
    """A client of the broker, and where it reads each partition of a topic."""

    def __init__(self, source: KafkaTopic) -> None:
        self.source = source
        self.label = source.label()
        self.kafka: Any = require("aiokafka", "from_kafka", EXTRA)
        self.arguments = client_arguments(source.client)
        self.again = Reconnecting(self.label, source.give_up_seconds)
        self.given: Offsets = {}
        """The offset behind what was given of each partition; tickets keep it, so it is replaced and not changed."""
        self.reached: Offsets = {}
        """The same with what was read last, and the marks of transactions behind it, which are no records."""
        self.last: Last = {}
        """The last record that was given of each partition, kept by tickets as well."""
        self.seen: list[Any] = []
        """The connections to brokers, and which of them leads each partition."""
        self.lost: dict[int, int] = {}
        """The offset up to which the unread records of a partition were removed."""
        self.consumer: Any = None
        self.refreshed = 0.0
        """When the broker was last asked for partitions, by the loop's clock; `inf` to ask for none."""
        self.stopped = asyncio.Event()

    async def close_at_end(self) -> None:
        """Close the connections when reading ends."""
        try:
            await self.stopped.wait()
        finally:
            if self.consumer is not None:
                with suppress(self.kafka.errors.KafkaError, OSError):
                    await self.stop(self.consumer)

    async def stop(self, consumer: Any) -> None:
        """Stop a client, and close its connections, which it leaves open if it waits to try a request again."""
        try:
            await consumer.stop()
        finally:
            await cast("Any", vars(consumer))["_client"].close()  # it has no public name

    async def connect(self) -> list[Any]:
        """Connect, and return the partitions of the topic."""
        while True:
            consumer = self.kafka.AIOKafkaConsumer(
                bootstrap_servers=self.source.servers,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                **self.arguments,
            )
            self.consumer = consumer
            try:
                await consumer.start()
                numbers = await self.numbers(consumer)
                break
            except self.kafka.errors.KafkaConnectionError as error:
                await self.stop(consumer)
                self.consumer = None
                await self.wait(error)
        self.again.received()
        if not numbers:
            raise PlanError(f"{self.label}: there is no such topic")
        partitions = [self.kafka.TopicPartition(self.source.topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        return partitions

    async def numbers(self, consumer: Any) -> set[int]:
        """Ask the broker for the numbers of the topic's partitions; none if there is no such topic.

        The consumer itself knows only topics that it reads, and a broker may make one that is asked for by its name.
        """
        cluster = await cast("Any", vars(consumer))["_client"].fetch_all_metadata()
        return cluster.partitions_for_topic(self.source.topic) or set[int]()

    async def wait(self, error: Exception) -> None:
        """Wait until the broker may be asked again; raise if it was away for too long, or refuses who asks."""
        reason = await reason_of(self.source.servers, self.arguments, PROBE_SECONDS)
        failure = ConnectionError(f"{self.label}: {words_of(reason or error)}")
        failure.__cause__ = reason or error
        if isinstance(reason, refusals()):
            raise failure
        await self.again.wait(failure)

    async def start(self, progress: Progress) -> None:
        """Begin to read at the offsets of a state, or where the source says."""
        partitions = [one for one in await self.connect() if self.source.reads(one.partition)]
        self.consumer.assign(partitions)
        oldest: dict[Any, int] = await self.consumer.beginning_offsets(partitions)
        newest: dict[Any, int] = await self.consumer.end_offsets(partitions)
        for one in partitions:
            fresh = newest if self.source.begin == "new" and progress.is_unread(one.partition) else oldest
            self.given[one.partition] = progress.offsets.get(one.partition, fresh[one])
            if one.partition in progress.last:
                self.last[one.partition] = progress.last[one.partition]
            self.check(one, oldest[one], newest[one])
        self.seek(oldest)
        self.refreshed = asyncio.get_running_loop().time()
        if gone := {*filter(self.source.reads, progress.offsets)} - self.given.keys():
            raise self.renewed(f"partition {min(gone)} is not there")

    def is_moved(self) -> bool:
        """Return whether another broker leads a partition, or the connection to one is another: it may have lost what
        was read."""
        client = cast("Any", vars(self.consumer))["_client"]
        before, leader = self.seen, client.cluster.leader_for_partition
        connections = cast("dict[Any, object]", vars(client)["_conns"])
        self.seen = [*connections.values(), *map(leader, self.consumer.assignment())]
        return self.seen != before

    def seek(self, oldest: Mapping[Any, int]) -> None:
        """Go back to the last record that was given of each partition, if there is one, to compare it."""
        self.is_moved()
        for one in self.consumer.assignment():
            at, _ = self.last.get(one.partition, (self.given[one.partition], None))
            self.consumer.seek(one, max(at, oldest.get(one, 0)))

    def compared(self, records: Sequence[Any]) -> list[Any]:
        """Return those records that were not given before; raise if the last one that was is another one now."""
        for record in records:
            offset, timestamp = self.last.get(record.partition, (-1, None))
            if record.offset == offset:
                self.compare(record, timestamp)
        return [record for record in records if record.offset >= self.given[record.partition]]

    def compare(self, record: Any, timestamp: int | None) -> None:
        """Raise if a record is not the one that was read before at its offset."""
        if timestamp not in (None, record.timestamp):
            place = f"record {record.offset} of partition {record.partition}"
            raise self.renewed(f"{place} was of {timestamp} ms, and is of {record.timestamp} ms")

    def progress(self) -> Progress:
        """Return where each partition is read next."""
        return Progress(self.given, self.last)

    def check(self, one: Any, oldest: int, newest: int, position: int = 0) -> None:
        """Note which unread records of a partition were removed; raise if the topic is another one."""
        at = max(self.given[one.partition], position)
        if at > newest:
            raise self.renewed(f"partition {one.partition} was read up to {at}, and ends at {newest}")
        if at < oldest:
            self.lost[one.partition] = oldest

    def renewed(self, reason: str) -> DataLossError:
        return DataLossError(
            f"{self.label}: the topic was made anew, or its brokers lost records that were read: {reason}; start "
            "without the state"
        )

    def take_lost(self) -> Place:
        """Continue behind records that were removed; return the place of the last of them."""
        partition, end = self.lost.popitem()
        self.given = self.given | {partition: end}
        return partition, end - 1, None

    def give(self, records: Sequence[Any]) -> list[Place]:
        """Note that records are given; return the place of each."""
        places: list[Place] = [(record.partition, record.offset, record.timestamp) for record in records]
        self.given, self.last = behind(self.given, self.last, places)
        self.given = self.given | self.reached
        return places

    async def read(self, want: Demand) -> AsyncGenerator[list[Any] | DataLossError, None]:
        """Yield records, at least one, as many as are wanted; or the error that says how many were removed."""
        ends: dict[Any, int] | None = None
        if not self.source.follow:
            ends = await self.consumer.end_offsets(self.consumer.assignment())
        while True:
            while self.lost:
                partition = next(reversed(self.lost))
                count = self.lost[partition] - self.given[partition]
                yield DataLossError(
                    f"{self.label}: {count} records of partition {partition} were removed before they were read: raise "
                    "the retention of the topic, or read faster"
                )
            if ends is not None and all([await self.consumer.position(one) >= end for one, end in ends.items()]):
                return
            found = await self.poll(min(want.items, MESSAGES))
            if self.is_moved():
                self.seek({})
                continue
            ended: Offsets = {} if ends is None else {one.partition: end for one, end in ends.items()}
            found = [record for record in found if record.offset < ended.get(record.partition, record.offset + 1)]
            found = self.compared(found)
            positions: Offsets = {
                one.partition: await self.consumer.position(one) for one in self.consumer.assignment()
            }
            self.reached = {
                one: max(self.given[one], min(at, ended.get(one, at)))
                for one, at in positions.items()
                if one not in self.lost
            }
            if found:
                yield found

    async def poll(self, most: int) -> list[Any]:
        """Return the next records; an empty list if there are none now."""
        errors = self.kafka.errors
        try:
            await self.add_partitions()
            answer = await self.consumer.getmany(timeout_ms=WAIT_MILLISECONDS, max_records=most)
            if not answer:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.probe()
        except errors.OffsetOutOfRangeError:
            await self.probe()
            return []
        except (errors.KafkaConnectionError, errors.KafkaTimeoutError, errors.NodeNotReadyError, TimeoutError) as error:
            await self.wait(error)
            return []
        self.again.received()
        return [*chain.from_iterable(answer.values())]

    async def add_partitions(self) -> None:
        """Ask now and then for partitions that were added to the topic, and read them from their beginning."""
        now = asyncio.get_running_loop().time()
        if not self.source.follow or now < self.refreshed + PARTITIONS_SECONDS:
            return
        self.refreshed = now
        new = {*filter(self.source.reads, await self.numbers(self.consumer))} - self.given.keys()
        if not new:
            return
        self.given = self.given | dict.fromkeys(new, 0)
        self.consumer.assign([self.kafka.TopicPartition(self.source.topic, number) for number in self.given])
        self.seek({})

    async def probe(self) -> None:
        """Ask the broker whether it is there, and whether what is read next still is."""
        partitions = self.consumer.assignment()
        oldest = await self.consumer.beginning_offsets(partitions)
        newest = await self.consumer.end_offsets(partitions)
        for one in partitions:
            at = await self.consumer.position(one)
            self.check(one, oldest[one], newest[one], at)
            if at < oldest[one]:
                self.consumer.seek(one, oldest[one])

    async def records_at(self, places: Sequence[Place]) -> dict[tuple[int, int], Any]:
        """Return the elements at some partitions and offsets; `ResumeError` if one was removed."""
        partitions = {one.partition: one for one in await self.connect()}
        self.refreshed = inf  # none is added to those that are assigned here
        read = {(partition, offset): timestamp for partition, offset, timestamp in places}
        found: dict[tuple[int, int], Any] = {}
        for number in sorted({partition for partition, _ in read}):
            if number not in partitions:
                raise self.missing(number, 0)
            offsets = sorted(offset for partition, offset in read if partition == number)
            self.consumer.assign([partitions[number]])
            oldest: dict[Any, int] = await self.consumer.beginning_offsets([partitions[number]])
            newest: dict[Any, int] = await self.consumer.end_offsets([partitions[number]])
            if offsets[0] < oldest[partitions[number]] or offsets[-1] >= newest[partitions[number]]:
                raise self.missing(number, offsets[0])
            self.consumer.seek(partitions[number], offsets[0])
            while (number, offsets[-1]) not in found:
                for record in await self.poll(MESSAGES):
                    self.compare(record, read.get((record.partition, record.offset)))
                    found[record.partition, record.offset] = self.source.item(record)
                if await self.consumer.position(partitions[number]) > offsets[-1]:
                    break
        for place in read:
            if place not in found:
                raise self.missing(*place)
        return {place: found[place] for place in read}

    def missing(self, partition: int, offset: int) -> ResumeError:
        return ResumeError(
            f"{self.label}: record {offset} of partition {partition}, which the state needs again, was removed; start "
            "without the state"
        )


def behind(offsets: Offsets, last: Last, places: Sequence[Place]) -> tuple[Offsets, Last]:
    """Return where each partition is read next, and its last record, behind some records."""
    given = {partition: (offset, timestamp) for partition, offset, timestamp in places}
    return offsets | {partition: offset + 1 for partition, (offset, _) in given.items()}, last | given


@final
class KafkaTickets(Tickets):
    """The tickets of records that were given together, each with its place."""

    __slots__ = ("before", "behind", "numbers", "places", "queue")

    def __init__(
        self, queue: str, ordinals: range, before: Progress, places: Sequence[Place], behind: Progress
    ) -> None:
        self.queue = queue
        self.numbers = ordinals
        self.before = before
        self.places = places
        self.behind = behind

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> RestorableItem:
        partition, offset, timestamp = self.places[index]
        state = {"queue": self.queue, "partition": partition, "offset": offset, "timestamp": timestamp}
        number = self.numbers[index]
        return RestorableItem.at(number, SourceSnapshot(number, json.dumps(state)))

    def at(self, count: int) -> Position:
        number = self.numbers.start + count * self.numbers.step
        if count == len(self):
            return position_at(self.queue, self.behind, number)
        progress = Progress(*behind(self.before.offsets, self.before.last, self.places[:count]))
        return position_at(self.queue, progress, number)

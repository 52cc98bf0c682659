"""The source that reads a durable channel from its folder."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.record_store import RecordStore
from asyncdata.errors import ConcurrentUseError, ResumeError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, PHYSICAL, REPLACEABLE, Node, in_turn
from asyncdata.graph.stages import Produce
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.tickets import Position, Ticket
from asyncdata.sources.stateful import SnapshotTickets, StreamPlace
from asyncdata.storage.locks import FileLock
from asyncdata.web.decoding import BodyDecoder, Decode
from asyncdata.web.folder import TOO_MANY, ChannelFolder, LogReader, WakeFile
from asyncdata.web.plain_records import PlainRecords
from asyncdata.web.reading import ReadingFile
from asyncdata.web.received import Freshness
from asyncdata.web.record import Frame, Kind, Record
from asyncdata.web.schema import Schema

__all__ = ("Stored",)

log = logging.getLogger("asyncdata")

NO_LIMIT = 1 << 62

TOO_MANY_SECONDS: Final = 1.0
"""How long a reader waits where too many files are open."""


@dataclass(frozen=True, eq=False)
class Stored(Node):
    """The items that a durable channel has stored and will store."""

    path: str = field(metadata=ELSEWHERE, repr=False)
    decode: Decode | Schema | None = field(default=None, repr=False, metadata=REPLACEABLE)
    freshness: Freshness | None = field(default=None, repr=False, metadata=ELSEWHERE)
    ack: Literal["state", "delivered"] = field(default="state", repr=False, metadata=PHYSICAL)
    follow: bool = field(default=True, repr=False, metadata=PHYSICAL)

    def stage(self) -> Produce:
        return Produce(self.blocks)

    @property
    def repeatable(self) -> bool:
        return False

    @property
    def own_order(self) -> str:
        return "deletes items as it delivers them" if self.ack == "delivered" else ""

    @property
    def may_grow(self) -> bool:
        return not self.follow

    def label(self) -> str:
        return "from_channel(DurableChannel)"

    @property
    def folder(self) -> ChannelFolder:
        """The folder of the channel."""
        return ChannelFolder(self.path)

    def read_before(self, position: Position) -> int | None:
        return None if position == "end" else self.parse_position(position, StreamPlace.of).number

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield elements that were read before: the ticket of each has the offset of its record."""
        found: dict[Ticket, Any] = {}
        folder = self.folder
        by_place: dict[int, list[RestorableItem]] = {}
        for ticket in tickets:
            if not isinstance(ticket, RestorableItem) or not isinstance(ticket.snapshot.state, str):
                raise ResumeError(
                    f"{self.label()}: the state has no offset for element {ticket!r:.40}: it is of another "
                    "pipeline, or damaged"
                )
            by_place.setdefault(self.parse_position(ticket.snapshot.state, partial(self.offset, folder)), []).append(
                ticket
            )
        for offset, some in by_place.items():
            reader = LogReader(folder, offset)
            try:
                frames = await scope.in_thread(reader.read)
            finally:
                reader.close()
            items = self.elements(self.items(frames[0])) if frames else []
            found.update((one, items[index]) for one in some if 0 <= (index := one - one.snapshot.number) < len(items))
        for block in in_turn(found, tickets, want):
            yield block

    def offset(self, folder: ChannelFolder, state: str) -> int:
        """Return the offset in a state; `ResumeError` if it is of another channel."""
        saved = json.loads(state)
        if saved["channel"] != folder.id:
            raise ResumeError(f"{self.label()}: the state is of another channel than the one in {folder.path}")
        return int(saved["offset"])

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the items of the records on the disk, and wait for more."""
        place, folder = self.parse_position(position, StreamPlace.of), self.folder
        with self.exclusive(folder), closing(ReadingFile(folder, place.number)) as reading:
            output = OutputBuffer(self, folder.id, place)
            async with aclosing(self.frames(scope, folder, self.begin(folder, place))) as source:
                async for frames in source:
                    coming = deque(frames)
                    while True:
                        while coming and output.waiting < want.items:
                            self.add_frame(output, coming.popleft())
                        if output.dropped:
                            with suppress(OSError):  # the disk is full
                                folder.dropped.write((folder.dropped.read() or 0) + output.dropped)
                                output.dropped = 0
                        if output.end != reading.known.offset:
                            reading.add(output.end, output.stop, output.versions)
                            output.versions = []
                        if not output.waiting:
                            break
                        if self.ack == "delivered":
                            folder.delivered.write(output.end)
                        yield output.next(want.items)

    def begin(self, folder: ChannelFolder, place: StreamPlace) -> int | None:
        """Return where in the log a run begins; `None` for the oldest record."""
        if place.state is not None:
            return self.parse_position(place.state, partial(self.offset, folder))
        if place.number:
            raise ResumeError(
                f"{self.label()}: the state has no offset in the channel: it is of another pipeline, or damaged"
            )
        return max([folder.delivered.read() or 0, *folder.segments()[:1]]) if self.ack == "delivered" else None

    @contextmanager
    def exclusive(self, folder: ChannelFolder) -> Generator[None]:
        """Exclude other readers, if items are deleted when they are delivered."""
        lock = FileLock.take(folder.path / "reader") if self.ack == "delivered" else None
        if self.ack == "delivered" and lock is None:
            raise ConcurrentUseError(
                f"{self.label()}: {folder.path} has a reader already; with ack='delivered' each element is given once, "
                "so only one may read"
            )
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    async def frames(
        self, scope: Scope, folder: ChannelFolder, offset: int | None
    ) -> AsyncGenerator[list[Frame], None]:
        """Yield the frames that are there, repeatedly, and wait if there are none."""
        segment, is_new = -1, False
        with closing(LogReader(folder, offset)) as reader, self.woken_by_writer(scope, folder) as woken:
            while True:
                woken.clear()
                try:
                    # what was written just now is in the system's memory, and read in less time than a thread is woken
                    found = reader.read() if is_new else await scope.in_thread(reader.read)
                except OSError as error:
                    if not self.follow or error.errno not in TOO_MANY:
                        raise
                    log.warning("%s: %s; it is read again in a while", self.label(), error)
                    await asyncio.sleep(TOO_MANY_SECONDS)
                    continue
                ended = bool(found) and is_end(found[-1])
                if ended:  # a run that continues there must find it again
                    found.pop()
                if found:
                    yield found
                if ended or not (found or self.follow):
                    return
                if self.ack == "delivered" and reader.start != segment:
                    segment = reader.start
                    await scope.in_thread(partial(folder.trim, segment))
                is_new = self.follow and not reader.behind and not woken.is_set()
                if is_new:
                    await woken.wait()

    @contextmanager
    def woken_by_writer(self, scope: Scope, folder: ChannelFolder) -> Generator[asyncio.Event]:
        """Give an event that is set when something is stored; one that never is to who does not wait for that, and
        may read a folder in which nothing can be written."""
        woken = asyncio.Event()
        if not self.follow:
            yield woken
            return
        wake = WakeFile(folder)
        scope.loop.add_reader(wake.descriptor, lambda: (wake.clear(), woken.set()))
        try:
            yield woken
        finally:
            scope.loop.remove_reader(wake.descriptor)
            wake.close()

    def add_frame(self, output: OutputBuffer, frame: Frame) -> None:
        """Add the items of a frame, unless they are stale or the frame has no data."""
        record = frame.record
        if isinstance(record, Record):
            if record.kind != Kind.DATA:
                output.skip_frame(frame)
                return
            stale = None if self.freshness is None or output.skip else self.freshness.now(time.time)
            if stale is not None and stale(record.since, record.version):
                output.dropped += len(self.items(frame))
                output.skip_frame(frame)
                return
        before = output.stop
        output.add(frame, self.items(frame))
        if isinstance(record, Record) and record.version is not None:
            output.versions.append((record.version, output.stop - before))

    def items(self, frame: Frame) -> list[Any]:
        """Return the items of a frame or their records, with a failure in the place of each that cannot be made, or of
        all."""
        if not isinstance(frame.record, Record):
            return [Failure(frame.record)]
        decoder = BodyDecoder(frame.record.form, self.decode, NO_LIMIT, NO_LIMIT, failures_in_place=True)
        try:
            return decoder.whole(frame.record.body)
        except Exception as error:  # noqa: BLE001  of the user's function, or of a body that was not looked at
            return [Failure(error)]

    @property
    def records(self) -> PlainRecords | None:
        """What makes items of records, if these are decoded."""
        return self.decode.records if isinstance(self.decode, Schema) else None

    def elements(self, items: list[Any]) -> list[Any]:
        """Return the elements of items among which may be failures."""
        if self.records is None:
            return items
        made = iter(self.records.elements([item for item in items if type(item) is not Failure]))
        return [item if type(item) is Failure else next(made) for item in items]

    def block(self, items: list[Any], tickets: SnapshotTickets) -> Block:
        """Return items or records, among which may be failures."""
        failed = Failure in set(map(type, items))
        if self.records is None or failed:
            return Block(self.elements(items), tickets, failed)
        return Block.of_columns([ColumnBatch.of_store(RecordStore(items, self.records))], tickets)


def is_end(frame: Frame) -> bool:
    """Return whether a frame is the end of the channel."""
    return isinstance(frame.record, Record) and frame.record.kind == Kind.END


class OutputBuffer:
    """Items that were read and not yet delivered, and the offset in the log from which each can be read again.

    Items of the first record that were delivered before are left out.
    """

    def __init__(self, node: Stored, channel: str, place: StreamPlace) -> None:
        self.node = node
        self.label = node.label()
        self.state = f'{{"channel":"{channel}","offset":%d}}'
        self.start = self.stop = place.number
        self.skip = place.skip
        self.end = 0
        """Where the last record ends whose items were added."""
        self.dropped = 0
        """How many items were stale since that was last stored."""
        self.versions: list[tuple[int, int]] = []
        """The versions of the records that were added since that was last stored, and how many items each has."""
        self.items: list[Any] = []
        self.taken = 0
        self.snapshots: list[SourceSnapshot] = []

    @property
    def waiting(self) -> int:
        """How many items are not yet delivered."""
        return self.stop - self.start

    def add(self, frame: Frame, items: list[Any]) -> None:
        """Add the items of a frame."""
        if self.skip > len(items):
            raise ResumeError(
                f"{self.label}: {self.skip} items of the record at byte {frame.begin} had been delivered when the "
                f"state was saved, but it has only {len(items)} now; decode= must return as many as before"
            )
        self.note(self.stop - self.skip, frame.begin)
        for place, item in enumerate(items):
            if type(item) is Failure:
                number = self.stop - self.skip
                snapshot = SourceSnapshot(number, self.state % frame.begin)
                items[place] = noted(item.error, self.label, RestorableItem.at(number + place, snapshot))
        self.items += items[self.skip :] if self.skip else items
        self.stop += len(items) - self.skip
        self.skip_frame(frame)

    def skip_frame(self, frame: Frame) -> None:
        """Continue after a frame."""
        self.skip, self.end = 0, frame.end
        self.note(self.stop, frame.end)

    def note(self, number: int, offset: int) -> None:
        """Record that the items from a number on can be read from an offset on."""
        if self.snapshots and self.snapshots[-1].number == number:
            self.snapshots.pop()
        self.snapshots.append(SourceSnapshot(number, self.state % offset))

    def next(self, limit: int) -> Block:
        """Return at most `limit` items."""
        start, stop = self.start, min(self.stop, self.start + limit)
        taken = self.taken + stop - start
        all_of_them = not self.taken and taken == len(self.items)
        items = self.items if all_of_them else self.items[self.taken : taken]
        if taken == len(self.items):
            self.items, self.taken = [], 0
        else:
            self.taken = taken
        first = bisect_right(self.snapshots, start, key=number_of) - 1
        last = bisect_right(self.snapshots, stop, key=number_of)
        tickets = SnapshotTickets(start, stop, self.snapshots[first:last])
        self.start, self.snapshots = stop, self.snapshots[last - 1 :]
        return self.node.block(items, tickets)


def number_of(snapshot: SourceSnapshot) -> int:
    return snapshot.number

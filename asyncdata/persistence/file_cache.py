"""cache in a file: elements are written as they are read, for later epochs and other processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError, ResumeError, annotate
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.formats.element_codec import encode_element
from asyncdata.formats.tfrecord import frame
from asyncdata.graph.node import ELSEWHERE, PHYSICAL, Node, Unary, picked
from asyncdata.graph.stages import Opener, Rerun
from asyncdata.identity.content_hash import contents
from asyncdata.identity.position_check import check_position
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.persistence.cache_writer import CacheWriter, PositionMark, begin_writing
from asyncdata.persistence.header import HEAD, TAIL, Header, recorded_count
from asyncdata.persistence.record_reader import decoded, elements_at
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import END, ChildTickets, Ordinals, Position, Start, Ticket
from asyncdata.sources.tfrecord import RecordFile
from asyncdata.sources.tfrecord_random_access import IndexCache
from asyncdata.states import chosen_seeds
from asyncdata.storage import AppendFile, Entry
from asyncdata.transforms.cache import FIRST, CachePosition, numbered

__all__ = ("FileCache",)

FIRST_EPOCH: Final = (0,)
"""A file holds the first epoch, wherever in a pipeline it is read or written."""

SMALL: Final = 1 << 16
"""Blocks of fewer bytes are written at once, larger ones in a thread, as the disk may be slow."""

BEHIND: Final = "steps before it are cached, and steps after it run in each epoch"
"""The note on an element that cannot be written."""


@dataclass(frozen=True, eq=False)
class FileCache(Unary):
    """The input's elements, computed once and stored in a file. Rules do not rewrite the input: the file describes
    it."""

    path: str = field(metadata=ELSEWHERE)
    made_of: tuple[str, ...] = field(repr=False, metadata=ELSEWHERE)
    """The hashes of what the input's label does not show, taken when this was made: functions change what they hold."""
    indexes: IndexCache = field(default_factory=IndexCache, repr=False, metadata=PHYSICAL)
    method: str = field(default="cache", repr=False, metadata=PHYSICAL)

    sealed = True

    @staticmethod
    def of(plan: Node, path: str, max_record_bytes: int) -> FileCache:
        return FileCache(plan, path, tuple(contents(plan)), IndexCache(max_record_bytes))

    @staticmethod
    def named(plan: Node, folder: str, max_record_bytes: int) -> FileCache:
        """Return the node for a file of a folder, whose name follows from the plan."""
        digests = tuple(contents(plan))
        path = snapshot_path(Header.of(plan, digests), plan, folder)
        return FileCache(plan, path, digests, IndexCache(max_record_bytes), "snapshot")

    def label(self) -> str:
        return f"{self.method}({self.path})"

    @property
    def identity(self) -> str:
        """The label of `cache` with the base name: files may be moved to another folder."""
        return f"cache({Path(self.path).name})"

    def stage(self) -> Rerun:
        return Rerun(self.blocks)

    @property
    def stored_count(self) -> int | None:
        """How many elements the file of this pipeline has; `None` while it is not complete, or if it is another
        pipeline's."""
        with suppress(ResumeError):
            if self.heading(self.path) is not None:
                return recorded_count(self.path)
        return None

    @property
    def cardinality(self) -> int:
        known = self.input.cardinality
        return known if known != UNKNOWN_CARDINALITY or self.stored_count is None else self.stored_count

    @property
    def random_access(self) -> bool:
        return self.stored_count is not None

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return places

    def seek(self, count: int) -> Position:
        stored = self.stored_count
        if stored is None:
            return super().seek(count)
        header = self.heading(self.path)
        return END if count >= stored else CachePosition(count, None, header and header.seeds).position()

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if isinstance(tickets[0], tuple):
            return self.as_filled().open(
                scope.with_epoch(FIRST_EPOCH), want, Start(END, [ticket for _, ticket in tickets])
            )
        stored = self.stored_count
        if stored is None:
            return picked(self, scope, want, tickets)
        if max(tickets) >= stored or self.indexes.now(self.path).count != stored + 2:
            return self.searched(scope, want, tickets)
        spots = [(self.path, number + 1) for number in tickets]  # the first record is the heading
        return elements_at(self.indexes.fetch(spots, scope, want, tickets), spots, "cache")

    async def searched(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the elements with these numbers from a file that is damaged, as far as they can be found."""
        done = 0
        async with aclosing(picked(self, scope, want, tickets)) as source:
            async for block in source:
                done += len(block)
                yield block
        if done < len(tickets):
            raise DataLossError(
                f"{self.path}: it is damaged before element {tickets[done]}; delete it, and it is written again"
            )

    def as_filled(self) -> Node:
        """Return the input with the seeds of the stored elements."""
        header = self.heading(self.path) or self.heading(str(AppendFile.partial(self.path)))
        return self.input if header is None else header.seeded(self.input)

    def heading(self, path: str) -> Header | None:
        """Return the heading of a file, which must be of this pipeline; `None` if there is no file."""
        header = Header.read(path)
        if header is not None:
            header.check(path, self.input, self.made_of)
        return header

    async def blocks(self, scope: Scope, opener: Opener, want: Demand, position: Position) -> Blocks:
        """Yield the stored elements, then the rest of the input."""
        place = self.parse_position(position, CachePosition.of)
        heading = self.heading(self.path)
        if place.input is not None:
            passing = self.passing(scope, want, Start.of(place.input))
        elif heading is not None:
            passing = self.stored(self.path, self.resumable(heading, place), scope, want, place.done)
        else:
            passing = self.begun(scope, want, place)
        async with aclosing(passing):
            async for block in passing:
                yield block

    def resumable(self, heading: Header, place: CachePosition) -> Header:
        """Return the heading of a file, in which a run may continue at `place` if that is of the same order."""
        if place.seeds is not None and [*map(list, place.seeds)] != [*map(list, heading.seeds)]:
            raise ResumeError(
                f"{self.path}: the file was written again after the state was taken, in another order, as the steps "
                "before the cache have no seed; start without the state, or give these steps a seed"
            )
        return heading

    def begun(self, scope: Scope, want: Demand, place: CachePosition) -> Blocks:
        """Yield all elements after a place, and write them, unless another process does."""
        if place.done and not self.input.in_order:
            raise ResumeError(
                f"{self.path}: the state was taken while this file was read; the file is gone, and writing it again "
                "would give another order"
            )
        heading = Header.of(self.input, self.made_of)
        heading = heading if place.seeds is None else heading._replace(seeds=place.seeds)
        writing = begin_writing(self.path, heading, self.indexes.most)
        if writing is None:
            return self.read_or_run(scope, want, place, heading)
        return self.filled(writing, scope, want, place)

    def read_or_run(self, scope: Scope, want: Demand, place: CachePosition, own: Header) -> Blocks:
        """Yield what another process has written, or run the input in its order while another process writes."""
        partial = str(AppendFile.partial(self.path))
        header = self.heading(partial)
        if header is None and self.heading(self.path) is None:  # the other process has not begun it yet
            AppendFile.begin(self.path, frame(own.record()))
            header = self.heading(partial)
        if (heading := self.heading(self.path)) is not None:
            return self.stored(self.path, self.resumable(heading, place), scope, want, place.done)
        if not self.input.in_order:
            return self.passing(scope, want, Start())
        header = header or own
        source = self.resumable(header, place).seeded(self.input)
        return self.counted(
            source.open(scope.with_epoch(FIRST_EPOCH), want, Start(skip=place.done)), header, place.done
        )

    async def counted(self, source: Blocks, heading: Header, number: int) -> Blocks:
        """Yield elements with their numbers, the first of which is `number`."""
        async with aclosing(source):
            async for block in source:
                yield numbered(self.writable(number, block), number, heading.seeds)
                number += len(block)

    async def passing(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Yield elements of an input without a fixed order as they come: a state holds the position of the input."""
        async with aclosing(self.as_filled().open(scope.with_epoch(FIRST_EPOCH), want, start)) as source:
            number = 0
            async for block in source:
                yield in_passing(self.writable(number, block))
                number += len(block)

    async def filled(self, writing: CacheWriter, scope: Scope, want: Demand, place: CachePosition) -> Blocks:
        """Yield the elements in the file, then the rest of the input, which is written."""
        done = place.done
        try:
            writing.heading.check(writing.path, self.input, self.made_of)
            seeds = self.resumable(writing.heading, place).seeds
            await scope.in_thread(writing.find)
            if writing.complete:
                async with aclosing(self.stored(self.path, writing.heading, scope, want, done)) as source:
                    async for block in source:
                        yield block
                return
            behind = writing.marked()
            number = writing.count if self.input.in_order else 0
            async with aclosing(self.before(writing, scope, want, done, number)) as source:
                async for block in source:
                    yield block
            async with aclosing(self.rest(writing, scope, want, behind, number)) as source:
                async for made in source:
                    block = await self.append(writing, number, made, scope)
                    first, number = number, number + len(block)
                    if number > done:
                        out = numbered(block, first, seeds) if self.input.in_order else in_passing(block)
                        yield out.slice(max(0, done - first), len(block))
            await scope.in_thread(lambda: writing.finish(number))
        finally:
            writing.leave()

    async def before(self, writing: CacheWriter, scope: Scope, want: Demand, done: int, count: int) -> Blocks:
        """Yield the elements in the file; another reader may complete and rename the file while it is opened."""
        while done < count:
            path = writing.path
            async with aclosing(self.stored(path, writing.heading, scope, want, done, count)) as source:
                async for block in source:
                    done += len(block)
                    yield block
            if done < count and path == await scope.in_thread(writing.current_path):
                raise DataLossError(
                    f"{path}: it ends after {done} elements, and had {count}; delete it, and it is written again"
                )

    def rest(self, writing: CacheWriter, scope: Scope, want: Demand, behind: PositionMark, number: int) -> Blocks:
        """Run the input from element `number` on."""
        check_position(self.input, behind.position)
        start = Start.of(behind.position)
        start = dataclasses.replace(start, skip=start.skip + number - behind.elements)
        return writing.heading.seeded(self.input).open(scope.with_epoch(FIRST_EPOCH), want, start)

    async def append(self, writing: CacheWriter, number: int, block: Block, scope: Scope) -> Block:
        """Write a block, in a thread if it is large, and return it; elements that cannot be written become failures."""
        try:
            if size_of(block) < SMALL:
                return self.appended(writing, number, block)
            return await scope.in_thread(lambda: self.appended(writing, number, block))
        except OSError as error:
            error.add_note(f"in {self.label()}, after {writing.count} elements, which remain in the file")
            raise

    def appended(self, writing: CacheWriter, number: int, block: Block) -> Block:
        """Write the elements after those in the file, up to the first that failed or cannot be written."""
        try:
            writing.append(number, block)
        except (OSError, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - of one element, which is found now
            found = self.writable(number, block)
            writing.append(number, found)
            return found
        return block if writing.count >= number + len(block) else self.writable(number, block)

    def writable(self, number: int, block: Block) -> Block:
        """Return a block whose first element has this number; elements that cannot be written become failures."""
        if block.columns and all(part.complete for part in block.columns):
            return block
        items = [self.or_failure(item, number + place) for place, item in enumerate(block.items)]
        failed = Failure in set(map(type, items))
        return Block(items, block.tickets, True) if failed else block

    def or_failure(self, item: Any, number: int) -> Any:
        """Return an item, or the failure in the place of one that cannot be written."""
        try:
            if type(item) is not Failure:
                encode_element(item)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - also of an element's own attributes
            failure = noted(error, self.label(), number)
            annotate(failure.error, BEHIND)
            return failure
        return item

    async def stored(
        self, path: str, heading: Header, scope: Scope, want: Demand, done: int, count: int = -1
    ) -> Blocks:
        """Yield the elements in a file from number `done` on, to number `count` or to its end."""
        offset, number = await scope.in_thread(lambda: self.near(path, done)) if count < 0 and done else (0, -1)
        file = RecordFile(path, max_record_bytes=self.indexes.most)
        content = file.contents_of(scope, offset)
        async with aclosing(content), aclosing(file.parts(content, Entry(path), want, offset)) as source:
            async for found in source:
                records: list[Any] = [*found.elements]
                head, first = number < 0, max(0, number)
                tail = len(records) > head and isinstance(last := records[-1], bytes) and last.startswith((HEAD, TAIL))
                part = self.elements(path, records[head : len(records) - tail], first)
                number = first + len(part)
                if tail and (short := self.checked(path, records[-1], number)):
                    part = Block([*part.items, *short], Ordinals(first, number + 1), True)
                if count >= 0:
                    part = part.slice(0, count - first)
                if part and first + len(part) > done:
                    yield numbered(part, first, heading.seeds).slice(max(0, done - first), len(part))
                if tail or 0 <= count <= number:
                    return
        if count < 0:
            lost = DataLossError(
                f"{path}: it ends too early, after {number} elements; delete it, and it is written again"
            )
            yield numbered(Block([noted(lost, self.label(), number, of_source=True)], failed=True), number)

    def near(self, path: str, number: int) -> tuple[int, int]:
        """Return the byte offset of element `number`, and its number; the beginning if there is none."""
        with suppress(IndexError, OSError):
            return self.indexes.now(path).span(number + 1)[0], number
        return 0, -1

    def elements(self, path: str, records: list[Any], first: int) -> Block:
        """Return elements, or failures in their places; the first has this number."""
        items = decoded(records)
        if isinstance(items, ColumnBatch):
            return Block.of_columns([items], Ordinals(first, first + len(items)))
        failed = any(issubclass(kind, Exception) for kind in set(map(type, items)))
        if failed:
            for place, item in enumerate(items):
                if isinstance(item, Exception):
                    if item is not records[place]:  # whose message names the file
                        item.add_note(f"in file {path}")
                    items[place] = noted(item, self.label(), first + place)
        return Block(items, Ordinals(first, first + len(items)), failed)

    def checked(self, path: str, tail: bytes, count: int) -> list[Failure]:
        """Return nothing if a file has as many elements as its end says, else the failure that follows them."""
        expected = int(tail.removeprefix(TAIL))
        if expected == count:
            return []
        lost = DataLossError(
            f"{path}: it has {count} elements, but should have {expected}; delete it, and it is written again"
        )
        return [noted(lost, self.label(), count, of_source=True)]


def in_passing(block: Block) -> Block:
    """Return a block with tickets that hold the position of the input."""
    tickets = ChildTickets(FIRST, block.tickets, lambda position: CachePosition(0, position).position())
    return block.ticketed(tickets)


def size_of(block: Block) -> int:
    """Return about how many bytes some elements have; nested ones count as large."""
    if block.columns:
        return sum([len(part) * part.weight for part in block.columns])
    try:
        return sum([getattr(item, "nbytes", 1024) for item in block.items])
    except Exception:  # noqa: BLE001 - of an element's own `nbytes`
        return SMALL


def snapshot_path(heading: Header, plan: Node, folder: str) -> str:
    """Return the path of a pipeline's file in a folder: its name is a hash of the heading, without random seeds."""
    words = repr((heading.plan, heading.contents, heading.shares, chosen_seeds(plan))).encode()
    return str(Path(folder, blake2b(words, digest_size=16).hexdigest()))

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
from asyncdata.persistence.header import HEAD, TAIL, EndMark, Header, recorded_end
from asyncdata.persistence.record_reader import decoded, elements_at
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.source_state import has_offset
from asyncdata.runtime.tickets import (
    END,
    FRESH,
    ChildTickets,
    Ordinals,
    Position,
    Start,
    Ticket,
    WrappedTickets,
    name_of,
)
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

BEGINNING: Final = CachePosition()

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
            if self.heading(self.path) is not None and (mark := recorded_end(self.path)) is not None:
                return mark.elements
        return None

    @property
    def cardinality(self) -> int:
        known = self.input.cardinality
        return known if known != UNKNOWN_CARDINALITY or self.stored_count is None else self.stored_count

    @property
    def random_access(self) -> bool:
        return self.stored_count is not None

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        heading = self.heading(self.path)
        name = None if heading is None else heading.name(self.input)
        return places if name is None else [(name, place) for place in places]

    def seek(self, count: int) -> Position:
        stored, heading = self.stored_count, self.heading(self.path)
        if stored is None or heading is None:
            return super().seek(count)
        return END if count >= stored else dataclasses.replace(place_in(heading), done=count).position()

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if isinstance(tickets[0], tuple) and tickets[0][0] == FIRST:
            start = Start(END, [ticket for _, ticket in tickets])
            return self.input.open(scope.with_epoch(FIRST_EPOCH), want, start)
        stored, heading = self.stored_count, self.heading(self.path)
        if stored is None or heading is None:
            return self.written_first(scope, want, tickets)
        named: list[tuple[int | None, int]] = [one if isinstance(one, tuple) else (None, one) for one in tickets]
        if not {name for name, _ in named} <= {heading.its_name, heading.name(self.input)}:
            raise self.written_again(heading.checksum is not None)
        places = [place for _, place in named]
        if max(places) >= stored or self.indexes.now(self.path).count != stored + 2:
            return self.searched(scope, want, tickets)
        spots = [(self.path, place + 1) for place in places]  # the first record is the heading
        return elements_at(self.indexes.fetch(spots, scope, want, tickets), spots, "cache")

    async def searched(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the elements with these numbers from a file that is damaged, as far as they can be found."""
        done = 0
        async with aclosing(picked(self, scope, want, tickets, check=self.check_names)) as source:
            async for block in source:
                done += len(block)
                yield block
        if done < len(tickets):
            raise DataLossError(
                f"{self.path}: it is damaged before element {tickets[done]}; delete it, and it is written again"
            )

    def heading(self, path: str) -> Header | None:
        """Return the heading of a file, which must be of this pipeline; `None` if there is no file."""
        header = Header.read(path)
        if header is not None:
            header.check(path, self.input, self.made_of)
        return header

    async def blocks(self, scope: Scope, opener: Opener, want: Demand, position: Position) -> Blocks:
        """Yield the stored elements, then the rest of the input."""
        place = self.parse_position(position, CachePosition.of)
        async with aclosing(self.elements_after(scope, want, place)) as source:
            async for block in source:
                yield block

    def elements_after(self, scope: Scope, want: Demand, place: CachePosition) -> Blocks:
        """Yield all elements after a place: from the file if it is complete, and of the order of that place."""
        heading = self.heading(self.path)
        if place.input is not None and (heading or not self.input.in_order or has_offset(place.input)):
            return self.passing(scope, want, Start.of(place.input), place.done)
        if heading is not None:
            return self.stored(self.path, self.resumable(heading, place), scope, want, place.done)
        return self.begun(scope, want, place)

    def resumable(self, heading: Header, place: CachePosition) -> Header:
        """Return the heading of a file, in which a run may continue at `place` if that is of the same order."""
        other = place.seeds is not None and [*map(list, place.seeds)] != [*map(list, heading.seeds)]
        if other or (place.written != heading.checksum and place != BEGINNING):
            raise self.written_again(place.written != heading.checksum)
        return heading

    async def written_first(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the elements with these numbers, which those that may differ have once all are written."""
        if self.input.in_order and not self.input.repeatable:
            await self.write(self.run(scope, Demand(1024), FRESH))
        find = picked(self, scope, want, tickets, check=self.check_names) if self.stored_count is None else None
        async with aclosing(find or self.fetch(scope, want, tickets)) as source:
            async for block in source:
                yield block

    async def write(self, source: Blocks) -> None:
        """Read all elements, so that they are written."""
        async with aclosing(source):
            async for _ in source:
                pass

    def check_names(self, block: Block, tickets: Sequence[Ticket]) -> None:
        """Raise `ResumeError` if a block is of another file than that of some tickets."""
        if name_of(block.tickets[0]) not in {*map(name_of, tickets)}:
            raise self.written_again(True)

    def written_again(self, varies: bool) -> ResumeError:
        why = (
            "maybe with other elements, or in another order, as the steps before the cache do not give the same in "
            "each run; restore the file, or start without the state"
            if varies
            else "in another order, as the steps before the cache have no seed; start without the state, or give these "
            "steps a seed"
        )
        return ResumeError(f"{self.path}: the file was written again after the state was taken, {why}")

    def begun(self, scope: Scope, want: Demand, place: CachePosition) -> Blocks:
        """Yield all elements after a place, and write them, unless another process does."""
        if (place.written is not None or place.done) and not self.input.in_order:
            raise self.gone()
        heading = Header.of(self.input, self.made_of)
        heading = heading if place.seeds is None else heading._replace(seeds=place.seeds)
        writing = begin_writing(self.path, heading, self.indexes.most)
        if writing is None:
            return self.read_or_run(scope, want, place, heading)
        if place.written is not None:
            return self.filled_first(writing, scope, want, place)
        return self.filled(writing, scope, want, place)

    async def filled_first(self, writing: CacheWriter, scope: Scope, want: Demand, place: CachePosition) -> Blocks:
        """Write the file again, and yield the elements after a place if they are the same as before."""
        await self.write(self.filled(writing, scope, Demand(1024), BEGINNING))
        if self.heading(self.path) is None:
            raise self.gone()
        async with aclosing(self.elements_after(scope, want, place)) as source:
            async for block in source:
                yield block

    def gone(self) -> ResumeError:
        return ResumeError(
            f"{self.path}: the state was taken while this file was read; the file is gone, and writing it again may "
            "give other elements, or another order; restore the file, or start without the state"
        )

    def read_or_run(self, scope: Scope, want: Demand, place: CachePosition, own: Header) -> Blocks:
        """Yield what another process has written, or run the input in its order while another process writes."""
        partial = str(AppendFile.partial(self.path))
        header = self.heading(partial)
        if header is None and self.heading(self.path) is None:  # the other process has not begun it yet
            AppendFile.begin(self.path, frame(own.record()))
            header = self.heading(partial)
        if self.heading(self.path) is not None:
            return self.elements_after(scope, want, place)
        header = header or own
        if place.written is not None:
            raise self.gone()
        if not (header.repeatable and own.repeatable):
            return self.passing(scope, want, Start(skip=place.done), place.done)
        source = self.resumable(header, place).seeded(self.input)
        return self.counted(
            source.open(scope.with_epoch(FIRST_EPOCH), want, Start(skip=place.done)), header, place.done
        )

    async def counted(self, source: Blocks, heading: Header, number: int) -> Blocks:
        """Yield elements with their numbers, the first of which is `number`."""
        named = self.numbering(heading)
        async with aclosing(source):
            async for block in source:
                yield numbered(self.writable(number, block), number, *named)
                number += len(block)

    async def passing(self, scope: Scope, want: Demand, start: Start, number: int) -> Blocks:
        """Yield elements as they come, from `number` on, of an input that may give others in another run."""
        async with aclosing(self.input.open(scope.with_epoch(FIRST_EPOCH), want, start)) as source:
            async for block in source:
                yield self.in_passing(self.writable(number, block), number)
                number += len(block)

    def in_passing(self, block: Block, first: int) -> Block:
        """Return a block, the first of whose elements has this number, with tickets that hold the input's position."""
        first, step = (first, 1) if self.input.in_order else (0, 0)
        tickets = ChildTickets(FIRST, block.tickets, lambda position: position)
        return block.ticketed(
            WrappedTickets(tickets, lambda count, inner: CachePosition(first + step * count, inner).position())
        )

    def numbering(self, heading: Header) -> tuple[int | None, CachePosition]:
        """Return the name of the elements of a file, and the position of the first."""
        return heading.name(self.input), place_in(heading)

    async def filled(self, writing: CacheWriter, scope: Scope, want: Demand, place: CachePosition) -> Blocks:
        """Yield the elements in the file, then the rest of the input, which is written."""
        done, heading, named = place.done, writing.heading, self.numbering(writing.heading)
        try:
            heading.check(writing.path, self.input, self.made_of)
            self.resumable(heading, place)
            await scope.in_thread(writing.find)
            if writing.complete:
                async with aclosing(self.elements_after(scope, want, place)) as source:
                    async for block in source:
                        yield block
                return
            behind, number = writing.marked(), writing.count
            async with aclosing(self.before(writing, scope, want, done, number)) as source:
                async for block in source:
                    yield block
            async with aclosing(self.rest(writing, scope, want, behind, number)) as source:
                async for made in source:
                    block = await self.append(writing, number, made, scope)
                    first, number = number, number + len(block)
                    if number > done:
                        out = numbered(block, first, *named) if heading.repeatable else self.in_passing(block, first)
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
        source = writing.heading.seeded(self.input) if writing.heading.repeatable else self.input
        return source.open(scope.with_epoch(FIRST_EPOCH), want, start)

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
        file, named = RecordFile(path, max_record_bytes=self.indexes.most), self.numbering(heading)
        content = file.contents_of(scope, offset)
        async with aclosing(content), aclosing(file.parts(content, Entry(path), want, offset)) as source:
            async for found in source:
                records: list[Any] = [*found.elements]
                head, first = number < 0, max(0, number)
                tail = len(records) > head and isinstance(last := records[-1], bytes) and last.startswith((HEAD, TAIL))
                part = self.elements(path, records[head : len(records) - tail], first)
                number = first + len(part)
                if tail and (short := self.checked(path, records[-1], EndMark(number, heading.checksum))):
                    part = Block([*part.items, *short], Ordinals(first, number + 1), True)
                if count >= 0:
                    part = part.slice(0, count - first)
                if part and first + len(part) > done:
                    yield numbered(part, first, *named).slice(max(0, done - first), len(part))
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

    def checked(self, path: str, tail: bytes, found: EndMark) -> list[Failure]:
        """Return nothing if a file has as many elements as its end says, of the same run; else the failure that follows
        them."""
        expected = EndMark.parse(tail)
        if expected == found:
            return []
        what = f"it has {found.elements} elements, but should have {expected.elements}; delete it to write it again"
        if expected.elements == found.elements:
            what = "it was written again while it was read; read it from its beginning"
        lost = DataLossError(f"{path}: {what}")
        return [noted(lost, self.label(), found.elements, of_source=True)]


def place_in(heading: Header) -> CachePosition:
    """Return the position of the first element of a file."""
    return CachePosition(0, None, heading.seeds, heading.checksum)


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

"""The window of elements in flight of a parallel map: workers process groups, and results keep the input's order.

Reasons and measurements: docs/design.md, "AUTOTUNE".
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from math import inf
from typing import Final

from asyncdata.executors.scope import Scope
from asyncdata.executors.workers import Group, Workers
from asyncdata.runtime.block import Block, Demand, Failure
from asyncdata.runtime.queue import MOST_BYTES, LoopSignal
from asyncdata.runtime.tickets import NOTHING, Tickets, UnorderedTickets

__all__ = ("InFlightWindow", "ResultStatistics")

MOST_HELD: Final = 16384
"""So many cheap elements in flight keep any number of workers busy; all of them run again after an interruption."""

LEAST_BATCH: Final = 1 << 18
"""Workers make complete batches of at least so many bytes: to copy less costs little."""

DENSE: Final = 5e7
"""Bytes a second of all workers together, from which on another copy counts: so many take 1.5 % of a thread's time."""

LONGEST: Final = 0.1
"""Seconds for which workers may make complete batches in any case, and for which a reader may wait for one early in a
run."""

SOON: Final = 0.01
BRIEF: Final = 0.05
"""The maximum seconds for the first batch of a run, if one worker makes it, and for those by which AUTOTUNE measures
workers."""

FRESH: Final = 1e9
"""Bytes a second that are written into memory that is used for the first time, as that of the first batch is."""


class ResultStatistics:
    """What is known of a stage's results, from an earlier run if there was one: bytes and seconds for one."""

    __slots__ = ("each", "weight")

    def __init__(self) -> None:
        self.weight = 0
        self.each = inf


class InFlightWindow:
    """Groups in flight between the task that reads the input and the reader of the results.

    At most twice as many groups as there are workers: those being worked on, and as many that wait, either for a
    worker or (in order) for an earlier group. All of it belongs to the loop of the stages: workers call only `finished`
    from their threads. Weights and loads are bytes for one element.
    """

    def __init__(
        self,
        scope: Scope,
        workers: Workers,
        ordered: bool,
        rows: int | None = None,
        learnt: ResultStatistics | None = None,
    ) -> None:
        self.workers = workers
        self.meter = scope.meter
        self.meter.holds(self)
        workers.in_order = ordered and workers.count == 1 and not workers.tuned
        self.ordered = ordered
        self.rows = rows
        self.row = 0  # place of the next element in its batch, failures not counted
        self.cut = 0  # batches of this run, up to as many as there are workers
        self.rest: list[Block] = []  # less than a batch, until a worker is idle
        self.groups: deque[Group] = deque()
        self.ready: deque[Group] = deque()
        self.news: deque[None] = deque()  # one for each group that is done since the reader last asked
        self.begun = 0  # groups that were not done when it began to wait, or came since
        self.needed = 1  # so many of them must be done before it makes anything
        self.waiting: deque[Group] = deque()  # parts of groups that workers gave up, in order
        self.pending: dict[Group, None] = {}  # without a fixed order: admitted, not out yet
        self.last: Tickets = NOTHING
        self.held = self.free = 0
        self.budget_share = scope.owned.budget.share()
        self.most_bytes = MOST_BYTES if scope.sharing is None else scope.sharing.most_bytes
        self.load = 0  # bytes of an element, before and after; after is not known to begin with
        self.known = False
        self.most = 1 if workers.tuned else 2 * workers.count
        self.bound = self.share = self.complete = 0  # set by `widen`
        self.ended = self.stopped = False
        self.reader = LoopSignal(scope.loop, threadsafe=True)
        self.feeder = LoopSignal(scope.loop)
        self.learnt = ResultStatistics() if learnt is None or workers.tuned else learnt
        self.fresh = not self.learnt.weight
        """Whether no earlier run has used the memory of batches."""
        if self.wanted_batches():
            self.load = self.learnt.weight
        self.widen()

    async def feed(self, source: AsyncGenerator[Block, None], want: Demand) -> None:
        """Read the input as far as the window allows and hand it to the workers."""
        async with aclosing(source):
            while True:
                if not self.may_feed():
                    begin = self.meter.clock.now()
                    await self.feeder.until(self.may_feed)
                    self.meter.was_full(self.meter.clock.now() - begin)
                want.items = self.free  # by estimate: workers' pace changes it at any time
                block = await anext(source, None)
                if block is None:
                    break
                self.admit(block)
        self.ended = True
        self.relieve()
        self.reader.notify()

    def widen(self) -> None:
        """Set how many elements may be in flight, `bound`, and how many make a group, `share`.

        The former is bounded in groups, in number and in bytes, by the last one seen; the latter is as large as needed
        to keep workers busy. `complete` elements are those of the batches that are made at once, each by one worker; 0
        if the budget is too small for so many.
        """
        least, rows, group = 2 * self.workers.count, self.rows or 0, self.workers.pace.group
        wanted = min(least * group, max(least, MOST_HELD)) if self.known else least  # keep the workers busy
        batches = self.wanted_batches()
        fits = self.reserve(wanted, batches) if self.load else True
        most = self.most if self.workers.tuned else max(self.most, least)
        self.complete = batches * rows if fits and self.most >= batches * rows else 0
        self.bound = max(min(wanted, most), self.complete)
        share = max(1, min(group, self.bound // least))
        if rows:
            share = share - share % rows if share >= rows else rows if self.complete else share
        self.share = share

    def reserve(self, wanted: int, batches: int) -> bool:
        """Set the most elements that fit into the budget, of those wanted; return whether complete batches do.

        Each worker has memory for two batches, that it makes and that it has made: a worker's memory is not another's.
        """
        batch = (self.rows or 0) * self.load
        space = min(wanted * self.load, self.most_bytes)
        memory = 2 * self.workers.count * batch if batches else 0
        claimed = self.budget_share.claim(max(space, memory), self.load)
        fits = claimed >= memory
        if not fits:
            claimed = self.budget_share.claim(space, self.load)
        self.most = max(1, min(claimed, max(self.most_bytes, batches * batch if fits else 0)) // self.load)
        return fits

    def wanted_batches(self) -> int:
        """Return how many batches should be made at once; 0 if workers should not make complete batches.

        They should if a batch is so large that another copy is costly, unless that is little beside the work.
        """
        rows, workers = self.rows or 0, self.workers.count
        weight = rows * self.learnt.weight
        if weight < LEAST_BATCH:
            return 0
        seconds = rows * self.each
        if self.workers.trying:
            complete = seconds <= BRIEF
        else:
            complete = seconds <= LONGEST or weight * workers >= seconds * DENSE
        return workers + 1 if complete else 0

    @property
    def each(self) -> float:
        """Seconds that an element takes, as far as is known."""
        return self.workers.pace.each if self.known else self.learnt.each

    def shared(self, size: int) -> int:
        """Return how many elements a worker gets of a batch, or of the rest of one, that is `size` elements.

        The first batches of a run are shared by several workers, each by fewer than the one before. Else the reader
        would wait for the first batch until one worker has made it, and then have as many at once as there are workers.
        """
        workers, number = self.workers.count, 0 if self.row or self.ended else self.cut
        each = self.each + (0 if number or not self.fresh else self.learnt.weight / FRESH)
        soon = (LONGEST if number else SOON) / each if each else size
        return size if size <= soon or number >= workers else max(int(soon), -(-size * (number + 1) // workers))

    def may_feed(self) -> bool:
        """Return whether complete groups fit, and limit reading to them: smaller ones would cost as much and do less.

        Held elements leave in groups, so complete groups will fit.
        """
        space = self.bound - self.held
        begun = 0 if self.rows is None else self.row + sum(map(len, self.rest))  # of a batch
        complete = space - (begun + space) % self.share
        self.free = complete if complete > 0 else space
        return space >= self.share

    def weigh(self, block: Block, result: Block | None = None) -> None:
        """Bound the window in bytes by the size of an element; if sizes differ, by the larger ones."""
        if result is not None:
            self.learnt.weight = result.weight
        load = block.weight + self.learnt.weight
        if not self.load < 2 * load <= 2 * self.load:
            self.load = load

    def admit(self, block: Block) -> None:
        """Cut a block into groups, small enough that no worker idles."""
        self.held += block.count
        if not self.known:
            self.weigh(block)
            self.widen()
        if self.rows is not None:
            self.admit_rows(block, self.rows)
            return
        size = min(self.share, self.fair(block.count))
        for start in range(0, block.count, size):
            self.submit(block.slice(start, start + size))

    def fair(self, count: int) -> int:
        """Return how many of so many elements each worker gets, while some are idle."""
        return -(-count // self.workers.count) if len(self.groups or self.pending) < self.workers.count else count

    def admit_rows(self, block: Block, rows: int) -> None:
        """Cut a block into groups that end with a batch if they reach its end; hold the rest back if workers are
        busy."""
        if self.rest:
            block = Block.join([*self.rest, block])
            self.rest.clear()
        start, share, count = 0, self.share, block.count
        if share < rows:
            share = min(share, self.fair(count))
        elif self.cut < self.workers.count:
            share = rows
        while start < count and (size := self.portion(count - start, rows, share)):
            part = block.slice(start, start + size)
            self.submit_shared(part) if share >= rows else self.submit(part)
            done = self.row + size
            self.row, self.cut = done % rows, min(self.cut + done // rows, self.workers.count)
            start += size
        if start < count:
            self.rest.append(block.slice(start, count))

    def submit_shared(self, part: Block) -> None:
        """Have workers process a batch, or the rest of one: one of them, or several."""
        size = part.count
        step = self.shared(size)
        for start in range(0, size, step):
            self.submit(part.slice(start, start + step))

    def portion(self, left: int, rows: int, share: int) -> int:
        """Return how many of the next elements make a group, 0 if they should wait for more."""
        size = share
        if size < rows:
            size = min(size, rows - self.row)
        elif self.row:
            size = rows - self.row
        if size <= left:
            return size
        complete = 0 if self.row else left - left % rows
        return complete or (left if self.idle() else 0)

    def idle(self) -> bool:
        begun = sum([not group.done for group in (self.groups or self.pending)]) - len(self.waiting)
        return begun < self.workers.count

    def relieve(self) -> None:
        """Submit the elements that were held back."""
        if self.rest:
            part = Block.join(self.rest)
            self.rest.clear()
            self.submit_shared(part) if self.complete else self.submit(part)
            self.row = (self.row + len(part)) % (self.rows or 1)

    def put_back(self, rest: Block) -> None:
        """Put what a worker gave up in the place of its group, until it is handed out again in smaller groups.

        If calls are made in order, the elements after it were not processed, and wait too.
        """
        groups = [Group(rest)]
        if self.workers.in_order:
            for group in self.groups:
                group.recalled = True
                groups.append(Group(group.what))
            self.groups.clear()
            self.waiting.clear()
            self.workers.late = False
        if self.ordered:
            self.groups.extendleft(reversed(groups))
        else:
            self.pending |= dict.fromkeys(groups)
        self.waiting.extendleft(reversed(groups))

    def hand_out(self) -> None:
        """Submit what was given up, while only few groups of it come before the reader."""
        while self.waiting and not self.stopped:
            group = self.waiting[0]
            place = self.groups.index(group) if self.ordered else len(self.pending) - len(self.waiting)
            if place >= 2 * self.workers.count:
                break
            left, size = group.what, self.share
            if size < len(left):
                group.what, group.count = left.slice(size, len(left)), len(left) - size
                group = Group(left.slice(0, size))
                if self.ordered:
                    self.groups.insert(place, group)
                else:
                    self.pending[group] = None
            else:
                self.waiting.popleft()
            self.workers.submit(group, self.finished)

    def submit(self, part: Block) -> None:
        """Have a worker process a part of the input."""
        if self.stopped:
            return
        group = Group(part)
        self.begun += 1
        if self.ordered:
            self.groups.append(group)
        else:
            self.pending[group] = None
            self.last = part.tickets
        if self.waiting:
            self.waiting.append(group)
        else:
            self.workers.submit(group, self.finished)

    def finished(self, group: Group) -> None:
        """Take note of a group that is done; from any thread."""
        if not self.ordered:
            self.ready.append(group)
        self.news.append(None)
        if self.reader.armed:
            enough = min(self.begun - self.workers.count, self.needed)  # no worker is idle yet
            if len(self.news) >= enough or not group.succeeded:
                self.reader.notify()

    def count_needed(self, least: int) -> None:
        """Count the groups of which several wake the reader together, as it makes nothing of fewer than `least`
        elements: those that it needs, as long as others wait for a worker."""
        self.needed = 1
        if least > 1 and not self.waiting:
            done, groups = [group.done for group in self.pending or self.groups], -(-least // self.share)
            self.begun, self.needed = len(done) - sum(done), groups - sum(done[:groups])

    def may_read(self) -> bool:
        if self.waiting:
            self.hand_out()
        if self.rest and self.idle():
            self.relieve()
        if self.ready or (self.groups and self.groups[0].done):
            return True
        return self.ended and self.held == 0

    async def collect(self, want: Demand) -> Block | None:
        """Return the results of groups that may be delivered now, as many as are wanted; `None` at the end."""
        limit = want.items
        self.news.clear()
        if not self.may_read():
            self.count_needed(want.least)
            begin, want.waited = self.meter.clock.now(), True
            await self.reader.until(self.may_read)
            waited = self.meter.clock.now() - begin
            self.meter.waited(waited)
            self.workers.read(waited)
        queue = self.groups if self.ordered else self.ready
        done: list[Block] = []
        while limit > 0 and queue and queue[0].done:
            error = queue[0].error
            if done and (error is not None or bool(done[0].columns) != bool(queue[0].result.columns)):
                break  # joined with others, columns would be none any more
            if error is not None:
                raise error
            group = queue.popleft()
            self.pending.pop(group, None)
            self.held -= group.count
            self.meter.collected(group)
            result = group.result
            limit -= result.count
            self.known, self.learnt.each = True, self.workers.pace.each
            if self.rows is not None and result.failed:
                failures = sum([type(item) is Failure for item in result.items])
                self.row = (self.row - failures) % self.rows
            self.weigh(group.what, result if result.count else None)
            if group.given_up:
                self.put_back(group.what.slice(group.count, group.what.count))
            if result.count:
                done.append(result)
        self.widen()
        self.meter.workers = self.workers.count
        self.feeder.notify()
        if done:
            return self.out(Block.join(done))
        return None if self.ended and self.held == 0 else Block([])

    def stop(self) -> None:
        """Start no more work; not on elements read just now, either."""
        self.stopped = True
        self.workers.stop()

    def out(self, block: Block) -> Block:
        """Return a block that leaves the window; if it is out of order, with the position to resume after it."""
        if self.ordered:
            return block
        missing = [group.what.tickets for group in self.pending]
        return block.ticketed(UnorderedTickets(block.tickets, self.last, missing))

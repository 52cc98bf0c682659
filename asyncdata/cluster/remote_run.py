"""A pipeline that runs on a worker, on the trainer's side: when the worker is lost, another one continues."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from asyncdata.cluster.actor import CallReply
from asyncdata.cluster.chunk import Chunk, ChunkPosition
from asyncdata.cluster.parcel import Parcel
from asyncdata.cluster.pool import ActorPool, Killed, Pace, PendingCall, PoolActor, Sent
from asyncdata.cluster.transport import Transport
from asyncdata.cluster_settings import Cluster
from asyncdata.errors import StageError
from asyncdata.executors.process.shm_arena import dump_by_value
from asyncdata.runtime.block import Block
from asyncdata.runtime.memory_budget import Reservation
from asyncdata.runtime.queue import LoopSignal
from asyncdata.runtime.tickets import Position

__all__ = ("RemoteRun", "RunOrder", "RunPool")

CHUNK: Final = 4 << 20
LEAST: Final = 1 << 18
"""The maximum size of a chunk in bytes, and the minimum if the budget is used up."""

MOST_DEATHS: Final = 2
"""How many workers a run may have ended until its functions are called in processes of their own."""

MOST_LOSSES: Final = 20
"""How often in a row it may be lost before anything of it has come."""

NUMBERS: Final = itertools.count(1)


class RunOrder(NamedTuple):
    """The order of a run: the plan, the epoch, where to start, and how its elements are sent."""

    plan: Any
    epoch: tuple[Any, ...]
    position: Position
    label: str
    careful: bool = False
    """Whether functions are called in processes of their own, as workers have ended."""
    apart: bool = False
    """Whether each element is pickled by itself."""


class RunCall(PendingCall):
    """A requested chunk of a run. `ask` gives the run's order, which is sent with the first request to an actor."""

    __slots__ = ("doubled", "most_bytes", "number", "run")

    def __init__(self, run: RemoteRun, number: int, most_bytes: int) -> None:
        self.run = run
        self.number = number
        self.most_bytes = most_bytes
        self.ask = run.parcel
        self.done = partial(run.done, number)
        self.alone = self.dropped = self.doubled = False
        self.turn = run.turn

    def request(self, actor: PoolActor, transport: Transport) -> tuple[str, tuple[Any, ...]]:
        fresh = self.number not in actor.runs
        order = self.ask() if fresh else None
        actor.runs.add(self.number)
        return "read", (self.number, order, self.most_bytes)

    def unknown(self, actor: PoolActor) -> None:
        actor.runs.discard(self.number)

    @property
    def pace(self) -> Pace:
        return self.run.pool.pace


class RunPool(ActorPool):
    """`cluster.runs` actors that run pipelines. Each run stays with its actor, and is lost with it."""

    def __init__(
        self, cluster: Cluster, connect: Callable[[], Transport], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(cluster, connect, clock)
        self.count = cluster.runs
        self.pace = Pace()

    def actor_for(self, call: PendingCall) -> PoolActor | None:
        assert isinstance(call, RunCall)
        there = self.reachable()
        for actor in self.actors:
            if call.number in actor.runs:
                if actor in there:
                    return actor
                self.end_at(actor, call.number)  # it continues elsewhere
        return min(there, key=lambda actor: (actor.late, len(actor.runs)), default=None)

    def late_calls(self, actor: PoolActor) -> list[Sent]:
        """Return the late calls of an actor, which makes many at once."""
        now = self.clock()
        return [sent for sent in actor.calls.values() if now - sent.at > sent.call.pace.limit]

    def double(self, call: PendingCall) -> None:
        """Have the run of a late call run by one more actor, from where the call begins."""
        assert isinstance(call, RunCall)
        if not call.doubled and not all(actor.late for actor in self.reachable()):
            call.doubled = True
            call.run.double(call)

    def replied(self, actor: PoolActor, number: int, reply: CallReply | None, error: BaseException | None) -> None:
        sent = actor.calls.get(number)
        dropped = sent is not None and sent.call.dropped
        super().replied(actor, number, reply, error)
        if dropped and sent is not None and isinstance(sent.call, RunCall) and not actor.lost:
            self.end_at(actor, sent.call.number)  # it may have started after it was ended

    def ask_again(self, call: PendingCall) -> None:
        call.settle(Killed(""))

    def make_up(self, actor: PoolActor, calls: list[PendingCall], reason: str | None) -> None:
        for call in calls:
            call.settle(Killed(reason or ""))

    def end_run(self, number: int) -> None:
        """Have a run ended, wherever it is; from any thread."""
        self.events.put(partial(self.finish, number))

    def finish(self, number: int) -> None:
        """End a run, if its actor is there."""
        for actor in self.actors:
            if number in actor.runs:
                self.end_at(actor, number)

    def end_at(self, actor: PoolActor, number: int) -> None:
        actor.runs.discard(number)
        if self.transport is not None:
            self.transport.call(actor.actor, "end", (number,), ignored)


def ignored(_: Any, __: BaseException | None) -> None:
    """Do nothing."""


class Arrival(NamedTuple):
    """A chunk that is here, the place before it, and how many bytes it has."""

    chunk: Chunk
    before: ChunkPosition
    size: int


class RemoteRun:
    """A run on the reader's side: some chunks are here, as far as the budget allows, and the next one is requested.

    `place` says how many elements have come since a known position; the run resumes there when a worker is lost.
    """

    def __init__(
        self, pool: RunPool, order: RunOrder, signal: LoopSignal, views: bool, share: Reservation, most: int
    ) -> None:
        self.pool = pool
        self.turn = pool.turn
        self.order = order
        self.signal = signal
        self.views = views
        self.share = share
        self.most = most
        """How many chunks are here at most."""
        self.position = ChunkPosition(0, order.position)
        self.number = next(NUMBERS)
        self.arrived: deque[Arrival] = deque()
        self.held = 0
        """Bytes of these."""
        self.ended: Chunk | BaseException | None = None
        self.calls: list[RunCall] = []
        """The chunk that is requested; from two actors, if the first one is late."""
        self.asking = threading.Lock()
        """Its holder decides whether another chunk is sent: the reader, or the pool's thread."""
        self.deaths = self.losses = 0
        self.closed = False
        self.ask()

    # on the loop

    async def next(self) -> Block | None:
        """Return the next elements; nothing at the end."""
        await self.signal.until(lambda: self.arrived or self.ended is not None)
        if not self.arrived:
            error = self.ended
            if isinstance(error, Chunk):
                error = None if error.error is None else error.error.failure(None).error
            if error is not None:
                raise error
            return None
        chunk, before, size = self.arrived.popleft()
        self.ask(taken=size)
        return chunk.block(before, self.order.label)

    def close(self) -> None:
        self.closed = True
        for call in list(self.calls):
            self.leave(call)
        self.pool.end_run(self.number)

    def leave(self, call: RunCall) -> None:
        """Drop a request, and end the run that it is of."""
        self.pool.drop(call)
        self.pool.end_run(call.number)

    # from any thread

    def ask(self, taken: int = 0, came: int = 0, answered: bool = False) -> None:
        """Request the next chunk if the budget allows it and none is requested; the last one `answered` no longer
        counts."""
        with self.asking:
            self.held += came - taken
            if answered:
                self.calls = []
            if self.calls or self.ended is not None or self.closed or not (allowance := self.allowance()):
                return
            call = RunCall(self, self.number, allowance)
            self.calls = [call]
        self.pool.submit(call)

    def allowance(self) -> int:
        """Return how many bytes the next chunk may have; none if enough is here."""
        if not self.arrived:
            return max(LEAST, min(CHUNK, self.share.claim(CHUNK, LEAST)))
        allowance = min(CHUNK, self.share.claim(self.held + CHUNK, LEAST) - self.held)
        return allowance if len(self.arrived) < self.most and allowance >= LEAST else 0

    def parcel(self) -> Parcel:
        """Return the order of a run that continues where this one is."""
        count, position = self.position
        at = {"skip": count, "from": position} if count else position
        return Parcel.of(self.order._replace(position=at), dump_by_value)

    # in the pool's thread

    def double(self, call: RunCall) -> None:
        """Request a late chunk of another actor as well, which begins where the late one does."""
        with self.asking:
            if self.closed or self.calls != [call]:
                return
            other = RunCall(self, next(NUMBERS), call.most_bytes)
            self.calls = [call, other]
        self.pool.submit(other)

    def done(self, number: int, reply: CallReply | BaseException) -> None:
        """Take the outcome of a request: the first one, but a worker's loss only if no other is at it."""
        if self.closed:
            self.pool.end_run(number)
            return
        others = [call for call in self.calls if call.number != number]
        if isinstance(reply, Killed) and others:
            self.calls, self.number = others, others[0].number
            self.pool.end_run(number)
            return
        for call in others:
            self.leave(call)
        self.number = number
        if isinstance(reply, Killed):
            self.lost(str(reply))
        elif (chunk := self.unpack_reply(reply)) is None:
            self.restart()
        else:
            self.take(chunk, reply.size if isinstance(reply, CallReply) else 0)

    def take(self, chunk: Chunk | BaseException, size: int) -> None:
        """Store the elements that have come for the reader."""
        self.losses = 0
        if isinstance(chunk, BaseException) or chunk.ended:
            self.ended = chunk
            self.signal.notify()
            return
        self.arrived.append(Arrival(chunk, self.position, size))
        self.position = position_after(self.position, chunk)
        self.signal.notify()
        self.ask(came=size, answered=True)

    def unpack_reply(self, reply: CallReply | BaseException) -> Chunk | BaseException | None:
        """Return the outcome; nothing if it cannot be unpickled, and is sent again in another way."""
        if isinstance(reply, BaseException):
            return reply
        assert reply.parcel is not None
        try:
            return reply.parcel.open(not self.views)
        except Exception as error:  # noqa: BLE001 - of the elements
            if self.order.apart:
                return StageError(f"{self.order.label}: what a worker has sent cannot be unpickled: {error!r}")
            self.order = self.order._replace(apart=True)
            return None

    def lost(self, reason: str) -> None:
        """Continue on another worker; with care, if that was not the first worker that has ended."""
        self.losses += 1
        self.deaths += bool(reason)
        if self.losses > MOST_LOSSES:
            words = f"{self.order.label}: {self.losses} workers in a row have ended while they ran it"
            self.ended = StageError(f"{words}{reason and ': '}{reason}")
            self.signal.notify()
            return
        if self.deaths >= MOST_DEATHS:
            self.order = self.order._replace(careful=True)
        self.restart()

    def restart(self) -> None:
        """Start a run again, from the last place on."""
        self.pool.end_run(self.number)
        self.number = next(NUMBERS)
        self.ask(answered=True)


def position_after(place: ChunkPosition, chunk: Chunk) -> ChunkPosition:
    size = chunk.size
    if chunk.places:
        return ChunkPosition(size - chunk.places[-1].after, chunk.places[-1].position)
    return ChunkPosition(place.after + size, place.position)

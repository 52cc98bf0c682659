"""ActorPool: actors that make calls. Its thread starts them, hands out calls and replaces lost actors."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from asyncdata.cluster.actor import CallReply, Greeting
from asyncdata.cluster.parcel import Parcel
from asyncdata.cluster.transport import GREET, SHUT_DOWN, Actor, Loss, Transport
from asyncdata.cluster_settings import Cluster
from asyncdata.errors import AsyncDataError, StageError
from asyncdata.system.signal_handlers import start_thread

__all__ = ("ActorPool", "Killed", "Pace", "PendingCall", "PoolActor", "RemoteFunction", "Sent")

log = logging.getLogger("asyncdata")

DEPTH: Final = 2
"""Calls that an actor has at once: one runs, and the next is there when it is done."""

GRACE: Final = 10.0
"""Seconds without an actor after which the log says which resources are missing."""

LOOK: Final = 0.5
"""While calls are pending, the connection to the cluster is checked after so many seconds, as Ray does not report its
loss, and whether a call is late."""

MOST_UNPRODUCTIVE: Final = 20
"""How often in a row an actor and its replacements may end while no call of the pool is completed. It is counted for
each actor alone: a node that is lost takes all of its actors at once."""


class RemoteFunction:
    """The work of a stage, pickled, and the hash by which actors know it."""

    def __init__(self, work: Parcel) -> None:
        digest = blake2b(work.head, digest_size=16)
        for buffer in work.buffers:
            digest.update(buffer.data)
        self.name = digest.digest()
        self.work = work
        self.shared: tuple[Transport, Any] | None = None
        self.pace = Pace()

    def over(self, transport: Transport) -> Any:
        """Return it as an argument of calls."""
        if self.shared is None or self.shared[0] is not transport:
            self.shared = transport, transport.share(self.work)
        return self.shared[1]


class Killed(Exception):  # noqa: N818 - it is no error of a pipeline's
    """The actor ended that was at a call, which may be to blame; never seen by users."""


class PendingCall:
    """A requested call: its function, its request (made again for each try), and the callback for the outcome.

    One that may kill is made `alone`, by an actor that has no other.
    """

    __slots__ = ("alone", "ask", "done", "dropped", "function", "turn")

    def __init__(
        self,
        function: RemoteFunction,
        ask: Callable[[], Parcel],
        done: Callable[[CallReply | BaseException], None],
        alone: bool,
        turn: int,
    ) -> None:
        self.function = function
        self.ask = ask
        self.done = done
        self.alone = alone
        self.turn = turn
        """Of the pool: how often it had failed when the pipeline began."""
        self.dropped = False

    def request(self, actor: PoolActor, transport: Transport) -> tuple[str, tuple[Any, ...]]:
        """Return the method of an actor to call, and its arguments. The function is sent along until the actor has
        it."""
        parcel, function = self.ask(), self.function
        work = None if function.name in actor.known else function.over(transport)
        actor.known.add(function.name)
        return "call", (function.name, work, parcel)

    def unknown(self, actor: PoolActor) -> None:
        """Take note that an actor does not know the function."""
        actor.known.discard(self.function.name)

    @property
    def pace(self) -> Pace:
        """How long such calls take."""
        return self.function.pace

    def settle(self, outcome: CallReply | BaseException) -> None:
        """Hand on the outcome, the first time: the call may be made by two actors."""
        if not self.dropped:
            self.dropped = True
            self.done(outcome)


class Sent(NamedTuple):
    """A call that an actor has, and when it was sent there."""

    call: PendingCall
    at: float


class PoolActor:
    """An actor on the pool's side: its calls, the oldest first, and the functions that it has."""

    def __init__(self, actor: Actor, number: int, unproductive: int, completed: int) -> None:
        self.actor = actor
        self.number = number
        self.unproductive = unproductive
        """How many actors in a row it replaces that ended while no call of the pool was completed."""
        self.completed = completed
        """How many calls the pool had completed when it was started."""
        self.greeting: Greeting | None = None
        self.lost = False
        self.calls: dict[int, Sent] = {}
        self.heard: float | None = None
        """When it last answered a call."""
        self.late = False
        self.known: set[bytes] = set()
        self.runs: set[int] = set()
        """The pipelines that it runs, if it is such an actor."""

    def has_capacity(self, call: PendingCall) -> bool:
        """Return whether it may be given a call now."""
        if self.greeting is None or self.late:
            return False
        if call.alone:
            return not self.calls
        there = [sent.call for sent in self.calls.values()]
        return len(there) < DEPTH and not any(one.alone or one is call for one in there)

    def since(self, sent: Sent) -> float:
        """Return from when on it can have worked on its oldest call."""
        return max(sent.at, self.heard or sent.at)


class ActorPool:
    """`cluster.calls` actors. Everything but `submit`, `drop` and `end` happens in the pool's own thread."""

    def __init__(
        self, cluster: Cluster, connect: Callable[[], Transport], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.cluster = cluster
        self.count = cluster.calls
        self.connect = connect
        self.clock = clock
        self.events: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.starting = threading.Lock()
        self.transport: Transport | None = None
        self.actors: list[PoolActor] = []
        self.waiting: deque[PendingCall] = deque()
        self.numbers = itertools.count(1)
        self.completed = 0
        self.silent: set[str] = set()
        """Nodes of which nothing has been heard since a call was sent there that is late."""
        self.looked = 0.0
        self.since: float | None = None  # when it began to wait for an actor
        self.warned = False
        self.refusal: AsyncDataError | None = None
        """Why no call is taken any more, as in a forked child."""
        self.turn = 0
        self.failure: AsyncDataError | None = None
        """Why the last turn ended. Pipelines of that turn get this error: their calls must not connect again."""

    # from any thread

    def submit(self, call: PendingCall) -> None:
        """Have a call made; its `done` is called from the pool's thread."""
        if self.refusal is not None:
            call.done(self.refusal)
            return
        self.events.put(partial(self.add, call))
        with self.starting:
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="asyncdata-cluster", daemon=True)
                start_thread(self.thread)

    def drop(self, call: PendingCall) -> None:
        """Drop a call: it is no longer started, and if it runs its result is dropped."""
        call.dropped = True

    def end(self) -> None:
        """End the actors, and the thread when it has done so; also from a finalizer."""
        self.events.put(None)

    # in the pool's thread

    def run(self) -> None:
        """Process orders until the end."""
        while True:
            try:
                event = self.events.get(timeout=LOOK if self.busy() else None)
            except Empty:
                event = self.look
            if event is None:
                break
            try:
                event()
                if self.events.empty() and self.clock() >= self.looked + LOOK:
                    self.look()
            except AsyncDataError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - Ray's own errors: waiting calls get them
                refusal = StageError(f"the cluster cannot be used: {error!r}")
                refusal.__cause__ = error
                self.fail(refusal)
            event = None
        self.release()

    def busy(self) -> bool:
        """Return whether a call is waiting."""
        there = (sent.call for actor in self.actors for sent in actor.calls.values())
        return bool(self.waiting) or not all(call.dropped for call in there)

    def add(self, call: PendingCall) -> None:
        """Take a call, and start the actors with the first one."""
        if call.turn != self.turn and self.failure is not None:
            call.done(self.failure)
            return
        self.waiting.append(call)
        if self.transport is None:
            self.transport = self.connect()
            for _ in range(self.count):
                self.start(self.transport, 0)
        self.hand_out()

    def start(self, transport: Transport, unproductive: int) -> None:
        """Start an actor; it takes calls once it has reported its versions."""
        check_connected(transport)
        actor = PoolActor(transport.start(), next(self.numbers), unproductive, self.completed)
        self.actors.append(actor)
        transport.call(actor.actor, GREET, (), self.arrival(partial(self.greeted, actor)))

    def arrival(self, take: Callable[[Any, BaseException | None], None]) -> Callable[[Any, BaseException | None], None]:
        """Return a callback for a result in any thread; the result is handled in this one."""
        return lambda value, error: self.events.put(partial(take, value, error))

    def greeted(self, actor: PoolActor, greeting: Greeting | None, error: BaseException | None) -> None:
        """Take note that an actor is there; `StageError` if it runs something else than this process."""
        if actor.lost:
            return
        if error is not None or greeting is None:
            self.failed(actor, None, error)
            return
        if greeting.differs(own := Greeting.of_this()):
            raise StageError(
                f"the worker on node {greeting.address} runs Python {greeting.python} and asyncdata "
                f"{greeting.asyncdata}, this process Python {own.python} and asyncdata {own.asyncdata}: install the "
                "same on all nodes of the cluster"
            )
        actor.greeting = greeting
        self.since, self.warned = None, False
        self.hand_out()

    def hand_out(self) -> None:
        """Give waiting calls to actors that have capacity, in order."""
        while self.waiting:
            call = self.waiting[0]
            if not call.dropped:
                actor = self.actor_for(call)
                if actor is None:
                    break
                self.send(actor, call)
            self.waiting.popleft()
        self.wait_for_actors()

    def actor_for(self, call: PendingCall) -> PoolActor | None:
        """Return the actor for a call, if one has capacity."""
        free = [actor for actor in self.reachable() if actor.has_capacity(call)]
        return min(free, key=lambda actor: len(actor.calls), default=None)

    def reachable(self) -> list[PoolActor]:
        """Return the actors that are there, on nodes that are not silent; if all are, on any."""
        there = [actor for actor in self.actors if actor.greeting is not None]
        return [actor for actor in there if node_of(actor) not in self.silent] or there

    def wait_for_actors(self) -> None:
        """Take the time from which on calls wait and no actor is there."""
        if not self.waiting or any(actor.greeting for actor in self.actors):
            self.since = None
        elif self.since is None:
            self.since = self.clock()

    def send(self, actor: PoolActor, call: PendingCall) -> None:
        """Send a call to an actor. The function is sent along until the actor has it."""
        transport = self.transport
        assert transport is not None
        check_connected(transport)
        try:
            method, arguments = call.request(actor, transport)
        except Exception as error:  # noqa: BLE001 - errors of the elements, which the pipeline gets
            call.settle(error)
            return
        number = next(self.numbers)
        actor.calls[number] = Sent(call, self.clock())
        transport.call(actor.actor, method, arguments, self.arrival(partial(self.replied, actor, number)))

    def replied(self, actor: PoolActor, number: int, reply: CallReply | None, error: BaseException | None) -> None:
        """Hand on the outcome of a call. A late outcome of an actor that was given up is dropped."""
        if actor.lost or (sent := actor.calls.get(number)) is None:
            return
        if error is not None or reply is None:
            self.failed(actor, number, error)
        elif reply.parcel is None:  # it does not have the function, or no longer has it
            del actor.calls[number]
            sent.call.unknown(actor)
            self.waiting.appendleft(sent.call)
        else:
            del actor.calls[number]
            self.completed += 1
            self.answered(actor, sent)
            sent.call.settle(reply)
        self.hand_out()

    def answered(self, actor: PoolActor, sent: Sent) -> None:
        """Take the time of a call. Not of an actor's first, which imports modules, nor of one that was late and has
        been made elsewhere since."""
        now = self.clock()
        if actor.heard is not None and not sent.call.dropped:
            sent.call.pace.took(now - actor.since(sent))
        actor.heard, actor.late = now, False
        self.silent.discard(node_of(actor))

    def failed(self, actor: PoolActor, number: int | None, error: BaseException | None) -> None:
        """Find out what was lost, and replace it."""
        transport = self.transport
        assert transport is not None
        check_connected(transport)  # a shutdown ends the actors first
        what = Loss.RESULT if error is None else transport.lost(error, actor.greeting)
        if isinstance(what, StageError):
            raise what from error
        if what is Loss.RESULT and number is not None:
            self.ask_again(actor.calls.pop(number).call)
            return
        self.lose(actor, transport, transport.words(error) if error and what is Loss.ACTOR else None)

    def lose(self, actor: PoolActor, transport: Transport, reason: str | None) -> None:
        """Replace an actor, once. The call that it was at may be to `blame`; the others are made elsewhere."""
        actor.lost = True
        self.actors.remove(actor)
        transport.stop(actor.actor)
        calls = [sent.call for sent in actor.calls.values()]
        actor.calls.clear()
        blamed = bool(calls) and reason is not None
        unproductive = 0 if blamed or self.completed > actor.completed else actor.unproductive + 1
        if unproductive > MOST_UNPRODUCTIVE:
            self.waiting.extendleft(reversed(calls))
            last = reason or "it did not start, or its node was lost"
            raise StageError(
                f"{unproductive} actors in a row have ended before they completed a call; the last: {last}"
            )
        self.start(transport, unproductive)
        self.make_up(actor, calls, reason)

    def ask_again(self, call: PendingCall) -> None:
        """Make a call once more whose result was lost, unless another actor has it too."""
        if not call.dropped and not self.copies(call):
            self.waiting.appendleft(call)

    def copies(self, call: PendingCall) -> int:
        """Return how many actors have a call or are to have it."""
        there = (sent.call for actor in self.actors for sent in actor.calls.values())
        return sum(one is call for one in there) + sum(one is call for one in self.waiting)

    def make_up(self, actor: PoolActor, calls: list[PendingCall], reason: str | None) -> None:
        """Have the calls of a lost actor made elsewhere, but the oldest one if it may be to blame."""
        suspect = calls.pop(0) if calls and reason is not None else None
        for call in reversed(calls):
            self.ask_again(call)
        if suspect is not None:
            suspect.settle(Killed(reason))

    def look(self) -> None:
        """See whether the cluster is there, which calls are late, and for how long calls have waited for an actor."""
        transport = self.transport
        self.looked = self.clock()
        if transport is None:
            return
        check_connected(transport)
        self.hedge()
        if self.since is None:
            return
        waited = self.clock() - self.since
        if waited >= self.cluster.timeout:
            raise StageError(
                f"no actor has started in {waited:.0f} seconds (Cluster(timeout=)): {transport.shortage()}"
            )
        if waited >= GRACE and not self.warned:
            self.warned = True
            log.warning("waiting for an actor in the Ray cluster: %s", transport.shortage())

    def hedge(self) -> None:
        """Have late calls made by other actors as well, and give no more calls to nodes that do not answer."""
        late = [(actor, sent) for actor in self.actors for sent in self.late_calls(actor)]
        there = {actor for actor, _ in late}
        for actor in self.actors:
            actor.late = actor in there
        self.silent = {node_of(actor) for actor, sent in late if self.heard_on(node_of(actor)) <= actor.since(sent)}
        for _, sent in reversed(late):
            if not sent.call.dropped:
                self.double(sent.call)
        if late:
            self.hand_out()

    def late_calls(self, actor: PoolActor) -> list[Sent]:
        """Return the late calls of an actor: its oldest one, and the next, which waits for it."""
        calls = [*actor.calls.values()]
        return calls if calls and self.clock() - actor.since(calls[0]) > calls[0].call.pace.limit else []

    def heard_on(self, node: str) -> float:
        """Return when an actor of a node last answered."""
        return max(actor.heard or 0.0 for actor in self.actors if node_of(actor) == node)

    def double(self, call: PendingCall) -> None:
        """Have a late call made by one more actor."""
        if self.copies(call) == 1:
            self.waiting.appendleft(call)

    def fail(self, error: AsyncDataError) -> None:
        """Fail all waiting calls, as there is no cluster; a pipeline that starts later tries again."""
        self.turn, self.failure = self.turn + 1, error
        calls = [*(sent.call for actor in self.actors for sent in actor.calls.values()), *self.waiting]
        self.waiting.clear()
        self.release()
        for call in calls:
            call.settle(error)

    def release(self) -> None:
        transport, actors = self.transport, self.actors
        self.transport, self.actors, self.since, self.warned = None, [], None, False
        self.silent = set()
        for actor in actors:
            actor.lost = True
            actor.calls.clear()
            if transport is not None:
                transport.stop(actor.actor)


def node_of(actor: PoolActor) -> str:
    """Return the node of an actor; nothing before it has greeted."""
    return "" if actor.greeting is None else actor.greeting.node


def check_connected(transport: Transport) -> None:
    """Raise `StageError` after a shutdown: other methods would start a cluster of their own, or end the process."""
    if not transport.connected():
        raise StageError(SHUT_DOWN)


LATE: Final = 5.0
"""Seconds before which no call is late."""

MANY: Final = 10
"""A call is late that takes so many times as long as the longest of the last ones."""

FADING: Final = 0.999
"""How much of the longest call's time is left after another one: a tenth after 2,300."""


class Pace:
    """The longest time that a call has taken lately, in seconds; unknown before the first one has."""

    def __init__(self) -> None:
        self.longest = 0.0

    def took(self, seconds: float) -> None:
        """Take note that a call has taken so long."""
        self.longest = max(seconds, self.longest * FADING)

    @property
    def limit(self) -> float:
        """Seconds after which a call is late."""
        return max(LATE, MANY * self.longest) if self.longest else inf

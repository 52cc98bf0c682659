"""A cluster without Ray that obeys its rules, and draws from a seed what goes wrong.

Calls start in any order, also those of one actor. Results, actors and nodes are lost; what is late of an actor that was
lost may arrive after its successor has started. Buffers are read-only, as in Ray's object store.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

import asyncdata as ad
from asyncdata.cluster import handle
from asyncdata.cluster.actor import CallReply, Greeting
from asyncdata.cluster.parcel import Parcel
from asyncdata.cluster.transport import ActorKind, Arrived, Loss
from asyncdata.errors import StageError

__all__ = ("FakeTransport", "Faults", "die", "on_fake", "until")


class Death(SystemExit):
    """Ends the actor that calls a function which raises it."""


DYING = threading.local()


def die() -> None:
    """End the process of the actor that calls this, as far as there is one."""
    DYING.now = True
    raise Death


@dataclass
class Faults:
    """How often things go wrong: of so many calls one, `most` times in all; 0 is never."""

    results: int = 0
    nodes: int = 0
    actors: int = 0
    """Ended from outside, while a call runs. More than one of them could look as if an element did it."""
    most: int = 10


class LostError(Exception):
    """What a call ends with on a cluster that has lost something."""

    def __init__(self, what: Loss) -> None:
        super().__init__(f"the {what.value} was lost, exit code 9")
        self.what = what


@dataclass(eq=False)
class FakeActor:
    """An actor and what it was asked and has not begun."""

    actor: Any
    node: str
    pending: list[tuple[str, tuple[Any, ...], Arrived]] = field(default_factory=list)
    gone: Loss | None = None


class FakeTransport:
    """A cluster in one thread, which ends when nothing is asked for."""

    def __init__(self, cluster: ad.Cluster, kind: ActorKind, seed: int = 0, faults: Faults | None = None) -> None:
        self.cluster = cluster
        self.kind = kind
        self.dice = random.Random(seed)
        self.faults = faults or Faults()
        self.greeting = Greeting.of_this()
        self.actors: list[FakeActor] = []
        self.started = self.ended = self.calls = 0
        self.shared: list[Parcel] = []
        self.session = True
        self.room = True
        self.lock = threading.Condition()
        self.thread: threading.Thread | None = None

    # what the pool asks

    def start(self) -> FakeActor:
        self.started += 1
        made = FakeActor(self.kind.create(self.cluster.copy), f"node {self.started % 2}")
        with self.lock:
            self.actors.append(made)
        return made

    def call(self, actor: FakeActor, method: str, arguments: tuple[Any, ...], arrived: Arrived) -> None:
        if not self.session:
            raise StageError("the connection was shut down")
        self.calls += method in {"call", "read"}
        with self.lock:
            actor.pending.append((method, pickle.loads(pickle.dumps(arguments)), arrived))
            if actor not in self.actors:  # it is lost, which nobody has been told yet
                self.actors.append(actor)
            if self.thread is None and self.room:
                self.thread = threading.Thread(target=self.work, daemon=True)
                self.thread.start()

    def share(self, parcel: Parcel) -> Parcel:
        self.shared.append(parcel)
        return parcel

    def lost(self, error: BaseException, greeting: Greeting | None) -> Loss | StageError:
        return error.what if isinstance(error, LostError) else StageError(f"a call failed: {error!r}")

    def words(self, error: BaseException) -> str:
        return str(error)

    def stop(self, actor: FakeActor) -> None:
        self.ended += 1
        self.lose(actor, Loss.ACTOR)

    def connected(self) -> bool:
        return self.session

    def shortage(self) -> str:
        return "an actor needs 1 CPUs, the cluster has 0"

    # what a cluster does

    def work(self) -> None:
        """Do what is asked for, in any order, until nothing is."""
        while True:
            with self.lock:
                self.actors = [actor for actor in self.actors if actor.pending or actor.gone is None]
                busy = [actor for actor in self.actors if actor.pending]
                if not busy:
                    self.thread = None
                    self.lock.notify_all()
                    return
                actor = self.dice.choice(busy)
                call = actor.pending.pop(self.dice.randrange(len(actor.pending)))
            self.do(actor, *call)

    def do(self, actor: FakeActor, method: str, arguments: tuple[Any, ...], arrived: Arrived) -> None:
        """Make a call, or lose it, or what it needs."""
        if actor.gone is None and method in {"call", "read"} and (loss := self.drawn()) is not None:
            if loss is Loss.RESULT:
                if self.dice.random() < 0.5:  # after it was made
                    self.made(actor, method, arguments)
                arrived(None, LostError(loss))
                return
            for one in [actor] if loss is Loss.ACTOR else [one for one in self.actors if one.node == actor.node]:
                self.lose(one, loss)
        if actor.gone is None:
            DYING.now = False
            result = self.made(actor, method, arguments)
            if DYING.now:
                self.lose(actor, Loss.ACTOR)
        if actor.gone is not None:
            end_runs(actor)
            arrived(None, LostError(actor.gone))
        else:
            arrived(result, None)

    def made(self, actor: FakeActor, method: str, arguments: tuple[Any, ...]) -> Any:
        """Return what a method of an actor returns, as it arrives."""
        if method == "greet":
            return self.greeting._replace(node=actor.node, address=actor.node)
        arguments = tuple(stored(one) if isinstance(one, Parcel) else one for one in arguments)
        reply = getattr(actor.actor, method)(*arguments)
        return CallReply(stored(reply.parcel)) if reply is not None and reply.parcel is not None else reply

    def drawn(self) -> Loss | None:
        """Draw whether something is lost now."""
        faults = self.faults
        if faults.most <= 0:
            return None
        for loss, one_of in ((Loss.RESULT, faults.results), (Loss.NODE, faults.nodes), (Loss.ACTOR, faults.actors)):
            if one_of and self.dice.randrange(one_of) == 0:
                faults.most -= 1
                if loss is Loss.ACTOR:
                    faults.actors = 0
                return loss
        return None

    def lose(self, actor: FakeActor, loss: Loss) -> None:
        with self.lock:
            actor.gone = actor.gone or loss
            if not actor.pending and actor in self.actors:
                self.actors.remove(actor)
        end_runs(actor)


def end_runs(actor: FakeActor) -> None:
    """End what a process would take with it."""
    for number in list(getattr(actor.actor, "runs", ())):
        actor.actor.end(number)


def stored(parcel: Parcel) -> Parcel:
    """Return a parcel as it lies in an object store: a copy that nobody may write to."""
    buffers = tuple(np.frombuffer(buffer.tobytes(), np.uint8) for buffer in parcel.buffers)
    return Parcel(bytes(parcel.head), buffers)


@contextmanager
def on_fake(seed: int = 0, faults: Faults | None = None) -> Iterator[list[FakeTransport]]:
    """Have `Options(cluster=)` use a fake; gives the transports as they are made."""
    made: list[FakeTransport] = []

    def connection(cluster: ad.Cluster, kind: ActorKind) -> Any:
        def connect() -> FakeTransport:
            made.append(FakeTransport(cluster, kind, seed, faults))
            return made[-1]

        return connect

    with (
        mock.patch.object(handle, "connection", connection),
        mock.patch.object(handle, "HANDLES", {}),
        mock.patch.object(handle, "RUN_HANDLES", {}),
    ):
        yield made


def until(condition: Any, seconds: float = 120.0) -> bool:
    """Whether something becomes true that another thread does, and does not tell."""
    gate = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return True
        gate.wait(0.01)
    return bool(condition())

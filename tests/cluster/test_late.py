"""A call that is late is made by another actor too: the first outcome counts, once, whatever comes later."""

from __future__ import annotations

import asyncio
import heapq
import random
import threading
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.cluster.actor import CallReply, Greeting
from asyncdata.cluster.pool import Killed
from asyncdata.cluster.remote_run import RemoteRun, RunOrder, RunPool
from asyncdata.cluster.run_actor import RunActor
from asyncdata.cluster.transport import Loss
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.queue import LoopSignal
from tests.cluster.test_pool import ByHand, Pool


def late(calls: int = 2) -> Pool:
    """A pool whose calls take a hundredth of a second; `a`, the one of the first actor, is late."""
    pool = Pool(calls=calls)
    for name in "uvwxyz":
        pool.submit(name)
    pool.greet()
    while pool.running:
        pool.now += 0.01
        pool.answer(pool.running[0][1])
    pool.submit("a")
    pool.now += 4.9
    pool.pool.look()
    assert pool.running == [(1, "a")]
    pool.now += 0.2
    pool.pool.look()
    assert pool.running == [(1, "a"), (2, "a")]
    return pool


def test_the_first_answer_counts_and_a_later_one_does_not() -> None:
    for first in (0, 1):
        pool = late()
        asked = list(pool.transport.asked)
        for place in (first, 1 - first):
            asked[place][3](CallReply(asked[place][2][2]), None)
            pool.take()
            assert len(pool.replies["a"]) == 1
        assert not pool.pool.busy()
        pool.transport.asked.clear()
        pool.submit("b")
        pool.submit("c")
        assert sorted(pool.running) == [(1, "b"), (2, "c")]  # the late one takes calls again


@pytest.mark.parametrize("loss", [Loss.ACTOR, Loss.NODE, Loss.RESULT])
def test_a_loss_of_one_is_no_loss_while_the_other_has_the_call_and_blame_comes_once(loss: Loss) -> None:
    pool = late()
    first, second = list(pool.transport.asked)
    pool.transport.asked.clear()
    pool.transport.loss = loss
    first[3](None, OSError("gone"))
    pool.take()
    assert [type(reply) for reply in pool.replies["a"]] == [Killed] * (loss is Loss.ACTOR)
    second[3](None, OSError("gone, too"))
    pool.take()
    pool.greet()
    if loss is not Loss.ACTOR:
        pool.answer("a")  # asked for again, once
    assert len(pool.replies["a"]) == 1
    assert pool.running == []


def test_a_silent_node_gets_no_call_until_it_answers_and_the_call_behind_the_late_one_goes_elsewhere() -> None:
    pool = late(calls=4)  # 1 and 3 are on one node
    for name in "bcdefg":
        pool.submit(name)
    assert {actor for actor, name in pool.running if name != "a"} == {2, 4}
    found = next(one for one in pool.transport.asked if one[0] == 1)
    pool.transport.asked.remove(found)
    found[3](CallReply(found[2][2]), None)
    pool.take()
    assert {actor for actor, _ in pool.running} == {1, 2, 3, 4}


def test_no_call_is_late_before_one_has_come_or_where_long_ones_are_usual() -> None:
    pool = Pool(calls=2)
    pool.submit("a")
    pool.greet()
    pool.now = 1000.0
    pool.pool.look()
    assert pool.running == [(1, "a")]
    pool.answer("a")  # the first of an actor has imported what it needs
    pool.submit("b")
    pool.now += 2.0
    pool.answer("b")
    pool.submit("c")
    pool.now += 19.0
    pool.pool.look()
    assert len(pool.running) == 1
    pool.now += 2.0
    pool.pool.look()
    assert len(pool.running) == 2


class Timed:
    """Actors on two nodes that make calls one after another, each in a time drawn from a seed; a node may be cut."""

    def __init__(self, seed: int, cut: float, told: float) -> None:
        self.pool = Pool(calls=4)
        self.dice = random.Random(seed)
        self.cut, self.told = cut, told
        self.made = 0
        self.free: dict[int, float] = {}
        self.due: list[tuple[float, int, Any]] = []

    def begin(self) -> None:
        """Have what was asked for come at its time, or the end of an actor that was cut off, when it is told."""
        for actor, method, arguments, arrived in self.pool.transport.asked:
            start = max(self.pool.now, self.free.get(actor, 0.0))
            took = 1.0 if method == "greet" else self.dice.lognormvariate(-4.5, 0.5)
            self.free[actor] = start + took
            self.made += method == "call"
            is_cut = actor % 2 and self.free[actor] > self.cut and actor <= 4
            answer = Greeting.of_this(f"node {actor % 2}") if method == "greet" else CallReply(arguments[-1])
            what = (None, OSError("cut")) if is_cut else (answer, None)
            heapq.heappush(
                self.due, (self.told if is_cut else self.free[actor], len(self.due) + self.made, (arrived, what))
            )
        self.pool.transport.asked.clear()

    def run(self, count: int) -> float:
        """Have so many calls made, 16 of them in flight; return the longest time without an outcome."""
        pool, longest, last, seen, submitted = self.pool, 0.0, 0.0, 0, 0
        pool.transport.loss = Loss.NODE
        look = 0.5
        while seen < count:
            while submitted < min(count, seen + 16):
                pool.submit(str(submitted))
                submitted += 1
            pool.take()
            self.begin()
            if self.due and self.due[0][0] <= look:
                pool.now, _, (arrived, what) = heapq.heappop(self.due)
                arrived(*what)
            else:
                pool.now = look
                look += 0.5
                pool.pool.events.put(pool.pool.look)
            pool.take()
            while seen < submitted and pool.replies[str(seen)]:  # in order
                seen, longest, last = seen + 1, max(longest, pool.now - last), pool.now
        assert [len(heard) for heard in pool.replies.values()] == [1] * count
        return longest


def test_a_cut_node_costs_ten_seconds_at_most_and_no_work_is_done_twice_when_nothing_is_late() -> None:
    whole = Timed(0, cut=1e9, told=1e9)
    assert whole.run(600) < 1.5
    assert whole.made == 600
    for seed in range(3):
        cut = Timed(seed, cut=1.5 + seed / 4, told=64.0)
        assert 5.0 < cut.run(600) < 10.0
        assert cut.made <= 600 + 2 * 4


def test_each_call_has_one_outcome_whatever_is_late_or_lost_and_whoever_answers_when() -> None:
    hedged = 0
    for seed in range(20):
        dice, pool = random.Random(seed), Pool(calls=3)
        for number in range(25):
            pool.submit(str(number), alone=dice.random() < 0.2)
        while not all(pool.replies.values()):
            pool.now += dice.choice([0.01, 0.01, 6.0])
            pool.pool.look()
            there = [sent.call for actor in pool.pool.actors for sent in actor.calls.values()]
            hedged += len(there) > len({*there})
            actor, method, arguments, arrived = pool.transport.asked.pop(dice.randrange(len(pool.transport.asked)))
            pool.transport.loss = dice.choice([Loss.NODE, Loss.ACTOR, Loss.RESULT])
            if dice.random() < 0.1:
                arrived(None, OSError("gone"))
            else:
                greets = method == "greet"
                arrived(Greeting.of_this(f"node {actor % 2}") if greets else CallReply(arguments[-1]), None)
            pool.take()
        for _, method, arguments, arrived in pool.transport.asked:
            arrived(Greeting.of_this() if method == "greet" else CallReply(arguments[-1]), None)  # too late
        pool.take()
        for name, (reply,) in pool.replies.items():
            assert isinstance(reply, Killed) or reply.parcel.head == name.encode()
    assert hedged > 20


# runs


class Runs:
    """A run on actors that answer when the test says so, in a time that it sets."""

    def __init__(self, plan: ad.Dataset[Any]) -> None:
        self.now = 0.0
        self.transport = ByHand()
        self.actors: dict[int, RunActor] = {}
        self.pool = RunPool(ad.Cluster(calls=0, runs=3), lambda: self.transport, lambda: self.now)
        self.pool.thread = threading.current_thread()  # which takes the events
        self.pool.pace.took(0.01)
        order = RunOrder(getattr(plan, "_plan"), (0,), None, "plan")  # noqa: B009
        share = MemoryBudget(1 << 20).share()
        self.run = RemoteRun(self.pool, order, LoopSignal(threadsafe=True), False, share, 2)
        self.work()

    def work(self) -> None:
        while not self.pool.events.empty():
            event = self.pool.events.get()
            assert event is not None
            event()

    def late(self) -> None:
        self.now += 6.0
        self.pool.look()
        self.work()

    def answer(self, place: int, loss: Loss | None = None) -> None:
        actor, method, arguments, arrived = self.transport.asked.pop(place)
        if loss is not None:
            self.transport.loss = loss
            arrived(None, OSError("gone"))
        elif method == "greet":
            arrived(Greeting.of_this(f"node {actor % 2}"), None)
        else:
            there = self.actors.setdefault(actor, RunActor(True))
            arrived(getattr(there, method)(*arguments), None)
        self.work()

    def reads(self) -> list[int]:
        return [place for place, one in enumerate(self.transport.asked) if one[1] == "read"]

    def take(self) -> list[Any] | None:
        """Return elements that are here; nothing at the end."""
        if not self.run.arrived and self.run.ended is None:
            return []
        block = asyncio.run(self.run.next())
        return None if block is None else list(block.items)

    def close(self) -> None:
        self.run.close()
        self.work()
        while self.transport.asked:
            self.answer(0)
        lost = self.transport.stopped
        assert not any(actor.runs for number, actor in self.actors.items() if number not in lost)
        for actor in self.actors.values():
            for number in list(actor.runs):
                actor.end(number)


def numbers() -> ad.Dataset[Any]:
    return ad.Dataset.range(30).shuffle(7, seed=1).map(lambda x: bytes([x]) * 600)


def test_a_run_goes_on_exactly_whoever_answers_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.cluster.remote_run.CHUNK", 2000)
    monkeypatch.setattr("asyncdata.cluster.remote_run.LEAST", 2000)
    whole, doubled = list(numbers().iterate(epoch=0)), 0
    for seed in range(2):
        dice, found, runs = random.Random(seed), list[Any](), Runs(numbers())
        while (some := runs.take()) is not None:
            found += some
            places = [*range(len(runs.transport.asked))]
            if dice.random() < 0.3:
                runs.late()
                doubled += len(runs.reads()) > 1
            elif places:
                losses = [None] * 8 + [Loss.NODE, Loss.ACTOR, Loss.RESULT]
                runs.answer(dice.choice(places), dice.choice(losses) if dice.random() < 0.5 else None)
        assert found == whole, seed
        runs.close()
    assert doubled > 2


def test_a_late_run_that_ends_two_workers_is_blamed_once() -> None:
    runs = Runs(numbers())
    while "greet" in [one[1] for one in runs.transport.asked]:
        runs.answer(0)
    runs.late()
    assert len(runs.reads()) == 2
    runs.late()
    assert len(runs.reads()) == 2  # no third
    runs.answer(runs.reads()[0], Loss.ACTOR)
    assert (runs.run.deaths, len(runs.reads())) == (0, 1)
    runs.answer(runs.reads()[0], Loss.ACTOR)
    assert runs.run.deaths == 1
    runs.close()

"""The pool of actors: what it does with calls when actors are slow to come, are lost, or say something late."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.cluster.actor import CallReply, Greeting
from asyncdata.cluster.parcel import Parcel
from asyncdata.cluster.pool import ActorPool, Killed, PendingCall, RemoteFunction
from asyncdata.cluster.transport import Loss
from asyncdata.errors import StageError


class ByHand:
    """A transport whose calls are answered by the test."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, tuple[Any, ...], Callable[[Any, BaseException | None], None]]] = []
        self.started = 0
        self.stopped: list[int] = []
        self.loss = Loss.ACTOR
        self.session = True

    def start(self) -> int:
        self.started += 1
        return self.started

    def call(self, actor: int, method: str, arguments: Any, arrived: Any) -> None:
        self.asked.append((actor, method, arguments, arrived))

    def share(self, pickled: bytes) -> bytes:
        return pickled

    def lost(self, error: BaseException, greeting: Greeting | None) -> Any:
        return self.loss

    def words(self, error: BaseException) -> str:
        return str(error)

    def stop(self, actor: int) -> None:
        self.stopped.append(actor)

    def connected(self) -> bool:
        return self.session

    def shortage(self) -> str:
        return "an actor needs 4 CPUs, the cluster has 2"


class Pool:
    """A pool whose events are taken one by one, in a time that the test sets."""

    def __init__(self, calls: int = 1, timeout: float = 60.0) -> None:
        self.now = 0.0
        self.transport = ByHand()
        self.pool = ActorPool(ad.Cluster(calls=calls, timeout=timeout), lambda: self.transport, lambda: self.now)
        self.function = RemoteFunction(Parcel(b"work"))
        self.replies: dict[str, list[Any]] = {}

    def submit(self, name: str, alone: bool = False) -> None:
        heard = self.replies.setdefault(name, [])
        self.pool.add(PendingCall(self.function, partial(Parcel, name.encode()), heard.append, alone, self.pool.turn))

    def take(self) -> None:
        """Take all that has happened."""
        while not self.pool.events.empty():
            event = self.pool.events.get()
            assert event is not None
            event()

    def greet(self) -> None:
        """Have all actors that have not yet say that they are there."""
        for actor, method, arguments, arrived in list(self.transport.asked):
            if method == "greet":
                self.transport.asked.remove((actor, method, arguments, arrived))
                arrived(Greeting.of_this(f"node {actor % 2}"), None)
        self.take()

    @property
    def running(self) -> list[tuple[int, str]]:
        return [(actor, arguments[2].head.decode()) for actor, _, arguments, _ in self.transport.asked]

    def answer(self, name: str, loss: Loss | None = None, known: bool = True) -> None:
        """Answer a call, or lose something."""
        (found,) = [one for one in self.transport.asked if one[1] == "call" and one[2][2].head == name.encode()]
        self.transport.asked.remove(found)
        self.transport.loss = loss or Loss.ACTOR
        reply = CallReply(Parcel(b"done") if known else None)
        found[3](None if loss else reply, OSError("gone") if loss else None)
        self.take()


def test_an_actor_gets_one_call_more_than_it_works_on() -> None:
    pool = Pool(calls=2)
    for name in "abcdef":
        pool.submit(name)
    assert {method for _, method, _, _ in pool.transport.asked} == {"greet"}
    pool.greet()
    assert sorted(name for _, name in pool.running) == ["a", "b", "c", "d"]
    pool.answer("a")
    assert "e" in [name for _, name in pool.running]


def test_only_the_oldest_call_of_a_lost_actor_is_to_blame() -> None:
    pool = Pool()
    for name in "abc":
        pool.submit(name)
    pool.greet()
    assert pool.running == [(1, "a"), (1, "b")]
    pool.answer("a", Loss.ACTOR)
    assert isinstance(pool.replies["a"][0], Killed)
    assert pool.transport.stopped == [1]
    pool.greet()
    assert pool.running[-2:] == [(2, "b"), (2, "c")]


def test_no_call_is_to_blame_for_a_node() -> None:
    pool = Pool()
    pool.submit("a")
    pool.greet()
    for turn in range(10):
        assert pool.running == [(turn + 1, "a")]
        pool.answer("a", Loss.NODE)
        pool.greet()
    pool.answer("a")
    assert [type(reply) for reply in pool.replies["a"]] == [CallReply]


def test_a_late_error_of_a_lost_actor_does_not_touch_its_successor() -> None:
    pool = Pool()
    pool.submit("a")
    pool.submit("b")
    pool.greet()
    late = [one[3] for one in pool.transport.asked if one[2][2].head == b"b"]
    pool.answer("a", Loss.NODE)
    pool.greet()
    started = pool.transport.started
    late[0](None, OSError("gone, too"))
    late[0](CallReply(Parcel(b"late")), None)
    pool.take()
    assert pool.transport.started == started
    assert pool.replies["b"] == []


def test_a_lost_result_is_asked_for_again() -> None:
    pool = Pool()
    pool.submit("a")
    pool.greet()
    pool.answer("a", Loss.RESULT)
    assert pool.running == [(1, "a")]
    pool.answer("a")
    assert len(pool.replies["a"]) == 1


def test_a_function_that_an_actor_does_not_know_is_sent_along() -> None:
    pool = Pool()
    pool.submit("a")
    pool.submit("b")
    pool.greet()
    assert [arguments[1] for _, _, arguments, _ in pool.transport.asked] == [pool.function.work, None]
    pool.answer("b", known=False)  # it was begun before the call that brought the function
    assert [arguments[1] for _, _, arguments, _ in pool.transport.asked] == [pool.function.work] * 2


def test_a_call_that_may_kill_is_made_by_an_actor_that_has_no_other() -> None:
    pool = Pool(calls=2)
    for name in "abc":
        pool.submit(name)
    pool.submit("x", alone=True)
    pool.submit("d")
    pool.greet()
    assert "x" not in [name for _, name in pool.running]
    for name in "abc":
        if "x" not in [name for _, name in pool.running]:
            pool.answer(name)
    (actor,) = [actor for actor, name in pool.running if name == "x"]
    assert [name for where, name in pool.running if where == actor] == ["x"]


def test_what_was_dropped_is_not_begun() -> None:
    pool = Pool()
    heard: list[Any] = []
    call = PendingCall(pool.function, partial(Parcel, b"a"), heard.append, False, 0)
    pool.pool.add(call)
    pool.pool.drop(call)
    pool.greet()
    assert pool.running == []
    assert not pool.pool.busy()


def test_without_room_a_log_record_comes_first_and_then_an_error(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool(timeout=30)
    pool.submit("a")
    pool.now = 9.0
    pool.pool.look()
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "asyncdata"):
        for pool.now in (10.0, 12.0):
            pool.pool.look()
    assert [record.message for record in caplog.records] == [
        "waiting for an actor in the Ray cluster: an actor needs 4 CPUs, the cluster has 2"
    ]
    pool.now = 30.0
    with pytest.raises(StageError, match=r"no actor has started in 30 seconds \(Cluster\(timeout=\)\): .* 4 CPUs"):
        pool.pool.look()


def test_time_without_anything_to_do_does_not_count() -> None:
    pool = Pool(timeout=30)
    pool.submit("a")
    pool.greet()
    pool.answer("a")
    pool.now = 100.0
    pool.submit("b")
    pool.pool.look()  # raises no StageError, though 100 seconds have passed since an actor started
    pool.answer("b")
    assert [len(pool.replies[name]) for name in "ab"] == [1, 1]


def test_actors_that_end_before_anything_is_done_end_the_pipeline_at_last() -> None:
    pool = Pool()
    pool.submit("a")

    def lose_all() -> None:
        for _ in range(30):
            pool.greet()
            pool.answer("a", Loss.NODE)

    with pytest.raises(StageError, match="in a row"):
        lose_all()


def test_a_node_with_many_actors_may_be_lost() -> None:
    pool = Pool(calls=40)
    names = [str(number) for number in range(40)]
    for name in names:
        pool.submit(name)
    pool.greet()
    pool.transport.loss = Loss.NODE
    while lost := [one for one in pool.transport.asked if one[0] <= 39 and one[1] == "call"]:
        pool.transport.asked.remove(lost[0])
        lost[0][3](None, OSError("gone"))
        pool.take()
    pool.greet()
    for name in names:
        pool.answer(name)
    assert all(isinstance(pool.replies[name][0], CallReply) for name in names)


def test_actors_that_end_count_from_the_last_completed_call_on() -> None:
    pool = Pool()
    for _ in range(30):
        pool.submit("a")
        pool.greet()
        pool.answer("a", Loss.NODE)
        pool.greet()
        pool.answer("a")
    assert len(pool.replies["a"]) == 30


@pytest.mark.parametrize("lost", [True, False])
def test_after_a_shutdown_no_call_is_made_and_no_actor_is_started(lost: bool) -> None:
    pool = Pool()
    pool.submit("a")
    pool.submit("b")
    pool.submit("c")
    pool.greet()
    pool.transport.session = False
    with pytest.raises(StageError, match="the connection to Ray was shut down"):
        pool.answer("a", Loss.NODE if lost else None)
    assert pool.transport.started == 1
    assert pool.running == [(1, "b")]


def test_who_was_told_of_a_failure_does_not_connect_anew() -> None:
    pool = Pool()
    pool.submit("a")
    turn = pool.pool.turn
    pool.pool.fail(StageError("gone"))
    assert isinstance(pool.replies["a"][0], StageError)
    heard: list[Any] = []
    pool.pool.add(PendingCall(pool.function, partial(Parcel, b"b"), heard.append, False, turn))
    assert isinstance(heard[0], StageError)
    assert pool.transport.started == 1
    pool.submit("c")  # of a pipeline that has begun since
    assert pool.transport.started == 2


def test_parcels_keep_large_arrays_beside_the_pickle() -> None:
    import numpy as np

    large, small = np.arange(1 << 16), random.Random(0).randbytes(10)
    parcel = Parcel.of((large, small))
    assert len(parcel.head) < 1000
    assert np.shares_memory(parcel.buffers[0], large)
    own, views = parcel.open(copied=True), parcel.open(copied=False)
    assert own[0].flags.writeable
    assert not np.shares_memory(own[0], large)
    assert np.shares_memory(views[0], large)
    assert Parcel.of([np.arange(3)] * 100).buffers == ()

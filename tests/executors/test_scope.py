"""The threads of a pipeline end with it, however their start was interrupted."""

from __future__ import annotations

import threading
from typing import ClassVar
from unittest import mock

import pytest

from asyncdata.executors.scope import OwnedTask
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.testing import leaves_nothing


class Interrupted(Exception):
    """What a signal handler raises."""


class LateThread(threading.Thread):
    """A thread that begins after `start` was interrupted."""

    timers: ClassVar[list[threading.Timer]] = []

    def start(self) -> None:
        self.timers.append(threading.Timer(0.01, super().start))
        self.timers[-1].start()
        raise Interrupted


class NeverThread(threading.Thread):
    """A thread that does not begin, as `start` was interrupted too early."""

    def start(self) -> None:
        raise Interrupted


def test_a_thread_that_begins_after_its_start_was_interrupted_is_awaited() -> None:
    ran: list[str] = []
    owned = OwnedTask(MemoryBudget(1 << 20))
    with leaves_nothing():
        with mock.patch("threading.Thread", LateThread), pytest.raises(Interrupted):
            owned.start(lambda: ran.append(threading.current_thread().name), "late")
        owned.join()
        assert ran == ["late"]
        assert not owned.threads
        for timer in LateThread.timers:
            timer.join()


def test_a_thread_that_never_begins_holds_up_the_end_no_longer_than_a_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncdata.executors.scope.END_TIMEOUT", 0.01)
    owned = OwnedTask(MemoryBudget(1 << 20))
    with mock.patch("threading.Thread", NeverThread), pytest.raises(Interrupted):
        owned.start(lambda: None, "never")
    owned.join()

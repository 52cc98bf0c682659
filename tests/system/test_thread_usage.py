"""What a thread is told of its use of a core."""

from __future__ import annotations

import os
import threading
import time

import pytest

from asyncdata.system import thread_usage
from asyncdata.system.thread_usage import ThreadUsage, queued

__all__ = ()


def test_what_was_computed_is_told_and_each_pause() -> None:
    before = ThreadUsage.now()
    while time.thread_time() - before.cpu < 0.01:
        pass
    while (used := before.since(1)).pauses < 1:
        time.sleep(0.001)  # may be over before the thread, which others kept from a core, has given that up
    assert used.cpu >= 0.01
    assert used.queued >= 0


def test_where_the_system_does_not_tell_each_call_has_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_usage, "getrusage", None)
    assert ThreadUsage.now().since(5).pauses == 5


def test_where_the_system_does_not_tell_nothing_was_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    assert queued(1 << 30) == 0, "there is no such thread"
    monkeypatch.setattr(thread_usage, "C", None)
    assert queued() == 0


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="the system does not tell")
def test_it_is_what_the_kernel_tells() -> None:
    def told() -> float:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9

    before, found, after = told(), queued(), told()
    assert before <= found <= after
    assert before <= queued(threading.get_native_id())

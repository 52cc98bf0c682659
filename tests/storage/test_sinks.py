"""What ends an upload; against real servers it is tested in tests/remote."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from asyncdata.storage import sinks

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_an_interrupt_while_the_end_of_an_upload_waits_for_space_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, came = threading.Event(), list[bytes]()

    def upload(path: str, parts: Iterator[bytes]) -> None:
        for part in parts:
            slow.wait()
            came.append(part)

    class Interrupted(sinks.queue.Queue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            if item is None and not slow.is_set():
                slow.set()
                raise KeyboardInterrupt
            super().put(item, block, timeout)

    monkeypatch.setattr(sinks, "Writable", Mock(return_value=SimpleNamespace(put=upload)))
    monkeypatch.setattr(sinks.queue, "Queue", Interrupted)
    store: Any = SimpleNamespace(root="s3://bucket", url=str)
    sink = sinks.ObjectSink(store, "object", None)
    for part in (b"one", b"two"):
        sink.write(part)
        sink.enqueue()
    with pytest.raises(KeyboardInterrupt):
        sink.close()
    sink.abort()
    assert came == [b"one", b"two"]
    assert not sink.thread.is_alive()

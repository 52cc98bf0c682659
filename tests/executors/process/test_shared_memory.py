"""SharedMemory: what is written into its file is in its map, here and in what attaches it."""

from __future__ import annotations

import os

import pytest

from asyncdata.executors.process import shared_memory
from asyncdata.executors.process.shared_memory import SharedMemory


@pytest.mark.parametrize("by_file", [True, False])
def test_what_is_written_is_in_all_maps(by_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "WRITTEN", 1000)
    if not by_file:
        monkeypatch.delattr(os, "pwrite")
    data = os.urandom(10_001)
    segment = SharedMemory.create(20_000)
    segment.write(7, memoryview(data))
    other = SharedMemory.attach(segment.handle, segment.size)
    for mapped in (segment.map, other):
        assert mapped[:] == bytes(7) + data + bytes(20_000 - 7 - len(data))
    other.close()
    segment.close()

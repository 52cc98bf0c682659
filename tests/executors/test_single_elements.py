"""An element that travels alone passes through few functions."""

from __future__ import annotations

import pytest

from asyncdata.executors import workers
from benchmarks.micro.single_elements import calls_of, nothing, pipeline

__all__ = ()


def test_an_element_that_travels_alone_takes_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all threads together."""
    monkeypatch.setattr(workers, "THREAD_GROUP", 0.0)
    calls = calls_of(pipeline(nothing, 1000))
    assert calls["nothing"] == 1000
    assert calls.total() < 95_000

"""How buffers share a budget."""

from __future__ import annotations

import pytest

from asyncdata.runtime import memory_budget as module
from asyncdata.runtime.memory_budget import MemoryBudget

__all__ = ()


def test_what_one_has_another_cannot_have() -> None:
    budget = MemoryBudget(100)
    first, second = budget.share(), budget.share()
    assert (first.claim(70), second.claim(70)) == (70, 30)
    assert first.claim(10) == 10
    assert second.claim(70) == 70
    assert first.claim(50, least=25) == 30
    assert budget.taken == 100


def test_each_has_the_least_that_it_needs() -> None:
    budget = MemoryBudget(100)
    first, second = budget.share(), budget.share()
    first.claim(100)
    assert second.claim(70, least=20) == 20
    assert first.claim(1000, least=1) == 80


def test_what_a_buffer_has_ends_with_it() -> None:
    budget = MemoryBudget(100)
    first = budget.share()
    first.claim(100)
    del first
    assert budget.share().claim(100) == 100


def test_what_may_be_held_twice_counts_twice() -> None:
    budget = MemoryBudget(100)
    first = budget.share(copies=2)
    assert first.claim(70) == 50
    assert budget.taken == 100


def test_a_little_less_leaves_it_as_it_is() -> None:
    share = MemoryBudget(100).share()
    share.claim(80)
    assert (share.claim(41), share.claim(39)) == (80, 39)


def test_half_of_what_is_available_is_asked_for_once_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "available_bytes", lambda: asked.append(1) or 100 << 20)
    budget = MemoryBudget()
    first, second = budget.share(), budget.share()
    assert first.claim(10 << 20) == 10 << 20
    assert not asked
    assert second.claim(60 << 20) == 40 << 20
    assert first.claim(30 << 20) == 10 << 20
    assert len(asked) == 1

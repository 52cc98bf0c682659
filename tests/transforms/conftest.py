"""Every test of a transformation leaves nothing behind."""

from __future__ import annotations

import weakref

import pytest

from asyncdata.executors.process import pool


@pytest.fixture
def pools_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that an earlier test's dataset keeps would have memory of this test's results, too."""
    monkeypatch.setattr(pool, "HANDLES", weakref.WeakValueDictionary())


@pytest.fixture(autouse=True)
def leaving_nothing(pools_of_its_own: None, nothing_left: None) -> None:
    """Apply `nothing_left` to all tests here."""

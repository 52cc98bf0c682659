"""What the tests of worker processes share: functions that a worker can import, and a pool that stays warm."""

from __future__ import annotations

import pytest

from asyncdata.executors.process.pool import PoolHandle, pool_of


@pytest.fixture(scope="session")
def warm() -> PoolHandle:
    """Hold two processes, so that not every test starts its own."""
    return pool_of(2)


@pytest.fixture(autouse=True)
def stays_warm(warm: PoolHandle) -> PoolHandle:
    return warm

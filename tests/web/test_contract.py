"""What every source of items does, whatever server it reads: the clauses are in `asyncdata.testing.sources`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncdata.testing.sources import CLAUSES, Clause
from tests.running import taken
from tests.web.drivers import DRIVERS, gated_kafka_driver
from tests.web.gates import virtual_pauses
from tests.web.killing import PROGRAMS, killed
from tests.web.programs import queue_trainer

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

BEHIND_GATES = ("redis", "redis_6", "nats", "events", "events_compressed", "websocket")


GATED_KAFKA = "kafka behind a gate"


@pytest.fixture
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    make = gated_kafka_driver if request.param == GATED_KAFKA else DRIVERS[request.param][1]
    with make(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("driver", "clause"),
    [
        pytest.param(name, clause, id=f"{clause.body.__name__}-{name}")
        for clause in CLAUSES
        for name, (kind, _) in DRIVERS.items()
        if clause.needs <= kind.can
    ],
    indirect=["driver"],
)
def test_source(driver: Any, clause: Clause) -> None:
    clause.check(driver)


@pytest.mark.parametrize("driver", [*BEHIND_GATES, GATED_KAFKA], indirect=True)
def test_connections_that_break_lose_and_repeat_nothing(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_pauses(monkeypatch), driver.following().iterate() as items:
        for start in range(0, 30, 5):
            driver.send(range(start, start + 5))
            assert taken(items, 5) == [*range(start, start + 5)]
            driver.gate.break_off()
    assert driver.gate.connections <= 12 * getattr(driver, "connections", 1)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("driver", ["redis", "nats", GATED_KAFKA], indirect=True)
def test_good_messages_are_trained_on_once_whoever_is_killed(driver: Any, kills: int, tmp_path: Path) -> None:
    """The trainer is killed, and the server, or its connections where it keeps nothing, as many times each."""
    count, saved = 80 * (kills + 1), tmp_path / "saved.json"
    good = [number for number in range(count) if number % 7 != 3]
    program = [PROGRAMS / "queue_trainer.py", json.dumps([*driver.address, {}]), saved, len(good) - 24]
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(partial(killed, *program, kills=kills, more=1))
        for start in range(0, count, 80):
            driver.send(range(start, start + 80))
            driver.restart() if "restart" in driver.can else driver.gate.break_off()
        assert training.result() == 0
    queue_trainer.main(json.dumps([*driver.address, {"follow": False}]), str(saved), str(len(good)))
    assert sorted(json.loads(saved.read_text())["trained"]) == good


@pytest.mark.parametrize("driver", BEHIND_GATES, indirect=True)
def test_a_server_that_stays_away_is_given_up(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.send([0])
    with virtual_pauses(monkeypatch) as pauses, driver.following().iterate() as items:
        assert next(items) == 0
        driver.gate.close()
        with pytest.raises(ConnectionError):
            next(items)
        with pytest.raises(StopIteration):
            next(items)
    assert 200 <= sum(pauses) <= 300
    assert len(pauses) <= 30
    assert pauses[4] > 2 * pauses[0]
    assert driver.gate.connections <= 2 * len(pauses) + 4

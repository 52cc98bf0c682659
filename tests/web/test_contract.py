"""What every source of items does, whatever server it reads: the clauses are in `asyncdata.testing.sources`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asyncdata.testing.sources import CLAUSES, Clause
from tests.running import taken
from tests.web.drivers import DRIVERS, gated_kafka_driver
from tests.web.gates import virtual_pauses

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

BEHIND_GATES = ("redis", "redis_6", "nats", "events", "events_compressed", "websocket")


GATED_KAFKA = "kafka behind a gate"

COLUMNS = {
    "Kafka": "kafka",
    "Redis": "redis",
    "NATS": "nats",
    "SSE": "events",
    "NDJSON": "lines",
    "WebSocket": "websocket",
    "`Channel`": "memory_channel",
    "`DurableChannel`": "durable_channel",
}
"""The drivers of the table of docs/web.md."""


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


def test_the_table_of_the_page_has_the_clauses_that_each_source_passes() -> None:
    table = [f"| clause | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for clause in CLAUSES:
        passes = ["yes" if clause.needs <= DRIVERS[name][0].can else "" for name in COLUMNS.values()]
        table.append(f"| {clause.name} | {' | '.join(passes)} |".replace("|  ", "| "))
    lines = "".join(f"{line}\n" for line in table)
    page = Path(__file__).parents[2] / "docs" / "web.md"
    assert lines in page.read_text(encoding="utf-8"), f"docs/web.md must have this table:\n{lines}"


@pytest.mark.parametrize("driver", [*BEHIND_GATES, GATED_KAFKA], indirect=True)
def test_connections_that_break_lose_and_repeat_nothing(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_pauses(monkeypatch), driver.following().iterate() as items:
        for start in range(0, 30, 5):
            driver.send(range(start, start + 5))
            assert taken(items, 5) == [*range(start, start + 5)]
            driver.gate.break_off()
    assert driver.gate.connections <= 12 * getattr(driver, "connections", 1)


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

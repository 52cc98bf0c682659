"""What every source of items does, whatever server it reads: the clauses are in `asyncdata.testing.sources`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing.sources import CLAUSES, Clause
from asyncdata.web.dead_letters import Letter
from tests.running import taken
from tests.web.consuming import consume, letters
from tests.web.drivers import DRIVERS, DurableChannelDriver, gated_kafka_driver
from tests.web.gates import virtual_pauses

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]


def number_of(item: Any) -> int:
    """Return the number in an item as a source gives it."""
    if isinstance(item, dict):
        item = item.get("n") or item["value"]
    return int(item[0] if isinstance(item, list) else item)


def halved(number: int) -> float:
    """Return half of a number; one in five is bad."""
    if number % 5 == 3:
        raise ValueError(f"{number} is bad")
    return number / 2


def dead_letters_of(driver: Any, folder: Path, count: int, state: Any = None) -> tuple[list[float], Any, list[int]]:
    """Read so many elements as a consumer does that keeps dead letters; return them, the state, and what was kept."""
    ds = driver.following().shuffle(4, seed=1).map(halved, num_parallel_calls=2)
    stored = isinstance(driver, DurableChannelDriver)
    how = {"on_error": "dead-letter", "state": state, "dead_letters": None if stored else folder}
    with_state = "state" in driver.can
    found, state, _ = asyncio.run(consume(ds, count, with_state, **how))
    where = driver.path if stored else folder
    kept = [number_of(item) for item in put_back(letters(where))]
    return found[:count], json.loads(json.dumps(state)), kept


def put_back(kept: list[Letter]) -> list[Any]:
    """Return the items that a pipeline reads from a channel to which they were put back."""

    async def send(channel: ad.DurableChannel) -> None:
        for letter in kept:
            kind, body = letter.request()
            await channel.send(body, content_type=kind)

    with tempfile.TemporaryDirectory() as folder:
        with ad.DurableChannel(folder) as channel:
            asyncio.run(send(channel))
        return list(ad.Dataset.from_channel(folder, follow=False))


def an_item_that_fails_becomes_a_dead_letter(driver: Any) -> None:
    driver.send(range(30))
    with tempfile.TemporaryDirectory() as folder:
        found, _, kept = dead_letters_of(driver, Path(folder), 16)
    assert len({*found}) == 16
    assert not {2 * half for half in found} & BAD
    assert {3, 8, 13} <= {*kept} <= BAD
    assert len({*kept}) == len(kept)


def an_item_that_fails_becomes_one_dead_letter_over_resumes(driver: Any) -> None:
    driver.send(range(30))
    with tempfile.TemporaryDirectory() as folder:
        states = {count: dead_letters_of(driver, Path(folder), count)[1] for count in (3, 5)}
        whole, _, _ = dead_letters_of(driver, Path(folder), 16)
        for done, start in states.items():  # what a state says is not read yet fails again
            found, _, kept = dead_letters_of(driver, Path(folder), 16 - done, start)
            assert found == whole[done:]
    assert {3, 8, 13} <= {*kept} <= BAD
    assert len({*kept}) == len(kept)


BAD = {3, 8, 13, 18, 23, 28}

KEEPING = [
    Clause(an_item_that_fails_becomes_a_dead_letter, frozenset({"again", "follow"})),
    Clause(an_item_that_fails_becomes_one_dead_letter_over_resumes, frozenset({"again", "follow", "state"})),
]
"""What the sources do for a `Consumer`, and a user's own do not."""

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
        for clause in [*CLAUSES, *KEEPING]
        for name, (kind, _) in DRIVERS.items()
        if clause.needs <= kind.can
    ],
    indirect=["driver"],
)
def test_source(driver: Any, clause: Clause) -> None:
    clause.check(driver)


def test_the_table_of_the_page_has_the_clauses_that_each_source_passes() -> None:
    table = [f"| clause | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for clause in [*CLAUSES, *KEEPING]:
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

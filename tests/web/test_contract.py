"""What every source of items does, whatever server it reads: see `contract.py`, and `drivers.py` for the sources."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.running import WAYS, taken
from tests.web.contract import Ability, Driver, virtual_pauses
from tests.web.drivers import DRIVERS

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]


NOBODY = pytest.param("", marks=pytest.mark.skip(reason="no source can do this"))


def needs(*abilities: Ability) -> Callable[[Any], Any]:
    """Run a case on each driver that has all these abilities."""
    names = [name for name, (kind, _) in DRIVERS.items() if kind.can.issuperset(abilities)]
    return pytest.mark.parametrize("driver", names or [NOBODY], indirect=True)


@pytest.fixture
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    with DRIVERS[request.param][1](tmp_path) as made:
        yield made


def rest_of(elements: Iterator[int]) -> tuple[list[int], list[Exception]]:
    """Return the items that are left, and the errors among them; nothing comes after an error that ends it."""
    items: list[int] = []
    errors: list[Exception] = []
    while True:
        try:
            items.append(next(elements))
        except StopIteration:
            return items, errors
        except Exception as error:
            errors.append(error)


def state_after(ds: ad.Dataset[int], count: int) -> Any:
    """Return the state after so many items, as it is read back from a file."""
    with ds.iterate() as elements:
        taken(elements, count)
        return json.loads(json.dumps(elements.state_dict()))


def counted(errors: list[Exception]) -> int:
    """Return how many items the errors of lost items report."""
    assert all(isinstance(error, ad.DataLossError) for error in errors), errors
    return sum(int(found[1]) for error in errors if (found := re.search(r": (\d+) .*removed", str(error))))


# items, order and the end


@needs()
def test_every_item_comes_once_and_in_order(driver: Driver) -> None:
    driver.send(range(25))
    assert list(driver.dataset()) == [*range(25)]


@needs("again")
def test_each_iteration_begins_at_the_first_item(driver: Driver) -> None:
    driver.send(range(25))
    for read in WAYS:
        assert read(driver.dataset()) == [*range(25)]


@needs()
def test_without_items_it_ends_at_once(driver: Driver) -> None:
    assert list(driver.dataset()) == []


@needs("again")
def test_it_ends_after_the_items_that_are_there(driver: Driver) -> None:
    for stop in (1, driver.at_once, driver.at_once + 1, 2 * driver.at_once):
        driver.send(range(len(list(driver.dataset())), stop))
        assert list(driver.dataset()) == [*range(stop)]


@needs("follow")
def test_it_waits_for_more(driver: Driver) -> None:
    driver.send(range(3))
    with driver.following().iterate() as items:
        for number in range(8):
            if number >= 3:
                driver.send([number])
            assert next(items) == number


@needs("follow")
def test_a_reader_that_leaves_does_not_wait_for_items(driver: Driver) -> None:
    driver.send([0])
    with driver.following().prefetch(4).iterate() as items:
        assert next(items) == 0


# states


@needs("state")
def test_it_resumes_at_each_item(driver: Driver) -> None:
    driver.send(range(20))
    check_resumes(driver.dataset)
    check_resumes(lambda: driver.dataset().shuffle(5, seed=1).batch(3))


@needs("state")
def test_it_resumes_with_what_came_since(driver: Driver) -> None:
    driver.send(range(5))
    state = state_after(driver.dataset(), 3)
    driver.send(range(5, 9))
    assert list(driver.dataset().iterate(state=state)) == [*range(3, 9)]


@needs("state", "restart")
def test_it_resumes_after_a_restart(driver: Driver) -> None:
    driver.send(range(9))
    state = state_after(driver.dataset(), 4)
    driver.restart()
    assert list(driver.dataset().iterate(state=state)) == [*range(4, 9)]


# what the server removes


@needs("remove")
def test_items_that_are_removed_before_they_are_read_are_an_error(driver: Driver) -> None:
    """Singly, from among others that stay."""
    count = 2 * driver.at_once + 5
    driver.send(range(count))
    removed = [*range(driver.at_once + 1, driver.at_once + 4)]
    with driver.dataset().prefetch(1).iterate() as items:
        assert next(items) == 0
        driver.remove(removed)
        found, errors = rest_of(items)
    assert found == [number for number in range(1, count) if number not in removed]
    assert errors
    if "count" in driver.can:
        assert counted(errors) == 3


@needs("remove")
def test_the_oldest_items_that_are_removed_before_they_are_read_are_an_error(driver: Driver) -> None:
    count = 2 * driver.at_once + 5
    driver.send(range(count))
    with driver.dataset().prefetch(1).iterate() as items:
        assert next(items) == 0
        driver.remove(range(driver.at_once + 4))
        found, errors = rest_of(items)
    assert found == [*range(1, driver.at_once), *range(driver.at_once + 4, count)]
    assert errors
    if "count" in driver.can:
        assert counted(errors) == 4


@needs("remove")
def test_all_items_that_are_removed_before_they_are_read_are_an_error(driver: Driver) -> None:
    driver.send(range(driver.at_once + 2))
    with driver.dataset().prefetch(1).iterate() as items:
        assert next(items) == 0
        driver.remove(range(driver.at_once + 2))
        found, errors = rest_of(items)
    assert found == [*range(1, driver.at_once)]
    assert errors
    if "count" in driver.can:
        assert counted(errors) == 2


@needs("remove", "state")
def test_items_that_come_and_are_removed_while_nobody_reads_are_an_error(driver: Driver) -> None:
    driver.send(range(6))
    for stop in (6, 3):
        state = state_after(driver.dataset(), stop)
        driver.send(range(6, 12))
        driver.remove([8, 9, 10])
        found, errors = rest_of(driver.dataset().iterate(state=state))
        assert found == [*range(stop, 8), 11]
        assert errors
        if "count" in driver.can:
            assert counted(errors) == 3
        driver.renew()
        driver.send(range(6))


@needs("remove", "follow")
def test_items_that_are_removed_after_they_were_read_are_not_missed(driver: Driver) -> None:
    for removed in ([0, 1, 2], [4], [*range(3, 9)]):
        driver.renew()
        driver.send(range(6))
        with driver.following().iterate() as items:
            assert taken(items, 6) == [*range(6)]
            driver.send(range(6, 9))
            assert taken(items, 3) == [6, 7, 8]
            driver.remove(removed)
            driver.send(range(9, 12))
            assert taken(items, 3) == [9, 10, 11]


@needs("remove", "state")
def test_a_state_does_not_need_the_items_before_it(driver: Driver) -> None:
    driver.send(range(9))
    for stop in (1, 5, 9):
        state = state_after(driver.dataset(), stop)
        driver.remove([stop - 1])
        assert list(driver.dataset().iterate(state=state)) == [*range(stop, 9)]
        driver.renew()
        driver.send(range(9))


@needs("remove", "state")
def test_items_that_were_missing_from_the_beginning_are_not_missed(driver: Driver) -> None:
    driver.send(range(20))
    driver.remove([0, 3, 4, 9, 19])
    there = [number for number in range(20) if number not in (0, 3, 4, 9, 19)]
    assert list(driver.dataset()) == there
    check_resumes(driver.dataset)
    driver.send([20])
    assert list(driver.dataset()) == [*there, 20]


@needs("remove", "state")
def test_a_state_whose_next_items_were_removed_is_an_error(driver: Driver) -> None:
    for removed in ([4], [5, 6], [*range(7)], [*range(9)]):
        driver.send(range(9))
        state = state_after(driver.dataset(), 4)
        driver.remove(removed)
        items = driver.dataset().iterate(state=state)
        with items, pytest.raises((ad.ResumeError, ad.DataLossError)):
            list(items)
        driver.renew()


@needs("remove", "state")
def test_a_state_after_an_error_of_lost_items_goes_on(driver: Driver) -> None:
    count = 2 * driver.at_once + 5
    driver.send(range(count))
    with driver.dataset().prefetch(1).iterate() as items:
        assert next(items) == 0
        driver.remove(range(driver.at_once + 4))
        with pytest.raises(ad.DataLossError):
            taken_strictly(items)
        state = json.loads(json.dumps(items.state_dict()))
        assert list(items) == [*range(driver.at_once + 4, count)]
    assert list(driver.dataset().iterate(state=state)) == [*range(driver.at_once + 4, count)]


def taken_strictly(items: Iterator[int]) -> None:
    """Read on until there is an error."""
    for _ in items:
        pass


# a stream that is deleted and made anew


@needs("renew", "follow")
@pytest.mark.parametrize("more", [1, 5, 9])
def test_a_stream_made_anew_is_an_error_while_it_is_followed(driver: Driver, more: int) -> None:
    driver.send(range(5))
    with driver.following().iterate() as items:
        assert taken(items, 5) == [*range(5)]
        driver.renew()
        driver.send(range(more))
        with pytest.raises((ad.DataLossError, ad.ResumeError)):
            next(items)


@needs("renew", "state")
@pytest.mark.parametrize("more", [0, 1, 5, 9])
def test_a_state_of_a_stream_that_was_made_anew_is_an_error(driver: Driver, more: int) -> None:
    driver.send(range(5))
    states = [state_after(driver.dataset(), count) for count in (1, 4, 5)]
    driver.renew()
    driver.send(range(more))
    for state in states:
        with driver.dataset().iterate(state=state) as items, pytest.raises((ad.DataLossError, ad.ResumeError)):
            list(items)


# connections


@needs("restart", "follow")
def test_a_server_that_restarts_is_read_on(driver: Driver) -> None:
    driver.send(range(10))
    with driver.following().iterate() as items:
        assert taken(items, 10) == [*range(10)]
        driver.restart()
        driver.send(range(10, 20))
        assert taken(items, 10) == [*range(10, 20)]


@needs("gate", "follow")
def test_connections_that_break_lose_and_repeat_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual_pauses(monkeypatch), driver.following().iterate() as items:
        for start in range(0, 30, 5):
            driver.send(range(start, start + 5))
            assert taken(items, 5) == [*range(start, start + 5)]
            driver.gate.break_off()
    assert driver.gate.connections <= 12


@needs("gate", "follow")
def test_a_server_that_stays_away_is_given_up(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
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


@needs("beat", "follow")
def test_what_is_no_item_does_no_harm(driver: Driver) -> None:
    driver.send(range(3))
    with driver.following().iterate() as items:
        for start in range(0, 9, 3):
            assert taken(items, 3) == [*range(start, start + 3)]
            driver.beat()
            driver.send(range(start + 3, start + 6))

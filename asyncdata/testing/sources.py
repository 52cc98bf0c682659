"""The contract of sources: what every stream or queue of items does, whatever server it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from asyncdata.dataset import Dataset
from asyncdata.errors import DataLossError, ResumeError
from asyncdata.options import Options
from asyncdata.testing.checks import check_resumes, in_order, read_async, read_plain

__all__ = ("CLAUSES", "Ability", "Clause", "SourceDriver", "check_source")

Ability: TypeAlias = Literal["again", "state", "follow", "remove", "count", "gaps", "renew", "restart", "beat"]


class SourceDriver:
    """Has a source of your own checked by `check_source`: a stream or queue of integers, and the dataset that reads it.

    Derive a class that says in `can` what the stream and its source can do, and has the methods for it. `send` and
    `dataset` are always needed.

    - `"again"`: each iteration begins at the first item;
    - `"state"`: an iteration resumes from a state;
    - `"follow"`: `following` waits for items that are sent later;
    - `"remove"`: `remove` removes items, and a reader that has not read them gets an error;
    - `"count"`: that is a `DataLossError` whose text is `...N ... removed...`, with how many there are;
    - `"gaps"`: items that were missing before the first iteration began, or that were delivered before a state, are no
      error;
    - `"renew"`: `renew` makes the stream anew, and a reader of the old one gets a `DataLossError` or `ResumeError`;
    - `"restart"`: `restart` restarts the server, which keeps its items;
    - `"beat"`: `beat` sends what is no item: heartbeats, empty replies.

    >>> sent = []
    >>> class Numbers(SourceDriver):
    ...     send = staticmethod(sent.extend)
    ...     def dataset(self):
    ...         return Dataset.from_generator(lambda: iter(sent))
    >>> Numbers().send([1, 2])
    >>> list(Numbers().dataset())
    [1, 2]
    """

    can: ClassVar[frozenset[Ability]] = frozenset()

    at_once: ClassVar[int] = 1
    """The most items that the source reads ahead of the one that it gives."""

    def send(self, numbers: Iterable[int]) -> None:
        """Add items to the stream."""
        raise NotImplementedError

    def dataset(self) -> Dataset[int]:
        """Return a source that ends after the items that were sent."""
        raise NotImplementedError

    def following(self) -> Dataset[int]:
        """Return a source that waits for more items."""
        raise NotImplementedError

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove the items of these values from the stream; a `range` is of the oldest ones."""
        raise NotImplementedError

    def renew(self) -> None:
        """Delete the stream, and make one of the same name that is empty."""
        raise NotImplementedError

    def restart(self) -> None:
        """Kill the server, and start it again."""
        raise NotImplementedError

    def beat(self) -> None:
        """Have a reader get something that is no item, and return when it has."""
        raise NotImplementedError

    def close(self) -> None:
        """End what this has started; called when a clause has been checked."""


def check_source(make: Callable[[], SourceDriver]) -> None:
    """Check that a source of your own, made with `Dataset.from_generator` or `from_async_iterable`, fulfils the
    contract of asyncdata's own sources.

    `make` returns a new driver, of an empty stream, for each clause that the driver's `can` allows for. Items must come
    once and in order, states must resume exactly, and removed items must be an error if nobody has read them. A source
    that does not give what it should may wait for ever. Call it outside of an event loop. Raises `AssertionError` with
    the clause that failed.

    >>> import asyncdata as ad
    >>> class Numbers(SourceDriver):
    ...     can = frozenset({"again"})
    ...     def __init__(self):
    ...         self.sent = []
    ...     def send(self, numbers):
    ...         self.sent.extend(numbers)
    ...     def dataset(self):
    ...         return ad.Dataset.from_generator(lambda: iter(self.sent))
    >>> check_source(Numbers)
    """
    for clause in CLAUSES:
        with closing(make()) as driver:
            if unknown := driver.can.difference(get_args(Ability)):
                raise ValueError(f"{type(driver).__name__}.can has {sorted(unknown)}; known are {get_args(Ability)}")
            if clause.needs <= driver.can:
                clause.check(driver)


@dataclass(frozen=True)
class Clause:
    """One clause of the contract, and what a driver must be able to do for it."""

    body: Callable[[Any], None]
    needs: frozenset[Ability]

    @property
    def name(self) -> str:
        return self.body.__name__.replace("_", " ")

    def check(self, driver: SourceDriver) -> None:
        """Check it on a new driver; `AssertionError` says which clause failed and what was got."""
        try:
            self.body(driver)
        except Exception as error:
            what = str(error) if isinstance(error, AssertionError) else repr(error)
            raise AssertionError(f"{self.name}: {what}") from error


CLAUSES: Final[list[Clause]] = []
"""All clauses; each is checked on a driver of its own."""


def needs(*abilities: Ability) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Make a function a clause for drivers that have these abilities."""

    def added(body: Callable[[Any], None]) -> Callable[[Any], None]:
        CLAUSES.append(Clause(body, frozenset(abilities)))
        return body

    return added


def expect(got: Iterable[int], expected: Iterable[int]) -> None:
    """Compare items."""
    difference = in_order(list(got), list(expected))
    assert difference is None, difference


def take_exactly(items: Iterator[int], expected: Iterable[int]) -> None:
    """Read as many items as are expected, and compare them."""
    wanted = list(expected)
    expect(islice(items, len(wanted)), wanted)


def rest_of(items: Iterator[int]) -> tuple[list[int], list[Exception]]:
    """Return the items that are left, and the errors among them, of which a `ResumeError` ends it."""
    found: list[int] = []
    errors: list[Exception] = []
    while True:
        try:
            found.append(next(items))
        except StopIteration:
            return found, errors
        except Exception as error:  # noqa: BLE001  it is looked at
            errors.append(error)
            if isinstance(error, ResumeError):
                return found, errors


def expect_losses(driver: SourceDriver, items: Iterator[int], left: range, removed: Iterable[int]) -> None:
    """Read on: each item that is left comes, in order, or is among those that were removed and of an error."""
    found, errors = rest_of(items)
    gone = set(removed)
    lost = [number for number in left if number in gone and number not in found]
    assert lost, f"all of {sorted(gone)} came though they were removed: is more read ahead than `at_once` says?"
    expect(found, [number for number in left if number not in lost])
    assert errors, f"{lost} were removed before they were read, and there was no error"
    if "count" in driver.can:
        count = sum(map(counted, errors))
        assert count == len(lost), f"{lost} were removed before they were read, and the errors say {count}: {errors}"


def counted(error: Exception) -> int:
    """Return how many items an error of lost items reports."""
    found = re.search(r"(\d+) .*removed", str(error))
    assert isinstance(error, DataLossError), f"{error!r} is no DataLossError of removed items"
    assert found, f"{error!r} does not say how many items were removed"
    return int(found[1])


def state_after(ds: Dataset[int], count: int) -> Any:
    """Return the state after so many items, as it is read back from a file."""
    with ds.iterate() as items:
        take_exactly(items, range(count))
        return json.loads(json.dumps(items.state_dict()))


def expect_refused(read: Callable[[], object], why: str) -> None:
    """Expect an error of lost items."""
    try:
        got = read()
    except (DataLossError, ResumeError):
        return
    raise AssertionError(f"{why}, and there was no DataLossError or ResumeError but {got!r:.200}")


# items, order and the end


@needs()
def every_item_comes_once_and_in_order(driver: SourceDriver) -> None:
    driver.send(range(25))
    expect(driver.dataset(), range(25))


@needs("again")
def each_iteration_begins_at_the_first_item(driver: SourceDriver) -> None:
    driver.send(range(25))
    for placement, read in product(("thread", "current"), (read_plain, read_async)):
        expect(read(driver.dataset().with_options(Options(placement=placement)), 26), range(25))


@needs()
def without_items_it_ends_at_once(driver: SourceDriver) -> None:
    expect(driver.dataset(), [])


@needs("again")
def it_ends_after_the_items_that_are_there(driver: SourceDriver) -> None:
    sent = 0
    for stop in (1, driver.at_once, driver.at_once + 1, 2 * driver.at_once):
        driver.send(range(sent, stop))
        sent = stop
        expect(driver.dataset(), range(stop))


@needs("follow")
def it_waits_for_more(driver: SourceDriver) -> None:
    driver.send(range(3))
    with driver.following().iterate() as items:
        take_exactly(items, range(3))
        for number in range(3, 8):
            driver.send([number])
            take_exactly(items, [number])


@needs("follow")
def a_reader_that_leaves_does_not_wait_for_items(driver: SourceDriver) -> None:
    driver.send([0])
    with driver.following().prefetch(4).iterate() as items:
        take_exactly(items, [0])


# states


@needs("state")
def it_resumes_at_each_item(driver: SourceDriver) -> None:
    driver.send(range(12))
    check_resumes(driver.dataset)


@needs("state")
def it_resumes_with_items_that_steps_held(driver: SourceDriver) -> None:
    driver.send(range(12))
    check_resumes(lambda: driver.dataset().shuffle(5, seed=1).batch(3))


@needs("state")
def it_resumes_with_what_came_since(driver: SourceDriver) -> None:
    driver.send(range(5))
    state = state_after(driver.dataset(), 3)
    driver.send(range(5, 9))
    expect(driver.dataset().iterate(state=state), range(3, 9))


@needs("state", "restart")
def it_resumes_after_a_restart(driver: SourceDriver) -> None:
    driver.send(range(9))
    state = state_after(driver.dataset(), 4)
    driver.restart()
    expect(driver.dataset().iterate(state=state), range(4, 9))


# what the server removes


def remove_unread(driver: SourceDriver, count: int, removed: Iterable[int]) -> None:
    """Remove some of so many items when the first one has been read, and expect that the others come, and an error."""
    driver.send(range(count))
    with driver.dataset().prefetch(1).iterate() as items:
        take_exactly(items, [0])
        driver.remove(removed)
        expect_losses(driver, items, range(1, count), removed)


@needs("remove")
def items_that_are_removed_before_they_are_read_are_an_error(driver: SourceDriver) -> None:
    """Singly, from among others that stay."""
    remove_unread(driver, 2 * driver.at_once + 5, [*range(driver.at_once + 1, driver.at_once + 4)])


@needs("remove")
def the_oldest_items_that_are_removed_before_they_are_read_are_an_error(driver: SourceDriver) -> None:
    remove_unread(driver, 2 * driver.at_once + 5, range(driver.at_once + 4))


@needs("remove")
def all_items_that_are_removed_before_they_are_read_are_an_error(driver: SourceDriver) -> None:
    remove_unread(driver, driver.at_once + 2, range(driver.at_once + 2))


@needs("remove", "state")
def items_that_come_and_are_removed_while_nobody_reads_are_an_error(driver: SourceDriver) -> None:
    driver.send(range(6))
    states = {stop: state_after(driver.dataset(), stop) for stop in (6, 3)}
    driver.send(range(6, 12))
    driver.remove([8, 9, 10])
    for stop, state in states.items():
        expect_losses(driver, driver.dataset().iterate(state=state), range(stop, 12), [8, 9, 10])


@needs("remove", "follow")
def items_that_are_removed_after_they_were_read_are_not_missed(driver: SourceDriver) -> None:
    for start, removed in ((0, [0, 1, 2]), (12, [16]), (24, [*range(27, 33)])):
        driver.send(range(start, start + 6))
        with driver.following().iterate() as items:
            take_exactly(items, range(start, start + 6))
            driver.send(range(start + 6, start + 9))
            take_exactly(items, range(start + 6, start + 9))
            driver.remove(removed)
            driver.send(range(start + 9, start + 12))
            take_exactly(items, range(start + 9, start + 12))
        driver.remove(number for number in range(start, start + 12) if number not in removed)


@needs("remove", "state", "gaps")
def a_state_does_not_need_the_items_before_it(driver: SourceDriver) -> None:
    driver.send(range(9))
    states = {stop: state_after(driver.dataset(), stop) for stop in (1, 5, 9)}
    for stop, state in states.items():
        driver.remove([stop - 1])
        expect(driver.dataset().iterate(state=state), range(stop, 9))


@needs("remove", "state", "gaps")
def items_that_were_missing_from_the_beginning_are_not_missed(driver: SourceDriver) -> None:
    driver.send(range(20))
    driver.remove([0, 3, 4, 9, 19])
    there = [number for number in range(20) if number not in (0, 3, 4, 9, 19)]
    expect(driver.dataset(), there)
    check_resumes(driver.dataset)
    driver.send([20])
    expect(driver.dataset(), [*there, 20])


@needs("remove", "state")
def a_state_whose_next_items_were_removed_is_an_error(driver: SourceDriver) -> None:
    driver.send(range(9))
    state = state_after(driver.dataset(), 4)
    for removed in ([5, 6], [4], range(4), [7, 8]):
        driver.remove(removed)
        with driver.dataset().iterate(state=state) as items:
            expect_refused(lambda items=items: list(items), f"{list(removed)} were removed")


@needs("remove", "state")
def removed_items_that_steps_held_leave_the_others_as_they_are(driver: SourceDriver) -> None:
    """Or are a `ResumeError`: no item comes in the place of another."""
    driver.send(range(12))
    ds = driver.dataset().shuffle(5, seed=1)
    with ds.iterate() as items:
        found = list(islice(items, 4))
        state = json.loads(json.dumps(items.state_dict()))
    driver.remove(range(6))
    with ds.iterate(state=state) as items:
        rest, errors = rest_of(items)
    if any(isinstance(error, ResumeError) for error in errors):
        return
    expect(sorted(found + rest), sorted({*found, *rest}))
    missing = [number for number in range(6, 12) if number not in found + rest]
    assert not missing, f"{missing} were not removed, and did not come; the errors are {errors}"


@needs("remove", "state")
def a_state_after_an_error_of_lost_items_resumes_behind_them(driver: SourceDriver) -> None:
    count, removed = 2 * driver.at_once + 5, range(driver.at_once + 4)
    driver.send(range(count))
    with driver.dataset().prefetch(1).iterate() as items:
        take_exactly(items, [0])
        driver.remove(removed)
        expect_refused(lambda: list(items), f"{removed} were removed")
        state = json.loads(json.dumps(items.state_dict()))
        expect(items, range(removed.stop, count))
    expect(driver.dataset().iterate(state=state), range(removed.stop, count))


# a stream that is deleted and made anew


@needs("renew", "follow")
def a_stream_made_anew_is_an_error_while_it_is_followed(driver: SourceDriver) -> None:
    for more in (1, 5, 9):
        driver.send(range(5))
        with driver.following().iterate() as items:
            take_exactly(items, range(5))
            driver.renew()
            driver.send(range(more))
            expect_refused(lambda items=items: next(items), "the stream was made anew")
        driver.renew()


@needs("renew", "state")
def a_state_of_a_stream_that_was_made_anew_is_an_error(driver: SourceDriver) -> None:
    for more in (0, 1, 5, 9):
        driver.send(range(5))
        states = [state_after(driver.dataset(), count) for count in (1, 4, 5)]
        driver.renew()
        driver.send(range(more))
        for state in states:
            with driver.dataset().iterate(state=state) as items:
                expect_refused(lambda items=items: list(items), "the stream was made anew")
        driver.renew()


# connections


@needs("restart", "follow")
def a_server_that_restarts_is_read_on(driver: SourceDriver) -> None:
    driver.send(range(10))
    with driver.following().iterate() as items:
        take_exactly(items, range(10))
        driver.restart()
        driver.send(range(10, 20))
        take_exactly(items, range(10, 20))


@needs("beat", "follow")
def what_is_no_item_does_no_harm(driver: SourceDriver) -> None:
    driver.send(range(3))
    with driver.following().iterate() as items:
        take_exactly(items, range(3))
        for start in range(3, 9, 3):
            driver.beat()
            driver.send(range(start, start + 3))
            take_exactly(items, range(start, start + 3))

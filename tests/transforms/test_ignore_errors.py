from __future__ import annotations

import logging
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.testing import check_resumes, check_transform
from tests.reference import Boom, Failed
from tests.running import WAYS, results


def fail_at_odd(x: int) -> int:
    if x % 2:
        raise Boom(x)
    return x


def odd_ones_fail(count: int) -> ad.Dataset[int]:
    return ad.Dataset.range(count).map(fail_at_odd)


@pytest.mark.parametrize("budget", [{}, {"max_errors": 1000}, {"max_share": 1.0}])
def test_keeps_its_contract(budget: dict[str, Any]) -> None:
    check_transform(
        lambda ds: ds.map(fail_at_odd).ignore_errors(**budget), lambda items: [x for x in items if x % 2 == 0]
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("calls", [None, 2])
def test_what_failed_is_dropped_and_the_rest_stays(way: Any, calls: int | None) -> None:
    assert way(ad.Dataset.range(5).map(fail_at_odd, num_parallel_calls=calls).ignore_errors()) == [0, 2, 4]


def test_a_source_that_fails_at_its_end_just_ends() -> None:
    def generate() -> Any:
        yield 1
        raise Boom("end")

    assert list(ad.Dataset.from_generator(generate).ignore_errors()) == [1]


def test_infinite_input() -> None:
    assert list(ad.Dataset.counter().map(fail_at_odd).ignore_errors().take(3)) == [0, 2, 4]


def test_errors_beyond_the_number_are_raised_in_their_places() -> None:
    assert results(odd_ones_fail(8).ignore_errors(max_errors=2)) == [0, 2, 4, Failed("Boom(5)"), 6, Failed("Boom(7)")]
    assert results(odd_ones_fail(3).ignore_errors(max_errors=0)) == [0, Failed("Boom(1)"), 2]


def test_the_error_that_exceeds_the_budget_tells_what_was_dropped() -> None:
    with pytest.raises(Boom) as caught:
        list(odd_ones_fail(30).ignore_errors(max_errors=7))
    assert caught.value.args == (15,)
    assert caught.value.__notes__[-1] == (
        "ignore_errors(max_errors=7) dropped 7 of 16 elements, and no more; the last before it: "
        "element 5: Boom(5); element 7: Boom(7); element 9: Boom(9); element 11: Boom(11); element 13: Boom(13)"
    )


def test_a_share_is_of_a_thousand_elements_at_least() -> None:
    """One in a hundred of at least a thousand: ten may fail however early, then one more for each hundred."""

    def fail_first(x: int) -> int:
        if x < 10 or x in (1050, 1150, 1160):
            raise Boom(x)
        return x

    found = results(ad.Dataset.range(2000).map(fail_first).ignore_errors(max_share=0.01))
    assert [x for x in found if isinstance(x, Failed)] == [Failed("Boom(1050)"), Failed("Boom(1160)")]
    assert len(found) == 2000 - 13 + 2


def test_on_error_sees_what_is_dropped_and_where_it_came_from() -> None:
    seen: list[Any] = []
    ds = odd_ones_fail(6).ignore_errors(max_errors=2, on_error=lambda error, ticket: seen.append((repr(error), ticket)))
    assert results(ds) == [0, 2, 4, Failed("Boom(5)")]
    assert seen == [("Boom(1)", 1), ("Boom(3)", 3)]


def test_the_ticket_of_an_element_in_a_repetition_is_a_path() -> None:
    seen: list[Any] = []
    list(odd_ones_fail(2).repeat(2).ignore_errors(on_error=lambda _, ticket: seen.append(ticket)))
    assert seen == [(0, 1), (1, 1)]


def test_what_goes_wrong_in_on_error_is_raised_in_the_elements_place() -> None:
    def tell(error: Exception, ticket: Any) -> None:
        raise KeyError(ticket)

    assert results(odd_ones_fail(4).ignore_errors(on_error=tell)) == [0, Failed("KeyError"), 2, Failed("KeyError")]


def test_warnings_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "asyncdata"):
        assert list(odd_ones_fail(3).ignore_errors(log_warning=True)) == [0, 2]
    assert caplog.messages == ["ignore_errors() dropped element 1: Boom(1)"]


@pytest.mark.parametrize("budget", [{}, {"max_errors": 3}, {"max_share": 0.002}])
def test_goes_on_with_what_is_left_of_the_budget(budget: dict[str, Any]) -> None:
    check_resumes(lambda: odd_ones_fail(20).ignore_errors(**budget))
    check_resumes(lambda: odd_ones_fail(20).ignore_errors(**budget).shuffle(4, seed=1).batch(3))


def test_a_run_that_has_used_up_its_budget_goes_on_with_a_larger_one() -> None:
    with odd_ones_fail(8).ignore_errors(max_errors=1).iterate() as elements:
        assert [next(elements), next(elements)] == [0, 2]
        with pytest.raises(Boom):
            next(elements)
        state = elements.state_dict()
    assert list(odd_ones_fail(8).ignore_errors(max_errors=3).iterate(state=state)) == [4, 6]


def test_it_may_be_put_into_a_pipeline_that_goes_on() -> None:
    with odd_ones_fail(6).batch(2).iterate() as batches:
        with pytest.raises(Boom):
            next(batches)
        state = batches.state_dict()
    rest = odd_ones_fail(6).ignore_errors().batch(2).iterate(state=state, strict=False)
    assert [batch.tolist() for batch in rest] == [[0, 2], [4]]


def test_a_budget_of_several_processes_is_dealt_to_another_number() -> None:
    def share(count: int, index: int) -> ad.Dataset[int]:
        return odd_ones_fail(40).shard(count, index).ignore_errors(max_errors=12)

    found, states = [], []
    for index in range(2):
        with share(2, index).iterate() as elements:
            found += [next(elements) for _ in range(4)] if index == 0 else []
            states.append(elements.state_dict())
    merged = merge_states(states)
    for index in range(3):
        found += [*share(3, index).iterate(state=merged)]
    assert sorted(found) == list(range(0, 40, 2))


@pytest.mark.parametrize("budget", [{"max_errors": -1}, {"max_errors": 1.5}, {"max_share": 2}, {"max_share": "1"}])
def test_budgets_that_make_no_sense_are_refused(budget: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=next(iter(budget))):
        ad.Dataset.range(1).ignore_errors(**budget)


def test_a_coroutine_function_cannot_be_told() -> None:
    async def tell(error: Exception, ticket: Any) -> None: ...

    with pytest.raises(ad.PlanError, match="plain function"):
        ad.Dataset.range(1).ignore_errors(on_error=tell)


def test_cardinality() -> None:
    assert ad.Dataset.range(3).ignore_errors().cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.range(0).ignore_errors().cardinality() == 0

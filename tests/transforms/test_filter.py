from __future__ import annotations

import asyncio
from typing import Any

import cloudpickle
import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.workers import pickled
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Ordinals
from asyncdata.testing import check_resumes, check_transform, virtual_time
from asyncdata.transforms.filter import Predicate
from tests.reference import Boom, Failed
from tests.running import WAYS, results


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: ds.filter(lambda x: x % 3 == 0),
        lambda items: [x for x in items if x % 3 == 0],
        [(), (1,), range(100)],
    )


def test_a_tuple_is_unpacked() -> None:
    assert list(ad.Dataset.from_iterable([(1, 2), (2, 1)]).filter(lambda a, b: a < b)) == [(1, 2)]


@pytest.mark.parametrize("verdict", [True, np.True_, np.array(True), 1])
def test_every_kind_of_truth(verdict: Any) -> None:
    assert list(ad.Dataset.range(2).filter(lambda x: verdict)) == [0, 1]


def test_none_and_falsy_elements_stay() -> None:
    items = [None, 0, "", False, np.zeros(0)]
    assert len(list(ad.Dataset.from_iterable(items).filter(lambda x: True))) == len(items)


def test_a_long_run_of_nothing_ends() -> None:
    assert list(ad.Dataset.range(20_000).filter(lambda x: x == 19_999)) == [19_999]
    assert list(ad.Dataset.range(20_000).filter(lambda x: False)) == []


def test_infinite_input() -> None:
    assert list(ad.Dataset.counter().filter(lambda x: x % 1000 == 999).take(2)) == [999, 1999]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failing_predicate_fails_in_place(way: Any) -> None:
    def keep(x: int) -> bool:
        if x == 2:
            raise Boom(x)
        return x != 1

    assert way(ad.Dataset.range(5).filter(keep)) == [0, Failed("Boom(2)"), 3, 4]


def test_a_verdict_that_is_neither_true_nor_false_fails_in_place() -> None:
    """An array of three truths has none of its own: the element fails, not the pipeline."""
    ds = ad.Dataset.range(3).filter(lambda x: np.ones(3) if x == 1 else True)
    assert results(ds) == [0, Failed("ValueError"), 2]


def test_failures_of_the_input_pass() -> None:
    def fail(x: int) -> int:
        raise Boom(x)

    assert results(ad.Dataset.range(2).map(fail).filter(lambda x: False)) == [Failed("Boom(0)"), Failed("Boom(1)")]


def test_a_coroutine_predicate_is_awaited() -> None:
    async def keep(x: int) -> bool:
        return x % 2 == 0

    assert list(ad.Dataset.range(5).filter(keep)) == [0, 2, 4]


def test_the_note_names_stage_and_element_of_the_source() -> None:
    def keep(x: int) -> bool:
        if x == 4:
            raise Boom(x)
        return False

    with pytest.raises(Boom) as caught:
        list(ad.Dataset.range(9).filter(keep))
    assert caught.value.__notes__ == [f"in filter(keep) at test_filter.py:{keep.__code__.co_firstlineno}, element 4"]


@pytest.mark.parametrize("calls", [1, 3, ad.AUTOTUNE])
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_in_threads_it_keeps_the_same_elements(calls: int, deterministic: bool | None) -> None:
    ds = ad.Dataset.range(500).filter(lambda x: x % 3 == 0, num_parallel_calls=calls, deterministic=deterministic)
    assert (sorted(ds) if deterministic is False else list(ds)) == list(range(0, 500, 3))


@pytest.mark.parametrize("deterministic", [True, False])
def test_predicates_that_wait_are_awaited_at_once(deterministic: bool) -> None:
    """Twelve hours of waiting by four at once are three."""

    async def keep(x: int) -> bool:
        await asyncio.sleep(3600)
        return x % 2 == 0

    async def read() -> list[int]:
        ds = ad.Dataset.range(12).filter(keep, num_parallel_calls=4, deterministic=deterministic)
        return [x async for x in ds.with_options(ad.Options(placement="current"))]

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        assert sorted(runner.run(read())) == [0, 2, 4, 6, 8, 10]
        assert runner.get_loop().time() == 3 * 3600


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_parallel_filter_goes_on_where_it_was(deterministic: bool) -> None:
    def build() -> ad.Dataset[int]:
        kept = ad.Dataset.range(60).filter(lambda x: x % 4, num_parallel_calls=3, deterministic=deterministic)
        return kept.shuffle(5, seed=1)

    check_resumes(build, ordered=deterministic)


def test_another_number_of_calls_goes_on_from_the_same_state() -> None:
    def keep(x: int) -> bool:
        return x % 2 == 1

    with ad.Dataset.range(9).filter(keep).iterate() as elements:
        next(elements)
        state = elements.state_dict()
    assert list(ad.Dataset.range(9).filter(keep, num_parallel_calls=4).iterate(state=state)) == [3, 5, 7]


@pytest.mark.parametrize("calls", [0, -3, 1.5, "2"])
def test_numbers_of_calls_that_make_no_sense_are_refused(calls: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"filter\(num_parallel_calls=\)"):
        ad.Dataset.range(1).filter(bool, num_parallel_calls=calls)


def test_cardinality_is_unknown() -> None:
    assert ad.Dataset.range(3).filter(lambda x: True).cardinality() == ad.UNKNOWN_CARDINALITY


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.range(1).filter(None)  # type: ignore[arg-type]


def test_a_plain_function_that_returns_a_coroutine_is_told_so() -> None:
    async def even(x: int) -> bool:
        return x % 2 == 0

    found = results(ad.Dataset.range(20).prefetch(9).filter(lambda x: even(x)))
    assert found == [Failed("TypeError")] * 20


def test_a_stop_iteration_is_a_failure_in_its_place() -> None:
    def stop_at_2(x: int) -> bool:
        if x == 2:
            raise StopIteration
        return True

    found = results(ad.Dataset.range(5).prefetch(9).filter(stop_at_2))
    assert found == [0, 1, Failed("RuntimeError"), 3, 4]


NAMED = [{"id": number, "name": "ab"[number % 2], "pair": (number, 1)} for number in range(4)]


@pytest.mark.parametrize(
    ("predicate", "reads", "kept"),
    [
        (lambda name: name == "a", "name", [0, 2]),
        (lambda name, number: name == "a" and number, ("name", "id"), [2]),
        (lambda pair: pair[0] > 1, "pair", [2, 3]),  # a tuple in a field is one argument
    ],
)
@pytest.mark.parametrize("calls", [None, 2])
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_predicate_is_given_the_fields_that_it_reads(
    predicate: Any, reads: Any, kept: list[int], calls: int | None, is_coroutine: bool
) -> None:
    async def awaited(*fields: Any) -> Any:
        await asyncio.sleep(0)
        return predicate(*fields)

    ds = ad.Dataset.from_iterable(NAMED).filter(awaited if is_coroutine else predicate, calls, reads=reads)
    assert [element["id"] for element in ds] == kept
    if not is_coroutine:
        assert str(ds.plan).startswith(f"from_iterable(list of 4) → filter(<lambda>, reads={reads!r}")


def test_fields_of_a_tuple_are_places() -> None:
    ds = ad.Dataset.from_tensor_slices((np.arange(4), np.arange(4) % 2)).filter(lambda label: label == 1, reads=1)
    assert [tuple(map(int, pair)) for pair in ds] == [(1, 1), (3, 1)]


def test_an_element_without_the_field_fails_in_its_place() -> None:
    ds = ad.Dataset.from_iterable([{"a": 1}, {"b": 2}, 7, {"a": 3}]).filter(bool, reads="a")
    assert results(ds) == [{"a": 1}, Failed("KeyError"), Failed("TypeError"), {"a": 3}]


def test_a_filter_of_fields_can_be_sent_to_a_process() -> None:
    work = GroupWork((Predicate(lambda name, number: name == "a" and number, reads=("name", "id")),))
    for calls in (work, cloudpickle.loads(pickled(work))):
        assert calls.run(Block(NAMED, Ordinals(0, 4))).items == [NAMED[2]]


@pytest.mark.parametrize("reads", [(), None, "", "id", 1.5, -1, True, ("a", "a"), ["a"], (b"a",)])
def test_fields_that_are_none(reads: Any) -> None:
    if isinstance(reads, str) or reads is None:
        ad.Dataset.from_iterable([]).filter(bool, reads=reads)
    else:
        with pytest.raises(ad.PlanError, match=r"filter\(reads=\) must"):
            ad.Dataset.from_iterable([]).filter(bool, reads=reads)


@pytest.mark.parametrize(
    ("ds", "reads", "said"),
    [
        (ad.Dataset.from_tensor_slices({"a": [1], "b": [2]}), "c", r"no field 'c'; their fields are 'a', 'b'"),
        (ad.Dataset.from_tensor_slices(([1], [2])), 2, r"no field 2; their fields are 0, 1"),
        (ad.Dataset.from_tensor_slices(([1], [2])), "a", r"no field 'a'"),
        (ad.Dataset.range(3), 0, r"no field 0; elements are TensorSpec"),
    ],
)
def test_fields_that_elements_do_not_have(ds: ad.Dataset[Any], reads: Any, said: str) -> None:
    with pytest.raises(ad.PlanError, match=said):
        ds.filter(bool, reads=reads)
    with pytest.raises(ad.PlanError, match=said):
        ds.map(lambda *x: x, 2, keeps=reads)


def test_a_predicate_must_take_as_many_arguments_as_it_reads_fields() -> None:
    with pytest.raises(ad.PlanError, match="called with 2 arguments, one for each field that it reads"):
        ad.Dataset.from_iterable(NAMED).filter(lambda name: name, reads=("name", "id"))


def test_a_state_is_of_a_filter_that_reads_the_same() -> None:
    with ad.Dataset.from_iterable(NAMED).filter(bool, reads="name").iterate() as elements:
        state = elements.state_dict()
    with pytest.raises(ad.ResumeError, match="reads='name'"):
        ad.Dataset.from_iterable(NAMED).filter(bool, reads="id").iterate(state=state)

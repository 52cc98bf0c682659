from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.errors import PlanError, ResumeError
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results


def tenth(x: int) -> int:
    """One element in ten is of class 1."""
    return int(x % 10 == 0)


async def tenth_async(x: int) -> int:
    await asyncio.sleep(0)
    return tenth(x)


def fail_at_2(x: int) -> int:
    if x == 2:
        raise Boom(x)
    return tenth(x)


def shares(ds: ad.Dataset[Any]) -> dict[int, int]:
    return dict(Counter(label for label, _ in ds))


KNOWN = {"initial_dist": [0.9, 0.1]}
EITHER = pytest.mark.parametrize("how", [KNOWN, {}], ids=["known", "estimated"])


@pytest.mark.parametrize("initial", [None, [0.5, 0.5]])
def test_keeps_its_contract(initial: Any) -> None:
    check_transform(
        lambda ds: ds.rejection_resample(tenth, [0, 1], initial),
        lambda items: reference.rejection_resample(items, tenth, {1}, 2),
    )


@EITHER
def test_classes_come_as_often_as_they_are_wanted(how: Any) -> None:
    found = shares(ad.Dataset.range(20_000).rejection_resample(tenth, [0.5, 0.5], seed=1, **how))
    assert found[1] >= 1_980
    assert abs(found[0] - found[1]) < 200
    found = shares(ad.Dataset.range(20_000).rejection_resample(tenth, [0.8, 0.2], seed=1, **how))
    assert abs(found[0] / found[1] - 4) < 0.4


def test_shares_need_no_sum() -> None:
    one = ad.Dataset.range(1_000).rejection_resample(tenth, [0.5, 0.5], [0.9, 0.1], seed=1)
    other = ad.Dataset.range(1_000).rejection_resample(tenth, [7, 7], [90, 10], seed=1)
    assert list(one) == list(other)


def test_what_comes_as_often_as_it_should_is_kept_whole() -> None:
    assert len(list(ad.Dataset.range(100).rejection_resample(tenth, [0.9, 0.1], [0.9, 0.1]))) == 100


def test_a_class_that_was_said_not_to_come_is_kept_if_it_is_wanted() -> None:
    assert shares(ad.Dataset.range(100).rejection_resample(tenth, [1, 1], [1, 0])) == {0: 90, 1: 10}
    assert shares(ad.Dataset.range(100).rejection_resample(tenth, [1, 0], [1, 0])) == {0: 90}


@EITHER
def test_the_same_seed_keeps_the_same_elements_and_each_epoch_others(how: Any) -> None:
    def pipeline(seed: int | None) -> ad.Dataset[Any]:
        return ad.Dataset.range(1_000).rejection_resample(tenth, [0.5, 0.5], seed=seed, **how)

    ds = pipeline(3)
    first, second = list(ds), list(ds)
    assert first == list(pipeline(3))
    assert first != second
    assert first not in (list(pipeline(4)), list(pipeline(None)))


@EITHER
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_kept_depends_on_nothing_but_elements(how: Any, way: Any) -> None:
    def kept(fn: Any, **options: Any) -> list[Any]:
        ds = ad.Dataset.range(500).map(lambda x: x, **options).rejection_resample(fn, [0.5, 0.5], seed=1, **how)
        return way(ds)

    assert kept(tenth) == kept(tenth_async) == kept(tenth, num_parallel_calls=3)


def test_with_shares_that_are_known_no_order_is_needed() -> None:
    def pipeline(**how: Any) -> ad.Dataset[Any]:
        return ad.Dataset.range(300).map(lambda x: x, **how).rejection_resample(tenth, [1, 1], [9, 1], seed=1)

    assert sorted(pipeline(num_parallel_calls=3, deterministic=False)) == sorted(pipeline())
    check_resumes(lambda: pipeline(num_parallel_calls=3, deterministic=False), ordered=False)


def test_resamplings_with_one_seed_are_independent() -> None:
    def halved(ds: ad.Dataset[Any]) -> ad.Dataset[Any]:
        return ds.rejection_resample(lambda *_: 0, [0.5, 0.5], [1.0, 0.5], seed=1).map(lambda _, x: x)

    once = len(list(ad.Dataset.range(4_000).apply(halved)))
    twice = len(list(ad.Dataset.range(4_000).apply(halved).apply(halved)))
    assert abs(once - 2_000) < 200
    assert abs(twice - 1_000) < 200


@EITHER
@pytest.mark.parametrize("source", first_by_default(["batches", "range", "nested"]))
def test_goes_on_from_any_place(how: Any, source: str) -> None:
    def pipeline() -> ad.Dataset[Any]:
        ds: ad.Dataset[Any] = ad.Dataset.range(120)
        if source == "nested":
            ds = ds.repeat(2).flat_map(lambda x: ad.Dataset.range(x % 3)).shuffle(7, seed=1)
        if source == "batches":
            ds = ds.batch(2).map(lambda batch: int(batch[0]))
        return ds.rejection_resample(tenth, [0.5, 0.5], seed=1, **how)

    check_resumes(pipeline)
    check_resumes(lambda: pipeline().shuffle(5, seed=2).batch(3))


@EITHER
def test_goes_on_with_the_seed_that_was_drawn(how: Any) -> None:
    check_resumes(lambda: ad.Dataset.range(200).rejection_resample(tenth, [0.5, 0.5], **how))


@EITHER
def test_an_element_that_failed_passes(how: Any) -> None:
    ds = ad.Dataset.range(50).rejection_resample(fail_at_2, [0.5, 0.5], seed=1, **how)
    found = results(ds)
    assert found.count(Failed("Boom(2)")) == 1
    check_resumes(lambda: ad.Dataset.range(50).rejection_resample(fail_at_2, [0.5, 0.5], seed=1, **how))
    check_resumes(
        lambda: ad.Dataset.range(50).map(lambda x: 60 // (x % 7)).rejection_resample(tenth, [0.5, 0.5], seed=1, **how)
    )


@pytest.mark.parametrize(("label", "error"), [(2, IndexError), (-1, IndexError), ("1", TypeError), (1.0, TypeError)])
def test_what_is_no_class_is_an_error_that_names_the_function(label: Any, error: Any) -> None:
    def classify(x: int) -> Any:
        return label if x == 3 else 0

    with ad.Dataset.range(5).rejection_resample(classify, [1, 1], [1, 1]).iterate() as elements:
        assert [next(elements) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
        with pytest.raises(error, match="classify") as raised:
            next(elements)
        assert "in rejection_resample(classify) at test_rejection_resample.py" in raised.value.__notes__[0]
        assert raised.value.__notes__[0].endswith("element 3")
        assert list(elements) == [(0, 4)]


def test_a_coroutine_that_nobody_awaits_is_an_error() -> None:
    ds = ad.Dataset.range(1).rejection_resample(lambda x: tenth_async(x), [1, 1])
    with pytest.raises(TypeError, match="async def"):
        list(ds)


@EITHER
def test_an_endless_input_is_read_as_far_as_it_is_needed(how: Any) -> None:
    seen: list[int] = []
    ds = ad.Dataset.counter().map(lambda x: seen.append(x) or x).rejection_resample(tenth, [0, 1], **how).take(3)
    assert list(ds.with_options(ad.Options(optimize=False))) == [(1, 0), (1, 10), (1, 20)]
    assert len(seen) <= 23


def test_tuples_are_arguments_of_the_function_and_elements_stay_whole() -> None:
    ds = ad.Dataset.from_iterable([(0, "a"), (1, "b")]).rejection_resample(lambda number, _: number, [1, 1], [1, 1])
    assert list(ds) == [(0, (0, "a")), (1, (1, "b"))]


def test_shares_of_processes_are_dealt_where_nothing_is_estimated() -> None:
    def share(count: int, index: int, **how: Any) -> ad.Dataset[Any]:
        return ad.Dataset.range(200).shard(count, index).rejection_resample(tenth, [1, 1], seed=1, **how)

    def states(**how: Any) -> tuple[list[Any], Any]:
        found: list[Any] = []
        told: list[Any] = []
        for index in range(2):
            with share(2, index, **how).iterate() as elements:
                found += [next(elements) for _ in range(index + 1)]
                told.append(elements.state_dict())
        return found, merge_states(told)

    found, merged = states(initial_dist=[9, 1])
    for index in range(3):
        found += share(3, index, initial_dist=[9, 1]).iterate(state=merged)
    assert sorted(found) == sorted(share(1, 0, initial_dist=[9, 1]))
    _, merged = states()
    with pytest.raises(ResumeError, match=r"rejection_resample\(2 classes\) after shard"):
        share(3, 0).iterate(state=merged)


def test_it_shows_itself() -> None:
    text = ad.Dataset.range(5).map(abs).rejection_resample(tenth, [1, 1], [1, 1]).explain()
    assert "rejection_resample(tenth) → rejection_resample(2 classes, initial_dist)" in text


@pytest.mark.parametrize(
    ("target", "initial"), [([1, 1], None), ([1], None), ([1, 1], [9, 1]), ([1, 0], [1, 0]), ([1], [1e-320])]
)
def test_its_length_is_not_known(target: Any, initial: Any) -> None:
    ds = ad.Dataset.range(5).rejection_resample(tenth, target, initial)
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.range(0).rejection_resample(tenth, target, initial).cardinality() == 0


@pytest.mark.parametrize(("target", "initial"), [([2, 2], [3, 3]), ([3], [0.7]), ([0.9, 0.1, 7], [0.9, 0.1, 0])])
def test_its_length_is_known_where_no_class_comes_too_often(target: Any, initial: Any) -> None:
    ds = ad.Dataset.range(90).rejection_resample(lambda x: 7 // (x - 3) * 0, target, initial)
    assert ds.cardinality() == len(results(ds)) == 90
    assert ad.Dataset.counter().rejection_resample(tenth, target, initial).cardinality() == ad.INFINITE_CARDINALITY


@pytest.mark.parametrize("target", [[], [0, 0], [1, -1], [float("nan")], [float("inf"), 1], 1, ["x"], None])
def test_wrong_shares_are_refused(target: Any) -> None:
    with pytest.raises(PlanError, match=r"target_dist=\)"):
        ad.Dataset.range(3).rejection_resample(tenth, target)
    if target is not None:
        with pytest.raises(PlanError, match="initial_dist"):
            ad.Dataset.range(3).rejection_resample(tenth, [1, 1], target)


def test_shares_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(PlanError, match="as many numbers"):
        ad.Dataset.range(3).rejection_resample(tenth, [1, 1], [1])
    with pytest.raises(PlanError, match="none of the classes"):
        ad.Dataset.range(3).rejection_resample(tenth, [1, 0], [0, 1])
    with pytest.raises(PlanError, match="seed"):
        ad.Dataset.range(3).rejection_resample(tenth, [1, 1], seed="x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError, match="needs a function"):
        ad.Dataset.range(3).rejection_resample(1, [1, 1])  # pyright: ignore[reportArgumentType]


def test_another_number_of_classes_is_refused_when_a_run_goes_on() -> None:
    with ad.Dataset.range(50).rejection_resample(tenth, [1, 1]).iterate() as elements:
        next(elements)
        state = elements.state_dict()
    with pytest.raises(ResumeError, match="rejection_resample"):
        ad.Dataset.range(50).rejection_resample(tenth, [1, 1, 1]).iterate(state=state)

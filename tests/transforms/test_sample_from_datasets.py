from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from asyncdata.transforms.mixture_position import DrawRecord
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, read_plain
from tests.states import edited

Sample = ad.Dataset.sample_from_datasets


def counters(count: int) -> list[ad.Dataset[Any]]:
    """Endless datasets of which each element names its own."""
    return [ad.Dataset.from_tensors(name).repeat() for name in range(count)]


def drawn(count: int, *args: Any, **kwargs: Any) -> list[int]:
    """From which dataset each of the first elements comes."""
    return [int(name) for name in Sample(*args, **kwargs).take(count)]


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: Sample([ds, ad.Dataset.range(100, 120)], [0.3, 0.7], seed=2),
        lambda items: reference.sample_from_datasets([items, range(100, 120)], [0.3, 0.7], 2, (), False),
    )


def test_each_dataset_keeps_its_order_and_none_loses_an_element() -> None:
    found = list(Sample([ad.Dataset.range(start, start + 50) for start in (0, 100, 200)], seed=1))
    assert sorted(found) == [*range(50), *range(100, 150), *range(200, 250)]
    for start in (0, 100, 200):
        assert [x for x in found if start <= x < start + 50] == list(range(start, start + 50))


@pytest.mark.parametrize(
    "weights", [None, [0.5, 0.3, 0.2], [1, 2, 4], np.array([1.0, 0.0, 0.01]), [1e-300, 3e-300, 1e-300], [1e308] * 3]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_datasets_are_drawn_as_often_as_their_weights_say(weights: Any, seed: int) -> None:
    total = 20_000
    found = Counter(drawn(total, counters(3), weights, seed=seed))
    shares = np.ones(3) / 3 if weights is None else np.array(weights) / np.max(weights)
    shares = shares / shares.sum()
    deviation = np.sqrt(total * shares * (1 - shares))
    assert all(abs(found[name] - total * shares[name]) <= 4 * deviation[name] for name in range(3))


def test_draws_that_follow_each_other_are_independent() -> None:
    names = drawn(20_000, counters(2), [0.5, 0.5], seed=5)
    pairs = Counter(pairwise(names))
    assert all(abs(pairs[one, two] - 5_000) < 250 for one in (0, 1) for two in (0, 1))


def test_what_is_left_is_drawn_by_the_weights_that_are_left() -> None:
    short, *long = counters(3)
    names = drawn(20_100, [short.take(100), *long], [0.8, 0.15, 0.05], seed=3)
    rest = Counter(names[names.index(0) + 1 :]) - Counter({0: 100})
    total = rest[1] + rest[2]
    assert abs(rest[1] - 0.75 * total) < 4 * np.sqrt(total * 0.75 * 0.25)


def test_the_draws_of_a_seed_are_these() -> None:
    """On every machine, for ever: a state of today must go on tomorrow."""
    assert drawn(16, counters(3), [0.5, 0.3, 0.2], seed=7) == [2, 2, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1]
    assert drawn(16, counters(3), [0.5, 0.3, 0.2], seed=7) != drawn(16, counters(3), [0.5, 0.3, 0.2], seed=8)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_draws_depend_on_nothing_but_the_seed(way: Callable[..., list[Any]]) -> None:
    ds = Sample([ad.Dataset.range(60), ad.Dataset.range(100, 140).map(abs, num_parallel_calls=3)], seed=4)
    expected = list(reference.sample_from_datasets([range(60), range(100, 140)], [1.0, 1.0], 4, (), False))
    assert way(ds) == expected
    assert way(ds.prefetch(3).batch(7).unbatch()) == way(ds.batch(2).unbatch()) == expected


def test_each_iteration_draws_alike_unless_told_otherwise() -> None:
    alike, anew = (Sample(counters(2), seed=1, rerandomize_each_iteration=how).take(40) for how in (None, True))
    assert list(alike) == list(alike)
    assert list(anew) != list(anew)
    assert list(alike.repeat(2))[:40] == list(alike.repeat(2))[40:]


def test_without_a_seed_draws_differ() -> None:
    assert len({tuple(drawn(64, counters(2))) for _ in range(4)}) == 4


def test_a_dataset_of_weight_zero_is_never_started() -> None:
    def generate() -> Iterator[int]:
        raise AssertionError
        yield 0

    assert list(Sample([ad.Dataset.from_generator(generate), ad.Dataset.range(3)], [0, 1.0])) == [0, 1, 2]


def test_an_empty_dataset_drops_out_or_ends_all() -> None:
    datasets = [ad.Dataset.range(0), ad.Dataset.range(30)]
    assert list(Sample(datasets, seed=1)) == list(range(30))
    assert len(list(Sample(datasets, seed=1, stop_on_empty_dataset=True))) < 30
    assert list(Sample([ad.Dataset.range(0)] * 3)) == []


def test_the_first_dataset_that_ends_ends_all_if_told_so() -> None:
    found = list(Sample([ad.Dataset.range(20), ad.Dataset.counter(100)], seed=2, stop_on_empty_dataset=True))
    assert [x for x in found if x < 100] == list(range(20))


def test_a_dataset_with_itself() -> None:
    ds = ad.Dataset.range(5)
    assert sorted(Sample([ds, ds], seed=1)) == sorted([*range(5)] * 2)


def fails(x: int) -> int:
    if x % 5 == 2:
        raise Boom(x)
    return x


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failed_element_has_its_place(way: Callable[..., list[Any]]) -> None:
    datasets = [ad.Dataset.range(20).map(fails), ad.Dataset.range(20, 40).map(fails, num_parallel_calls=2)]
    whole = reference.sample_from_datasets([range(20), range(20, 40)], [1.0, 2.0], 3, (), False)
    expected = [Failed(f"Boom({x})") if x % 5 == 2 else x for x in whole]
    assert way(Sample(datasets, [1, 2], seed=3)) == expected
    assert way(Sample(datasets, [1, 2], seed=3).shuffle(1)) == expected


def test_left_early_all_that_was_started_is_closed() -> None:
    closed: list[int] = []

    def generate(name: int) -> Iterator[int]:
        try:
            while True:
                yield name
        finally:
            closed.append(name)

    datasets = [ad.Dataset.from_generator(generate, args=(name,)) for name in range(3)]
    assert len(read_plain(Sample(datasets, [1, 1, 0], seed=1).take(20))) == 20
    assert sorted(closed) == [0, 1]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "needs 2 numbers"),
        ([1.0, 2.0, 3.0], "needs 2 numbers"),
        ([0.5, -0.5], "not negative"),
        ([0.0, 0], "not all zero"),
        ([1.0, float("nan")], "must be finite"),
        ([1.0, float("inf")], "must be finite"),
        (["a", "b"], "a number for each dataset"),
        (["1", "2"], "a number for each dataset"),
        ([None, 1.0], "a number for each dataset"),
        (0.5, "a number for each dataset"),
        (ad.Dataset.range(2), "numbers, which hold for the entire run"),
    ],
)
def test_wrong_weights_are_refused_where_they_are_given(weights: Any, message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        Sample(counters(2), weights)


@pytest.mark.parametrize("wrong", [[], (), None, 3, ad.Dataset.range(2), [ad.Dataset.range(2), 3], [[1], [2]]])
def test_what_are_no_datasets_is_refused_where_it_is_given(wrong: Any) -> None:
    with pytest.raises(ad.PlanError):
        Sample(wrong)


def test_a_seed_must_be_an_integer() -> None:
    with pytest.raises(ad.PlanError, match="seed"):
        Sample(counters(2), seed=0.5)  # type: ignore[arg-type]


def test_cardinality() -> None:
    ten, endless, unknown = ad.Dataset.range(10), ad.Dataset.counter(), ad.Dataset.range(9).filter(bool)
    assert len(Sample([ten, ten])) == 20
    assert len(Sample([ten, endless], [1, 0])) == 10
    assert len(Sample([ten, endless], [1, 0], stop_on_empty_dataset=True)) == 10
    assert Sample([ten, endless]).cardinality() == ad.INFINITE_CARDINALITY
    assert Sample([ten, unknown]).cardinality() == ad.UNKNOWN_CARDINALITY
    assert Sample([ten, endless], stop_on_empty_dataset=True).cardinality() == ad.UNKNOWN_CARDINALITY
    assert Sample([endless, endless], stop_on_empty_dataset=True).cardinality() == ad.INFINITE_CARDINALITY


def test_element_spec_is_known_where_all_agree() -> None:
    assert Sample([ad.Dataset.range(1), ad.Dataset.range(2)]).plan.signature == ad.Dataset.range(1).element_spec
    unlike = Sample([ad.Dataset.range(1), ad.Dataset.range(2).batch(2)])
    assert unlike.plan.signature == ad.TensorSpec(None, "int64")
    assert Sample([ad.Dataset.range(1), ad.Dataset.range(2).map(int)]).plan.signature is None


def test_options_of_all_hold() -> None:
    one = ad.Dataset.range(1).with_options(ad.Options(placement="current"))
    two = ad.Dataset.range(1).with_options(ad.Options(deterministic=False))
    options = Sample([one, two]).options()
    assert (options.placement, options.deterministic) == ("current", False)


def test_it_is_drawn_with_its_inputs() -> None:
    ds = Sample([ad.Dataset.range(2), ad.Dataset.range(3)])
    assert repr(ds.skip(1)) == "<Dataset sample_from_datasets(range(2), range(3)) → skip(1)>"


# ---------------------------------------------------------------------------------------------------------------------
# Going on


def uneven(weights: Any = (0.6, 0.3, 0.1), **how: Any) -> ad.Dataset[Any]:
    inputs = [ad.Dataset.range(40).shuffle(5, seed=1), ad.Dataset.range(100, 110).batch(2), ad.Dataset.range(3)]
    return Sample(inputs, weights, seed=6, **how)


@pytest.mark.parametrize(
    "transform",
    [
        lambda ds: ds,
        lambda ds: ds.map(lambda x: x),
        lambda ds: ds.map(lambda x: x, num_parallel_calls=3),
        lambda ds: ds.shuffle(7, seed=2),
        lambda ds: ds.repeat(2),
        lambda ds: Sample([ds, ad.Dataset.range(1000, 1010)], seed=9),
        lambda ds: ds.prefetch(5).enumerate(),
    ],
    ids=["alone", "map", "parallel map", "shuffle", "repeat", "mixed again", "prefetch"],
)
@pytest.mark.parametrize("stop", first_by_default([True, False]))
def test_goes_on_from_every_place(transform: Callable[[ad.Dataset[Any]], ad.Dataset[Any]], stop: bool) -> None:
    check_resumes(lambda: transform(uneven(stop_on_empty_dataset=stop)), places=100)


def state_after(ds: ad.Dataset[Any], count: int) -> Any:
    with ds.iterate() as elements:
        for _ in range(count):
            next(elements)
        return json.loads(json.dumps(elements.state_dict()))


def rest(ds: ad.Dataset[Any], state: Any) -> list[Any]:
    with ds.iterate(state=state) as elements:
        return list(elements)


def two(weights: Any, **how: Any) -> ad.Dataset[int]:
    return Sample([ad.Dataset.range(100), ad.Dataset.range(1000, 1100)], weights, seed=3, **how)


@pytest.mark.parametrize("count", [0, 1, 30, 64])
def test_a_run_may_go_on_with_other_weights_which_hold_from_there_on(count: int) -> None:
    before = list(two([0.5, 0.5]).take(count))
    after = rest(two([0.0, 1.0]), state_after(two([0.5, 0.5]), count))
    assert after == list(range(1000 + sum(x >= 1000 for x in before), 1100))
    after = rest(two([0.9, 0.1]), state_after(two([0.5, 0.5]), count))
    assert sorted(before + after) == [*range(100), *range(1000, 1100)]
    assert sum(x < 1000 for x in after[:40]) >= 30


def test_a_dataset_that_had_no_weight_begins_when_it_has_one() -> None:
    state = state_after(two([1.0, 0.0]), 60)
    after = rest(two([0.5, 0.5]), state)
    assert sorted(after) == [*range(60, 100), *range(1000, 1100)]


def test_a_dataset_that_has_ended_stays_so_whatever_its_weight() -> None:
    inputs = [ad.Dataset.range(3), ad.Dataset.range(100, 130)]
    state = state_after(Sample(inputs, [0.9, 0.1], seed=1), 20)
    after = rest(Sample(inputs, [0.99, 0.01], seed=1), state)
    assert after == list(range(117, 130))


def test_another_number_of_datasets_is_another_pipeline() -> None:
    state = state_after(two([0.5, 0.5]), 3)
    with pytest.raises(ad.ResumeError, match="2 datasets"):
        Sample([ad.Dataset.range(100), ad.Dataset.range(1000, 1100), ad.Dataset.range(2)], seed=3).iterate(state=state)


def test_other_datasets_are_another_pipeline() -> None:
    state = state_after(two([0.5, 0.5]), 3)
    with pytest.raises(ad.ResumeError, match=r"range\(99\)"):
        Sample([ad.Dataset.range(99), ad.Dataset.range(1000, 1100)], seed=3).iterate(state=state)


def test_a_seed_that_was_drawn_is_part_of_the_state() -> None:
    def unseeded() -> ad.Dataset[int]:
        return Sample([ad.Dataset.range(50), ad.Dataset.range(100, 150)])

    ds = unseeded()
    whole = list(ds)
    assert rest(unseeded(), state_after(ds, 20)) == whole[20:]


def test_another_seed_is_refused() -> None:
    state = state_after(two([0.5, 0.5]), 3)
    with pytest.raises(ad.ResumeError, match="seed"):
        Sample([ad.Dataset.range(100), ad.Dataset.range(1000, 1100)], seed=4).iterate(state=state)


@pytest.mark.parametrize(
    "change",
    [{"number": "x"}, {"number": None}, {"inputs": [3]}, {"inputs": 5}, {"ended": [7]}, {"ended": ["a"]}],
    ids=str,
)
def test_a_position_that_is_none_is_refused(change: dict[str, Any]) -> None:
    state = edited(state_after(two([0.5, 0.5]), 3))
    state["position"].update(change)
    with pytest.raises(ad.ResumeError, match="sample_from_datasets"):
        rest(two([0.5, 0.5]), state)


@pytest.mark.slow
def test_states_of_many_datasets_taken_often_are_those_taken_once() -> None:
    """Positions are kept from one state to the next: what is kept must not show."""

    def many() -> ad.Dataset[Any]:
        return Sample([ad.Dataset.range(i, i + 3) for i in range(300)], seed=8)

    with many().iterate() as elements:
        often = [elements.state_dict(), *[elements.state_dict() for _ in elements]]
        told = json.dumps(often)
    with many().iterate() as elements:
        seldom = {0: elements.state_dict()}
        for count, _ in enumerate(elements, 1):
            if count % 400 == 0:
                seldom[count] = elements.state_dict()
    assert all(often[count]["position"] == state["position"] for count, state in seldom.items())
    assert json.dumps(often) == told
    for count in (0, 1, 450, 899):
        assert rest(many(), often[count]) == list(many())[count:]


def test_what_a_user_does_to_a_state_does_not_change_the_next() -> None:
    with two([0.5, 0.5]).iterate() as elements:
        next(elements)
        expected = json.dumps(elements.state_dict())
        state = elements.state_dict()
        state["position"]["inputs"][0] = state["position"]["ended"] = "spoilt"
        assert json.dumps(elements.state_dict()) == expected


def test_what_was_drawn_long_ago_is_not_kept() -> None:
    def kept() -> int:
        gc.collect()
        return sum(type(found) is DrawRecord for found in gc.get_objects())

    ds, before = ad.Dataset.sample_from_datasets([ad.Dataset.counter(), ad.Dataset.counter()], seed=1), kept()
    with ds.with_options(ad.Options(disabled_rules=("inject_prefetch",), placement="current")).iterate() as elements:
        for _ in range(300):  # each of them a block of its own
            next(elements)
        assert kept() < before + 20

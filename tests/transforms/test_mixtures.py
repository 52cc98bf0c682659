"""Mixtures of named datasets: which change their weights and their datasets while they run, and keep their books."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.integrations.loader import Loader
from asyncdata.testing import check_resumes
from tests import reference
from tests.marks import first_by_default

Sample = ad.Dataset.sample_from_datasets
Change = Callable[[ad.Dataset[Any]], ad.Dataset[Any]]

FIRST = {"web": 0, "code": 1000, "books": 2000, "math": 3000}
"""The first number of each dataset of 100."""


def parts(*names: str) -> dict[str, ad.Dataset[Any]]:
    return {name: ad.Dataset.range(FIRST[name], FIRST[name] + 100).shuffle(7) for name in names}


def named(weights: Any = None, *names: str) -> ad.Dataset[Any]:
    return Sample(parts(*(names or ("web", "code", "books"))), weights, seed=3)


def first_of(ds: ad.Dataset[Any], count: int, **how: Any) -> tuple[list[Any], Any]:
    """The first elements, and the state after them as it comes from a file."""
    with ds.iterate(**how) as elements:
        return [next(elements) for _ in range(count)], json.loads(json.dumps(elements.state_dict()))


def rest(ds: ad.Dataset[Any], state: Any, **how: Any) -> list[Any]:
    with ds.iterate(state=state, **how) as elements:
        return list(elements)


def flat(elements: list[Any]) -> list[int]:
    return [int(x) for element in elements for x in np.atleast_1d(element)]


AFTER: list[Change] = [
    lambda ds: ds,
    lambda ds: ds.batch(3),
    lambda ds: ds.map(lambda x: x, num_parallel_calls=2).prefetch(3),
]


def test_names_are_in_the_plan_the_state_and_the_weights() -> None:
    ds = named({"code": 1, "web": 2, "books": 0})
    assert str(ds.plan.label()) == "sample_from_datasets(3 datasets: 'web', 'code', 'books')"
    _, state = first_of(ds, 30)
    given = state["position"]["given"]
    assert sum(given) == 30
    assert given[0] > given[1] > given[2] == 0


@pytest.mark.parametrize(
    ("datasets", "weights", "message"),
    [
        ({"a": 1, "b": 2}, [0.5, 0.5], "a weight for each name"),
        ({"a": 1, "b": 2}, {"a": 1}, "no weight of 'b'"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, "no dataset 'c'"),
        ({"a": 1, "b": 2}, {"a": 0, "b": 0}, "not all zero"),
        ({"a": 1, "b": 2}, {"a": -1, "b": 2}, "not negative"),
        ({"a": 1, "b": 2}, {"a": float("nan"), "b": 2}, "must be finite"),
        ({"a": 1, "b": 2}, {5: {"a": 1, "b": 2}}, "begins with step 0"),
        ({"a": 1, "b": 2}, {0: {"a": 1, "b": 2}, -5: {"a": 1, "b": 2}}, "from 0"),
        ({"a": 1, "b": 2}, {0: {"a": 1}}, "no weight of 'b'"),
        ({"": 1}, None, "at least one character"),
        ({3: 1}, None, "the name of a dataset is a string"),
        ({}, None, "at least one"),
    ],
)
def test_wrong_names_and_weights_are_refused_where_they_are_given(datasets: Any, weights: Any, message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        Sample({name: ad.Dataset.range(size) for name, size in datasets.items()}, weights)


def test_weights_by_name_of_datasets_without_names_are_refused() -> None:
    with pytest.raises(ad.PlanError, match="give them as a dict"):
        Sample([ad.Dataset.range(2)], {"a": 1})


@pytest.mark.parametrize("after", AFTER)
def test_a_state_finds_reordered_datasets_by_name(after: Change) -> None:
    ds = after(named({"web": 3, "code": 2, "books": 1}))
    with ds.iterate() as elements:
        _ = [next(elements) for _ in range(20)]
        state, expected = elements.state_dict(), list(elements)
    other = after(named({"books": 1, "web": 3, "code": 2}, "books", "web", "code"))
    assert str(rest(other, state)) == str(expected)


@pytest.mark.parametrize("now", [("web", "code"), ("web", "code", "math"), ("web", "code", "books", "math")])
def test_a_strict_resume_names_what_has_gone_and_what_is_new(now: tuple[str, ...]) -> None:
    _, state = first_of(named(), 10)
    gone, new = "books" not in now, "math" in now
    with pytest.raises(ad.ResumeError, match=r"a mixture of 'web', 'code', 'books'") as caught:
        named(None, *now).iterate(state=state)
    assert ("'books' gone" in str(caught.value), "'math' new" in str(caught.value)) == (gone, new)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("now", [("web", "code"), ("math", "web", "books"), ("web", "math", "code", "books")])
def test_datasets_are_removed_added_and_come_back_where_they_were(after: Change, now: tuple[str, ...]) -> None:
    first, state = first_of(after(named()), 15)
    second, state = first_of(after(named(None, *now)), 12, state=state, strict=False)
    third, state = first_of(after(named(None, *now)), 3, state=state)  # strictly: these are its datasets now
    fourth = rest(after(named(None, *FIRST)), state, strict=False)
    found = flat(first + second + third + fourth)
    assert sorted(found) == [x for first in FIRST.values() for x in range(first, first + 100)]
    absent = range(2000, 2100) if "books" not in now else range(0)
    assert not set(flat(second + third)) & set(absent)


def test_an_epoch_that_has_ended_stays_so_whichever_datasets_come_then() -> None:
    with named(None, "web", "code").iterate() as elements:
        _ = [next(elements) for _ in range(15)]
        state = elements.state_dict()
    with named(None, "web").iterate(state=state, strict=False) as elements:
        _, state = list(elements), elements.state_dict()
    loader = named(None, "web", "code", "books").iterate(state=state, strict=False)
    assert list(loader) == []
    following = Loader(named(None, "web", "code", "books"))
    following.load_state_dict(loader.state_dict())
    assert sorted(map(int, following)) == [*range(100), *range(1000, 1100), *range(2000, 2100)]


def test_a_dataset_whose_elements_are_held_cannot_be_removed() -> None:
    _, state = first_of(named().shuffle(20, seed=1), 15)
    with (
        pytest.raises(ad.ResumeError, match=r"'books' is no longer there.*weight 0"),
        named(None, "web", "code").shuffle(20, seed=1).iterate(state=state, strict=False) as elements,
    ):
        next(elements)


ALIKE: list[Callable[[str], ad.Dataset[Any]]] = [
    lambda name: ad.Dataset.from_iterable([f"{name}{number}" for number in range(300)]),
    lambda name: ad.Dataset.range(300).map(lambda x: f"{name}{x}"),
    lambda name: ad.Dataset.from_tensor_slices(np.arange(300) + FIRST[name]),
    lambda name: ad.Dataset.from_list([FIRST[name] + number for number in range(300)]).shuffle(5, seed=1),
]


@pytest.mark.parametrize("make", ALIKE)
@pytest.mark.parametrize("strict", [True, False])
def test_datasets_that_look_alike_are_refused_when_they_have_changed_places(
    make: Callable[[str], ad.Dataset[Any]], strict: bool
) -> None:
    web, code = make("web"), make("code")
    first, state = first_of(Sample([web, code], seed=1), 100)
    both = [str(x) for x in first + rest(Sample([make("web"), make("code")], seed=1), state, strict=strict)]
    assert len(set(both)) == len(both) == 600
    with pytest.raises(ad.ResumeError, match="changed places"):
        Sample([code, web], seed=1).iterate(state=state, strict=strict)
    _, state = first_of(Sample({"web": web, "code": code}, seed=1), 100)
    with pytest.raises(ad.ResumeError, match="changed places"):
        Sample({"web": code, "code": web}, seed=1).iterate(state=state, strict=strict)


@pytest.mark.parametrize("strict", [True, False])
def test_names_that_come_or_go_are_refused(strict: bool) -> None:
    unnamed = Sample([*parts("web", "code").values()], seed=3)
    for old, new in ((unnamed, named(None, "web", "code")), (named(None, "web", "code"), unnamed)):
        _, state = first_of(old, 10)
        with pytest.raises(ad.ResumeError, match="have names|had names"):
            new.iterate(state=state, strict=strict)


REREADING: dict[str, Change] = {
    "cache": lambda ds: ds.cache(),
    "unbatch": lambda ds: ds.batch(8).unbatch(),
    "flat_map": lambda ds: ds.batch(8).flat_map(ad.Dataset.from_tensor_slices),
    "scan": lambda ds: ds.scan(0, lambda state, x: (state + 1, x)),
    "unique": lambda ds: ds.unique(),
}


@pytest.mark.parametrize("name", [*REREADING])
def test_weights_below_a_step_that_reads_its_input_again_do_not_change(name: str) -> None:
    after = REREADING[name]
    _, state = first_of(after(named()), 13)
    assert rest(after(named()), state)
    with pytest.raises(ad.ResumeError, match=f"{name}.* after it may read its input again"):
        after(named({"web": 8, "code": 1, "books": 1})).iterate(state=state)
    with after(named()).iterate() as elements, pytest.raises(ad.PlanError, match=f"set_weights: {name}"):
        elements.set_weights({"web": 8, "code": 1, "books": 1})


def test_an_error_names_the_dataset() -> None:
    def fails(x: int) -> int:
        raise ValueError(x)

    broken = {"code": ad.Dataset.range(3).map(fails), "gone": ad.TextLineDataset("/no/such/file")}
    ds = Sample(broken, seed=1)
    notes = Counter[str]()
    with ds.iterate() as elements:
        for _ in range(4):
            with pytest.raises((ValueError, OSError)) as caught:
                next(elements)
            notes.update(note for note in caught.value.__notes__ if "of sample_from_datasets" in note)
    assert notes == {
        "in the dataset 'code' of sample_from_datasets": 3,
        "in the dataset 'gone' of sample_from_datasets": 1,
    }


def test_an_origin_names_the_dataset() -> None:
    with named({"web": 0, "code": 1, "books": 0}).iterate() as elements:
        next(elements)
        (record,) = named({"web": 0, "code": 1, "books": 0}).locate(elements.origin())
        assert record["dataset"] == "code"


# ---------------------------------------------------------------------------------------------------------------------
# Weights that change


def three(weights: Any) -> ad.Dataset[Any]:
    return Sample(
        {name: ad.Dataset.range(FIRST[name], FIRST[name] + 400) for name in ("web", "code", "books")}, weights, seed=5
    )


def curriculum(step: int) -> dict[str, float]:
    return {"web": 1.0, "code": min(step / 100, 3.0), "books": float(step >= 60)}


STAGES = {
    0: {"web": 1, "code": 0, "books": 0},
    40: {"web": 1, "code": 2, "books": 0},
    90: {"web": 1, "code": 1, "books": 5},
}


def stage(step: int) -> dict[str, float]:
    return {name: float(weight) for name, weight in STAGES[max(begin for begin in STAGES if begin <= step)].items()}


@pytest.mark.parametrize("weights", [STAGES, stage, curriculum], ids=["table", "steps", "ramp"])
def test_a_schedule_draws_as_its_meaning_says(weights: Any) -> None:
    meaning: Callable[[int], dict[str, float]] = weights if callable(weights) else stage
    inputs: list[reference.Elements] = [range(FIRST[name], FIRST[name] + 400) for name in ("web", "code", "books")]
    expected = reference.sample_from_datasets(inputs, lambda step: [*meaning(step).values()], 5, (), False)
    assert list(three(weights)) == list(expected)


@pytest.mark.parametrize("weights", first_by_default([STAGES, curriculum]), ids=["table", "ramp"])
def test_a_schedule_goes_on_from_every_place(weights: Any) -> None:
    check_resumes(lambda: three(weights).take(150).batch(4), places=100)


def test_a_table_and_a_function_are_the_same_where_they_say_the_same() -> None:
    assert list(three(STAGES)) == list(three(stage))


def test_a_schedule_without_a_dataset_left_ends_or_says_what_is_missing() -> None:
    def only(name: str) -> dict[str, int]:
        return {other: int(other == name) for other in ("web", "code", "books")}

    def wrong(step: int) -> dict[str, int]:
        return only("web") if step < 7 else {}

    with pytest.raises(ad.PlanError, match="at step 400 no dataset that has a weight is left, but 'code' may"):
        list(three({0: only("web"), 500: only("code")}))
    assert (
        len(list(three({0: only("web"), 100: only("code")}))) == 500
    )  # nothing later: the end, as with constant weights
    with pytest.raises(ad.PlanError, match=r"at step 7.*no weight of 'web'"):
        list(three(wrong))
    with three(wrong).take(7).iterate() as elements:
        assert len(list(elements)) == 7  # the step that is wrong does not come


def test_a_function_of_the_step_must_be_plain() -> None:
    async def later(step: int) -> dict[str, float]:
        return {}

    with pytest.raises(ad.PlanError, match="plain function"):
        three(later)


# ---------------------------------------------------------------------------------------------------------------------
# set_weights

PLACEMENTS = first_by_default(["thread", "current", "process"], 2)


def read_with_changes(ds: ad.Dataset[Any], changes: Mapping[int, Mapping[str, float]], stops: list[int]) -> list[int]:
    """All elements of a run whose weights are set at some elements, and which is stopped and resumed at others."""
    found, iterator = list[int](), ds.iterate()
    while True:
        if len(found) in changes:
            iterator.set_weights(changes[len(found)])
        if len(found) in stops:
            state = json.loads(json.dumps(iterator.state_dict()))
            iterator.close()
            iterator = ds.iterate(state=state)
        element = next(iterator, None)
        if element is None:
            iterator.close()
            return found
        found.append(int(element))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_weights_that_are_set_hold_from_the_next_element_and_in_each_state_from_there_on(placement: Any) -> None:
    ds = three({"web": 1, "code": 1, "books": 1}).with_options(ad.Options(placement=placement))
    changes = {50: {"web": 1, "code": 0, "books": 0}, 90: {"web": 0, "code": 1, "books": 3}}
    table = {0: {"web": 1, "code": 1, "books": 1}, **changes}
    whole = read_with_changes(ds, changes, [])
    assert whole[:150] == list(three(table).take(150))
    assert read_with_changes(ds, changes, [50, 70, 120]) == whole


def test_random_changes_at_random_elements_stopped_and_resumed_anywhere_give_the_same_elements() -> None:
    rng = random.Random(8)
    for _ in range(6):
        changes = {
            rng.randrange(300): {name: rng.choice([0, 1, 5]) + 0.01 for name in ("web", "code", "books")}
            for _ in range(3)
        }
        ds = three(None).with_options(ad.Options(placement="current", optimize=rng.random() < 0.5))
        expected = list(three({0: {"web": 1, "code": 1, "books": 1}, **changes}))
        assert read_with_changes(ds, changes, rng.sample(range(400), 3)) == expected


SIZE = 600
"""Elements of a dataset: more than is read of any before the last leg."""


def share_of(names: list[str], ranks: int, rank: int) -> ad.Dataset[Any]:
    ranges = {name: ad.Dataset.range(FIRST[name], FIRST[name] + SIZE).shuffle(7, seed=1) for name in names}
    return Sample({name: part.shard(ranks, rank) for name, part in ranges.items()}, seed=3)


def read_leg(
    rng: random.Random, ds: ad.Dataset[Any], changes: list[dict[str, float]], state: Any
) -> tuple[list[int], Any]:
    """Read some elements before each change of weights and after it, and return the state."""
    found = list[int]()
    with ds.iterate(state=state, strict=False) as elements:
        for change in changes:
            found += [int(one) for _, one in zip(range(rng.randint(0, 8)), elements, strict=False)]
            elements.set_weights(change)
            found += [int(one) for _, one in zip(range(rng.randint(0, 8)), elements, strict=False)]
        return found, json.loads(json.dumps(elements.state_dict()))


def given_by(state: Any) -> Counter[str]:
    """Return how many elements each dataset has given, by a state of a mixture, in which new ones come last."""
    names = state["mixtures"][0][1]["names"]
    return Counter({} if state["position"] is None else dict(zip(names, state["position"]["given"], strict=False)))


def read_in_legs(rng: random.Random) -> list[int]:
    """Read with other datasets, weights and ranks from leg to leg, and at last all; see that the books are right."""
    found, states, ranks, state = list[int](), list[Any](), rng.randint(1, 3), None
    names, ever = rng.sample([*FIRST], rng.randint(1, 4)), set[str]()
    for leg in range(7):
        if leg and ever <= set(names) and rng.random() < 0.6:  # another number of ranks with the same datasets
            ranks, state = rng.randint(1, 3), merge_states(states)
        elif leg:  # other datasets, in another order, with as many ranks
            names = rng.sample([*FIRST], rng.randint(1 if rng.random() < 0.5 else 4, 4))
            state = {"ranks": states}
        changes = [{name: rng.choice([0.01, 1.0, 5.0]) for name in names} for _ in range(rng.randint(0, 2))]
        legs = [read_leg(rng, share_of(names, ranks, rank), changes, state) for rank in range(ranks)]
        found, states, ever = (
            found + [one for some, _ in legs for one in some],
            [told for _, told in legs],
            ever | {*names},
        )
        seen = Counter(one // 1000 for one in found)
        given = sum([given_by(told) for told in states], Counter())
        assert {name: given[name] for name in names} == {name: seen[FIRST[name] // 1000] for name in names}
    for rank in range(ranks):
        found += map(int, share_of([*FIRST], ranks, rank).iterate(state={"ranks": states}, strict=False))
    return found


@pytest.mark.parametrize("seed", first_by_default([*range(40)], 8))
def test_random_changes_of_datasets_weights_and_ranks_give_each_element_once(seed: int) -> None:
    found = read_in_legs(random.Random(seed))
    assert sorted(found) == [x for first in FIRST.values() for x in range(first, first + SIZE)]


def test_weights_in_the_program_that_have_changed_hold_after_a_resume() -> None:
    with three(None).iterate() as elements:
        _ = next(elements)
        elements.set_weights({"web": 0, "code": 0, "books": 1})
        _, state = next(elements), elements.state_dict()
    ds = three(None)
    assert rest(ds, state)[0] >= 2000
    assert rest(ds, state)[0] >= 2000
    assert list(ds) == list(three(None))  # the next epoch
    assert rest(three({"web": 0, "code": 1, "books": 0}), state)[0] == 1000 + (state["position"]["given"][1])


def test_a_loader_sets_weights_too() -> None:
    loader = Loader(three(None).batch(2))
    batches = iter(loader)
    next(batches)
    loader.set_weights({"web": 0, "code": 0, "books": 1})
    assert next(batches).min() >= 2000
    again = Loader(three(None).batch(2))
    again.load_state_dict(loader.state_dict())
    assert next(iter(again)).min() >= 2000


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"web": 1}, "set_weights: there is no weight of 'code'"),
        ({"web": 1, "code": 1, "books": 1, "x": 1}, "set_weights: there is no dataset 'x'"),
        ([1, 2, 3], "set_weights needs a weight for each name"),
        ({"web": 0, "code": 0, "books": 0}, "set_weights must be finite"),
        ({"web": -1, "code": 1, "books": 1}, "not negative"),
        (stage, "set_weights takes numbers"),
        ({0: {"web": 1}}, "set_weights takes numbers"),
    ],
)
def test_wrong_weights_of_a_run_are_refused_and_change_nothing(weights: Any, message: str) -> None:
    with three(None).iterate() as elements:
        first = [next(elements) for _ in range(5)]
        with pytest.raises(ad.PlanError, match=message):
            elements.set_weights(weights)
        assert first + list(elements) == list(three(None))


def test_set_weights_finds_the_mixture_by_its_names() -> None:
    inner = Sample({"a": ad.Dataset.range(50), "b": ad.Dataset.range(100, 150)}, seed=1)
    outer = Sample({"inner": inner, "c": ad.Dataset.range(200, 250)}, seed=2)
    with outer.iterate() as elements:
        elements.set_weights({"a": 1, "b": 0})
        elements.set_weights({"inner": 1, "c": 0})
        assert list(elements) == list(range(50))
    with outer.iterate() as elements, pytest.raises(ad.PlanError, match="0 of the 2 mixtures"):
        elements.set_weights({"a": 1, "c": 0})
    with ad.Dataset.range(3).iterate() as numbers, pytest.raises(ad.PlanError, match="no sample_from_datasets"):
        numbers.set_weights([1, 2])


def test_set_weights_of_an_iterator_that_cannot_be_read_again_is_refused() -> None:
    once = Sample([ad.Dataset.from_iterable(iter(range(9))), ad.Dataset.range(9)])
    with once.iterate() as elements, pytest.raises(ad.PlanError, match="is an iterator"):
        elements.set_weights([1, 2])


# ---------------------------------------------------------------------------------------------------------------------
# Weights of what elements cost


def rows(name: str, count: int = 300) -> list[str]:
    """Texts of unlike lengths, a few of them empty."""
    rng = random.Random(name)
    return [name[0] * rng.choice([0, 1, 3, 7, 30, 200]) for _ in range(count)]


def by_cost(weights: Any = None, count: int = 300, **how: Any) -> ad.Dataset[Any]:
    names = ("web", "code", "books")
    return Sample({name: ad.Dataset.from_list(rows(name, count)) for name in names}, weights, seed=2, cost=len, **how)


CHANGING = {
    0: {"web": 6, "code": 3, "books": 1},
    50: {"web": 1, "code": 0, "books": 2},
    90: {"web": 1, "code": 8, "books": 1},
}


@pytest.mark.parametrize("weights", [{"web": 6, "code": 3, "books": 1}, CHANGING])
def test_the_next_element_is_of_the_dataset_furthest_behind_its_share(weights: Any) -> None:
    def at(step: int) -> list[float]:
        return [*(weights[max(begin for begin in weights if begin <= step)] if 0 in weights else weights).values()]

    inputs: list[reference.Elements] = [rows(name) for name in ("web", "code", "books")]
    expected = list(reference.sample_by_cost(inputs, at, 2, len))
    assert len(expected) == 900
    assert list(by_cost(weights)) == expected
    assert list(by_cost(weights).prefetch(2).batch(3).unbatch()) == expected


def test_shares_of_tokens_are_as_the_weights_say() -> None:
    ds = by_cost({"web": 0.6, "code": 0.3, "books": 0.1}, count=10_000)
    with ds.iterate() as elements:
        seen = Counter("".join(next(elements) for _ in range(10_000)))
        position = elements.state_dict()["position"]
    total = sum(seen.values())
    assert position["cost"] == [seen["w"], seen["c"], seen["b"]]
    assert all(abs(seen[name] / total - share) < 0.001 for name, share in (("w", 0.6), ("c", 0.3), ("b", 0.1)))


@pytest.mark.parametrize("weights", first_by_default([CHANGING, {"web": 6, "code": 3, "books": 1}], 1))
def test_a_mixture_by_cost_goes_on_from_every_place(weights: Any) -> None:
    check_resumes(lambda: by_cost(weights, 60), places=100)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_weights_of_costs_that_are_set_are_exact_after_a_resume(placement: Any) -> None:
    ds = by_cost(CHANGING[0]).with_options(ad.Options(placement=placement))
    found, iterator = list[str](), ds.iterate()
    for place in range(140):
        if place in CHANGING:
            iterator.set_weights(CHANGING[place])
        if place in (50, 70, 120):
            state = json.loads(json.dumps(iterator.state_dict()))
            iterator.close()
            iterator = ds.iterate(state=state)
        found.append(next(iterator))
    iterator.close()
    assert found == list(by_cost(CHANGING).take(140))


def test_a_dataset_of_elements_without_cost_or_that_fail_keeps_no_other_waiting() -> None:
    def fails(x: str) -> str:
        raise ValueError(x)

    free = ad.Dataset.from_list([""]).repeat()
    some = Sample({"free": free, "web": ad.Dataset.from_list(rows("web"))}, seed=1, cost=len).take(100_000)
    assert sum(map(bool, some)) > 80
    failing = Sample(
        {"bad": ad.Dataset.from_list(["a"] * 50).map(fails), "web": ad.Dataset.from_list(rows("web"))}, cost=len
    )
    assert list(failing.ignore_errors()) == rows("web")


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "3", None])
def test_an_element_with_a_wrong_cost_fails_in_its_place(wrong: Any) -> None:
    ds = Sample([ad.Dataset.range(3)], cost=lambda x: wrong if x == 1 else 1)
    with ds.iterate() as elements:
        assert next(elements) == 0
        with pytest.raises((TypeError, ValueError)) as caught:
            next(elements)
        assert any("sample_from_datasets" in note for note in caught.value.__notes__)
        assert next(elements) == 2


def test_a_cost_must_be_a_plain_function() -> None:
    async def later(x: int) -> int:
        return x

    with pytest.raises(ad.PlanError, match="plain function"):
        Sample([ad.Dataset.range(3)], cost=later)  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="function"):
        Sample([ad.Dataset.range(3)], cost=3)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------------
# What each dataset has given


def test_statistics_say_in_which_repetition_each_dataset_is() -> None:
    five = ad.Dataset.range(5)
    ds = Sample(
        {
            "plain": five,
            "repeated": five.repeat(),
            "after": five.shuffle(5, seed=1).repeat().map(lambda x: x).shuffle(3, seed=1).shard(1, 0),
            "batches": five.repeat().batch(2).unbatch(),
        },
        seed=1,
    ).with_options(ad.Options(disabled_rules=("inject_prefetch",)))
    state: Any = None
    for _ in range(4):
        with ds.iterate(state=state) as elements:
            for _ in range(10):
                next(elements)
            state = elements.state_dict()
            (sources,) = [step.sources for step in elements.stats().steps if step.sources]
    given = dict(zip(sources, state["position"]["given"], strict=True))
    assert sources["repeated"]["epoch"] == (given["repeated"] - 1) // 5 > 0
    assert sources["after"]["epoch"] in {given["after"] // 5, (given["after"] + 3) // 5}
    assert all("epoch" not in sources[name] for name in ("plain", "batches"))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_statistics_say_what_each_dataset_has_given_in_this_epoch(placement: Any) -> None:
    ds = by_cost(CHANGING[0]).with_options(ad.Options(placement=placement))
    _, state = first_of(ds, 40)
    with ds.iterate(state=state) as elements:
        rest = list(elements)
        (sources,) = [step.sources for step in elements.stats().steps if step.sources]
        json.dumps(elements.stats().to_dict())
    assert len(rest) == 860
    assert sources == {name: {"elements": 300, "cost": sum(map(len, rows(name)))} for name in ("web", "code", "books")}


def states_of_ranks(weights: list[dict[str, int] | None], divided: bool = True) -> list[dict[str, Any]]:
    """States of ranks, of which each calls set_weights once, unless it has none."""
    states: list[dict[str, Any]] = []
    ds = named({"web": 1, "code": 1, "books": 1})
    for rank, change in enumerate(weights):
        with (ds.shard(len(weights), rank) if divided else ds).iterate(epoch=0) as elements:
            next(elements)
            if change is not None:
                elements.set_weights(change)
            next(elements)
            states.append(elements.state_dict())
    return states


def test_states_with_other_weights_are_not_merged_and_told_what_differs() -> None:
    one, two = {"web": 8, "code": 1, "books": 1}, {"web": 4, "code": 3, "books": 3}
    merge_states(states_of_ranks([one, one]))
    for weights, told in (([one, two], r"\[8.0, .*\] in the first and \[4.0, .*"), ([None, two], r"none .* \[4.0, .*")):
        with pytest.raises(ad.ResumeError, match=f"the last call of set_weights is {told} at the same step in all"):
            merge_states(states_of_ranks([*weights]))
    first, second = states_of_ranks([None, one])
    first.pop("checksum", None)
    with pytest.raises(ad.ResumeError, match="mixtures is 5 in the first"):
        merge_states([first | {"mixtures": 5}, second])


def test_states_that_are_no_shares_are_told_so_before_anything_of_their_weights() -> None:
    states = states_of_ranks([{"web": 8, "code": 1, "books": 1}, None], divided=False)
    with pytest.raises(ad.ResumeError, match=r"one state of each share of one shard\(\), got no shard\(\) at all"):
        merge_states(states)

"""A state with numbers that were changed at random is refused, or gives what some place could give, in bounded memory.

That is elements of the uninterrupted run, each at most once. They are in its order, but for what only a state tells: in
which order elements were ready, whose turn it is among open datasets, and which elements wait for their window.
"""

from __future__ import annotations

import copy
import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.system.checksum import with_checksum
from tests.laws.test_damaged import places
from tests.states import edited

R = ad.Dataset.range(60)

PIPELINES: dict[str, ad.Dataset[Any]] = {
    "range": R,
    "map": R.map(lambda x: x, num_parallel_calls=2, deterministic=False),
    "filter": R.filter(lambda x: x % 3),
    "shuffle": R.shuffle(9, seed=1),
    "shuffle everything": R.filter(lambda x: x >= 0).shuffle(1 << 31, seed=1),
    "batch": R.shuffle(50, seed=1).filter(lambda x: x % 2).batch(4),
    "unbatch": R.batch(6).unbatch(),
    "take": R.take(50).shuffle(9, seed=1),
    "skip": R.skip(3),
    "shard": R.shard(2, 1),
    "enumerate": R.enumerate().map(lambda number, x: x if number == x else -1),
    "repeat": R.shuffle(9, seed=1).repeat(1),
    "shuffle()": R.shuffle(seed=1),
    "unordered batch": R.map(abs, num_parallel_calls=2, deterministic=False).filter(lambda x: x % 3).batch(4),
    "padded_batch": R.map(lambda x: np.full(x % 3 + 1, x)).padded_batch(4).map(lambda rows: rows[:, 0]),
    "interleave": R.batch(10).interleave(ad.Dataset.from_tensor_slices, cycle_length=3),
    "group_by_window": R.group_by_window(lambda x: x % 3, lambda _, rows: rows.batch(4), 4),
    "generator": ad.Dataset.from_generator(lambda: iter(range(60))).shuffle(40, seed=2),
}
IN_PARTS: dict[str, Callable[[list[Any]], list[list[int]]]] = {
    "map": lambda found: [[x] for x in flat(found)],
    "unordered batch": lambda found: [[x] for x in flat(found)],
    "interleave": lambda found: [[x for x in flat(found) if x // 10 == part] for part in range(6)],
    "group_by_window": lambda found: [[x] for x in flat(found)],
}
"""Parts of what a pipeline gives: each is in the order of the uninterrupted run, where all together need not be."""
NUMBERS = (-1, 0, 1, 5, 59, 60, 10**6, 10**9, 10**12, 1 << 63, 1 << 70)
MOST = 64 << 20
"""Bytes that one run may take beyond what was there."""


def mutated(state: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy of a state in which one number or run is another."""
    changed = edited(state)
    whole = {"position": changed["position"]} if rng.random() < 0.8 else changed
    numbers = [(holder, name) for holder, name in places(whole) if type(holder[name]) is int]
    if not numbers or rng.random() < 0.2:
        run = [{"run": [rng.choice(NUMBERS), rng.choice(NUMBERS)]}]
        return {**changed, "position": {"from": changed["position"], "back": run}}
    holder, name = rng.choice(numbers)
    holder[name] = rng.choice(NUMBERS)
    return {**changed, **whole}


def flat(elements: list[Any]) -> list[int]:
    """The numbers that elements or batches are made of."""
    return [int(x) for element in elements for x in np.atleast_1d(element)]


def check_found(name: str, found: list[Any], epoch: dict[str, Any]) -> None:
    """Check what a changed state gave against all elements of an epoch."""
    places = {x: place for place, x in enumerate(flat(list(PIPELINES[name].iterate(state=epoch))))}
    numbers = flat(found)
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= places.keys()
    for part in IN_PARTS[name](found) if name in IN_PARTS else [numbers]:
        assert part == sorted(part, key=places.__getitem__)
    if name == "group_by_window":
        assert all(len({x % 3 for x in flat([window])}) == 1 and len(window) <= 4 for window in found)


def check_mutations(name: str, count: int) -> None:
    rng, ds = random.Random(name), PIPELINES[name]
    states: list[dict[str, Any]] = []
    with ds.iterate() as elements:
        for _ in range(6):
            states.append(json.loads(json.dumps(elements.state_dict())))
            next(elements)
    tracemalloc.start()
    try:
        for _ in range(count):
            state = mutated(rng.choice(states), rng)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                with ds.iterate(state=state) as elements:
                    found = list(islice(elements, 100))
            except ad.ResumeError:
                found = []
            assert tracemalloc.get_traced_memory()[1] - before < MOST, state
            check_found(name, found, edited(states[0], epoch=state["epoch"]) if found else states[0])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", PIPELINES)
def test_a_state_with_another_number_is_refused_or_gives_elements(name: str) -> None:
    check_mutations(name, 10)


@pytest.mark.laws
@pytest.mark.parametrize("name", PIPELINES)
def test_a_state_with_any_other_number_is_refused_or_gives_elements(name: str) -> None:
    check_mutations(name, 100)


VALUES = (*NUMBERS, None, True, False, 1.5, "x", "", "end", "alone", [], [1], [[]], [["alone", 1]], {}, {"of": [1]})
OF_ANY_KIND = {
    **PIPELINES,
    "shuffle of batches": R.batch(2).shuffle(9, seed=1),
    "sample_from_datasets": ad.Dataset.sample_from_datasets([R.take(30), R.skip(30)], [0.5, 0.5], seed=1),
    "concatenate": R.take(30).concatenate(R.skip(30)),
    "window": R.shuffle(7, seed=2).window(4).flat_map(lambda rows: rows),
    "pad_to_cardinality": R.take(50).pad_to_cardinality(60).map(lambda x, valid: x if valid else -x),
    "random": ad.Dataset.random(3).take(60).shuffle(9, seed=1),
    "buckets": R.map(lambda x: np.full(x % 3 + 1, x))
    .bucket_by_sequence_length(len, [2], [3, 3])
    .map(lambda x: x[:, 0]),
}
"""Their functions raise for anything but an element of their input."""
WRONG_KINDS = (None, 1.5, "x", "", {}, [[]])
"""Values that mean nothing where numbers stand."""


def check_values(name: str, count: int) -> None:
    """Put values of every kind into states that have the right checksum."""
    rng, ds = random.Random(name), OF_ANY_KIND[name]
    states: list[dict[str, Any]] = []
    with ds.iterate() as elements:
        for _ in range(6):
            states.append(json.loads(json.dumps(elements.state_dict())))
            next(elements)
    for _ in range(count):
        state = edited(rng.choice(states))
        whole = {"position": state["position"]} if rng.random() < 0.8 else state
        holder, name_ = rng.choice([*places(whole)])
        holder[name_] = rng.choice(VALUES)
        state = with_checksum({**state, **whole})
        try:
            with ds.iterate(state=state) as elements:
                found = list(islice(elements, 100))
        except ad.ResumeError:
            continue
        if name in PIPELINES and found and holder[name_] in WRONG_KINDS:
            check_found(name, found, edited(states[0], epoch=state["epoch"]))


@pytest.mark.parametrize("name", OF_ANY_KIND)
def test_a_state_with_a_value_of_another_kind_is_refused_or_gives_elements(name: str) -> None:
    check_values(name, 40)


@pytest.mark.laws
@pytest.mark.parametrize("name", OF_ANY_KIND)
def test_a_state_with_any_value_is_refused_or_gives_elements(name: str) -> None:
    check_values(name, 1000)


@pytest.mark.parametrize("back", [[[]], [None], ["x"], "x", [True], [[1]], {"a": 1}, [{"of": "x"}], [1.0]], ids=str)
@pytest.mark.parametrize("make", [lambda: R, lambda: ad.Dataset.from_list([*range(60)]), lambda: ad.Dataset.random(1)])
def test_what_is_no_ticket_reaches_no_function(back: Any, make: Callable[[], ad.Dataset[Any]]) -> None:
    def fails(x: Any) -> Any:
        raise AssertionError(x)

    ds = make().map(fails)
    state = edited(make().map(fails).iterate().state_dict(), position={"from": 10, "back": back})
    with pytest.raises(ad.ResumeError):
        next(ds.iterate(state=with_checksum(state)))


@pytest.mark.parametrize(
    "ds",
    [
        ad.Dataset.range(2).flat_map(lambda x: ad.Dataset.range(400_000).shuffle(300_000, seed=1)),
        ad.Dataset.range(2).interleave(lambda x: ad.Dataset.range(400_000).shuffle(300_000, seed=1), cycle_length=2),
        pytest.param(
            ad.Dataset.from_generator(lambda: iter(range(400_000))).shuffle(300_000, seed=1), marks=pytest.mark.slow
        ),
        ad.Dataset.range(2).filter(lambda x: True).map(lambda x: np.arange(400_000)).unbatch(),
    ],
    ids=["flat_map", "interleave", "generator", "unbatch"],
)
def test_true_states_of_large_buffers_are_taken(ds: ad.Dataset[Any]) -> None:
    with ds.iterate() as elements:
        next(elements)
        state = json.loads(json.dumps(elements.state_dict()))
        rest = [next(elements) for _ in range(2)]
    with ds.iterate(state=state) as elements:
        assert [next(elements) for _ in range(2)] == rest


@pytest.mark.parametrize(
    "position",
    [
        {"from": 10, "back": [{"run": [0, 10**12]}]},
        {"from": 10, "back": [{"run": [59, 2]}]},
        {"from": 10, "back": [{"packed": 10**12, "columns": 7}]},
        {"from": 10, "back": [{"packed": 10**12, "columns": [0, 1, "AAAA"]}]},
        {"from": 10, "back": [{"state": {}, "skip": 0, "number": 0, "count": 10**12}]},
        {"from": 10, "back": [{"of": [{"run": [0, 10**12]}]}]},
        {"from": 10, "back": [60]},
    ],
    ids=str,
)
def test_more_elements_than_there_are_is_refused(position: Any) -> None:
    state = edited(R.iterate().state_dict(), position=position)
    with pytest.raises(ad.ResumeError, match=r"range\(60\)"):
        list(R.iterate(state=state))


def test_a_buffer_that_is_larger_than_any_is_refused() -> None:
    ds = R.filter(lambda x: x >= 0).shuffle(1 << 31, seed=1)
    place = {"seen": 10**12, "input": 10, "size": 10**12}
    with pytest.raises(ad.ResumeError, match="hold at most"):
        ds.iterate(state=edited(ds.iterate().state_dict(), position=place))


@pytest.mark.parametrize(
    "change", [{"position": {"from": 5, "back": [{"run": [0, 10**12]}]}}, {"position": 9}, {"elements": 3}], ids=str
)
def test_a_damaged_position_file_of_an_unfinished_cache_is_not_used(tmp_path: Path, change: dict[str, Any]) -> None:
    """The input begins anew then, and what was written stays."""

    def build() -> ad.Dataset[Any]:
        return ad.Dataset.range(20_000).shuffle(9, seed=1)

    ds = build().cache(str(tmp_path / "cache"))
    with ds.iterate() as elements:
        found = [next(elements) for _ in range(5)]
    (place,) = tmp_path.glob("*.position")
    place.write_text(json.dumps({**json.loads(place.read_bytes()), **change}))
    whole = list(build().cache(str(tmp_path / "cache")))
    assert (whole[:5], whole) == (found, list(build()))
    assert list(build().cache(str(tmp_path / "cache"))) == whole


def every_change(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Copies of a state, in each of which one value is another, is left out, or is there twice."""
    for place in range(len([*places(state)])):
        for wrong in (*NUMBERS, None, True, 1.5, "x", [], {}, ...):
            changed = copy.deepcopy(state)
            holder, name = [*places(changed)][place]
            if wrong is not ...:
                holder[name] = wrong
            elif isinstance(holder, list):
                holder.insert(name, holder[name])
            else:
                del holder[name]
            if changed != state or repr(changed) != repr(state):
                yield changed


CHANGED = {
    **{name: PIPELINES[name] for name in ("range", "shuffle", "unbatch", "interleave", "group_by_window")},
    "zip": ad.Dataset.zip(R.shuffle(9, seed=1), R.batch(2).unbatch()),
    "sample_from_datasets": ad.Dataset.sample_from_datasets([R, R.map(lambda x: -x)], [0.5, 0.5], seed=1),
    "shuffle of batches": R.batch(2).shuffle(9, seed=1),
    "scan": R.scan(0, lambda total, x: (total + x, total)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_state_with_any_one_change_is_refused(name: str) -> None:
    """Without the checksum it is a state of before."""
    with CHANGED[name].iterate() as elements:
        for _ in range(7):
            next(elements)
        state = json.loads(json.dumps(elements.state_dict()))
        expected = [next(elements) for _ in range(5)]
    assert repr([*islice(CHANGED[name].iterate(state=edited(state)), 5)]) == repr(expected)
    for changed in every_change(state):
        if "checksum" in changed:
            with pytest.raises(ad.ResumeError):
                CHANGED[name].iterate(state=changed)


def test_a_merged_state_with_any_one_change_is_refused() -> None:
    def share(count: int, index: int) -> ad.Dataset[Any]:
        return R.shuffle(9, seed=1).shard(count, index)

    states: list[dict[str, Any]] = []
    for index in range(2):
        with share(2, index).iterate() as elements:
            _ = [next(elements) for _ in range(7 + index)]
            states.append(elements.state_dict())
    merged = json.loads(json.dumps(ad.checkpoint.merge_states(states)))
    assert len(list(share(3, 0).iterate(state=merged))) == 15
    for changed in every_change(merged):
        if "checksum" in changed:
            with pytest.raises(ad.ResumeError):
                share(3, 0).iterate(state=changed)
    with pytest.raises(ad.ResumeError, match="damaged"):
        ad.checkpoint.merge_states([states[0], {**states[1], "epoch": 1}])

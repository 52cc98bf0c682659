"""A state of a pipeline that was edited since: with `strict=False` it is refused, or no element is lost or repeated.

Steps are inserted, deleted, moved, swapped and replaced at random, without seeds. An element that both pipelines give
must be given once in all, before the state and after it; one that only one of them gives, at most once.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

DS = ad.Dataset[Any]


def same(x: Any) -> Any:
    return x


def other(x: Any) -> Any:
    return x


def seeded(x: Any, rng: Any) -> Any:
    return x


def odd(x: Any) -> bool:
    return np.ndim(x) > 0 or x % 2 == 1


def no_third(x: Any) -> bool:
    return np.ndim(x) > 0 or x % 3 != 0


def parts(x: Any) -> DS:
    return ad.Dataset.from_list(numbers(x))


def numbers(x: Any) -> list[int]:
    return [int(number) for number in np.ravel(x)]


def key(x: Any) -> int:
    return numbers(x)[0] % 3


def by_four(_: int, rows: DS) -> DS:
    return rows.batch(4)


def window(ds: DS) -> DS:
    return ds.window(3).map(lambda rows: np.array([number for row in rows for number in numbers(row)]))


def mixed(*parts: DS) -> DS:
    return ad.Dataset.sample_from_datasets(parts, [0.5, 0.5])


MORE = ad.Dataset.range(100, 110)
STEPS: dict[str, Callable[[DS], DS]] = {
    "map": lambda ds: ds.map(same),
    "map other": lambda ds: ds.map(other, num_parallel_calls=2),
    "map unordered": lambda ds: ds.map(same, num_parallel_calls=2, deterministic=False),
    "map batch": lambda ds: ds.map(same, batch=3),
    "map seeded": lambda ds: ds.map(seeded, rng=True),
    "filter": lambda ds: ds.filter(odd),
    "filter other": lambda ds: ds.filter(no_third),
    "shuffle": lambda ds: ds.shuffle(20),
    "shuffle 7": lambda ds: ds.shuffle(7),
    "shuffle all": lambda ds: ds.shuffle(),
    "batch": lambda ds: ds.batch(2),
    "batch 5": lambda ds: ds.batch(5),
    "padded_batch": lambda ds: ds.padded_batch(3),
    "unbatch": lambda ds: ds.unbatch(),
    "rebatch": lambda ds: ds.rebatch(3),
    "flat_map": lambda ds: ds.flat_map(parts),
    "interleave": lambda ds: ds.interleave(parts, cycle_length=3),
    "interleave 2": lambda ds: ds.interleave(parts, cycle_length=2, block_length=2),
    "interleave parallel": lambda ds: ds.interleave(parts, cycle_length=2, num_parallel_calls=2, deterministic=False),
    "cache": lambda ds: ds.cache(),
    "scan": lambda ds: ds.scan(0, lambda total, x: (total + 1, x)),
    "unique": lambda ds: ds.unique(),
    "distinct": lambda ds: ds.distinct(),
    "enumerate": lambda ds: ds.enumerate().map(lambda _, x: x),
    "prefetch": lambda ds: ds.prefetch(2),
    "ignore_errors": lambda ds: ds.ignore_errors(),
    "window": window,
    "group_by_window": lambda ds: ds.group_by_window(key, by_four, 4),
    "buckets": lambda ds: ds.map(np.ravel).bucket_by_sequence_length(len, [2, 4], [2, 2, 2]),
    "tokens": lambda ds: ds.map(np.ravel).bucket_by_token_count(8).map(np.ravel),
    "zip": lambda ds: ad.Dataset.zip(ds, ds.map(other)).map(lambda x, _: x),
    "zip filtered": lambda ds: ad.Dataset.zip(ds.filter(odd), ds.filter(odd)).map(lambda x, _: x),
    "concatenate": lambda ds: ds.concatenate(MORE),
    "concatenate first": MORE.concatenate,
    "sample_from_datasets": lambda ds: mixed(ds, MORE),
    "sample_from_datasets first": lambda ds: mixed(MORE, ds),
    "sample_from_datasets 3": lambda ds: ad.Dataset.sample_from_datasets([ds, MORE, ad.Dataset.range(200, 205)]),
    "repeat": lambda ds: ds.repeat(2),
    "skip": lambda ds: ds.skip(0),
}


def build(steps: Iterable[str]) -> DS:
    ds: DS = ad.Dataset.range(40)
    for step in steps:
        ds = STEPS[step](ds)
    return ds


def edited(steps: list[str], rng: random.Random) -> list[str]:
    """A list of steps in which one is new, gone, elsewhere, in the place of another, or another one."""
    steps, any_step = list(steps), rng.choice([*STEPS])
    here, there = rng.randrange(len(steps) + 1), rng.randrange(len(steps) + 1)
    kind = rng.choice(["insert", "delete", "move", "swap", "replace", "replace alike"])
    if kind == "insert" or here == len(steps):
        steps.insert(here, any_step)
    elif kind == "delete":
        del steps[here]
    elif kind == "move":
        steps.insert(min(there, len(steps) - 1), steps.pop(here))
    elif kind == "swap":
        there = min(there, len(steps) - 1)
        steps[here], steps[there] = steps[there], steps[here]
    else:
        alike = [step for step in STEPS if step.split()[0] == steps[here].split()[0]]
        steps[here] = rng.choice(alike) if kind == "replace alike" else any_step
    return steps


def counts(elements: Iterable[Any]) -> Counter[int]:
    return Counter(number for element in elements for number in numbers(element))


def check_edit(before: list[str], after: list[str], taken: int) -> bool:
    """Resume the one from a state of the other, and return whether it was accepted."""
    try:
        first, second = counts(list(build(before))), counts(list(build(after)))
    except (ad.StructureError, ad.PlanError):  # a scalar to unbatch
        return False
    with build(before).iterate() as elements:
        try:
            found = [*islice(elements, taken)]
        except ad.StructureError:  # a batch of unlike rows, in another order than above
            return False
        state = json.loads(json.dumps(elements.state_dict()))
    try:
        found += list(build(after).iterate(state=state, strict=False))
    except ad.ResumeError:
        return False
    got = counts(found)
    wrong = {
        x: got[x] for x in {*first, *second, *got} if not min(first[x], second[x]) <= got[x] <= max(first[x], second[x])
    }
    assert not wrong, (before, after, taken, wrong)
    return True


def check_edits(seed: int, count: int) -> None:
    rng, accepted = random.Random(seed), 0
    for _ in range(count):
        before = [rng.choice([*STEPS]) for _ in range(rng.randint(1, 4))]
        after = edited(before, rng)
        if rng.random() < 0.3:
            after = edited(after, rng)
        accepted += check_edit(before, after, rng.choice([1, 2, 5, 11, 30]))
    assert accepted > count // 10


def test_an_edited_pipeline_loses_and_repeats_nothing_or_is_refused() -> None:
    check_edits(1, 100)


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(2, 6))
def test_any_edited_pipeline_loses_and_repeats_nothing_or_is_refused(seed: int) -> None:
    check_edits(seed, 400)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["map", "shuffle"], ["shuffle", "map"]),
        (["shuffle", "map"], ["map", "shuffle"]),
        (["ignore_errors", "shuffle"], ["shuffle", "ignore_errors"]),
        (["map", "shuffle", "map other", "shuffle 7"], ["shuffle", "map", "shuffle 7", "map other"]),
        (["filter", "shuffle"], ["shuffle", "filter"]),
        (["map seeded", "shuffle"], ["shuffle", "map seeded"]),
        (["map", "sample_from_datasets"], ["sample_from_datasets", "map"]),
    ],
    ids=str,
)
def test_what_moves_past_a_step_with_a_state_leaves_it_its_seed(before: list[str], after: list[str]) -> None:
    for taken in (1, 11, 19):
        assert check_edit(before, after, taken)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["concatenate"], ["concatenate first"]),
        (["sample_from_datasets"], ["sample_from_datasets first"]),
        (["sample_from_datasets"], ["sample_from_datasets 3"]),
        (["batch", "interleave"], ["batch", "filter", "interleave"]),
        (["interleave", "filter"], ["filter", "interleave"]),
        (["cache"], ["map unordered", "cache"]),
    ],
    ids=str,
)
def test_a_change_that_would_lose_elements_is_refused(before: list[str], after: list[str]) -> None:
    assert not any(check_edit(before, after, taken) for taken in (1, 2, 5, 11))
    assert check_edit(before, before, 5)
    assert check_edit(after, after, 5)

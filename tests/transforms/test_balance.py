from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.reference import Failed
from tests.running import results

LENGTHS = np.minimum(2048, np.exp(np.random.default_rng(1).normal(5.5, 1, 6000)).astype(int) + 1)
"""Of documents: most are short, some are very long."""


def itself(length: int) -> int:
    return length


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("drop", [False, True])
def test_keeps_its_contract(rank: int, drop: bool) -> None:
    check_transform(
        lambda ds: ds.balance(itself, 2, 3, rank, steps=2, drop_remainder=drop),
        lambda items: reference.balance(items, itself, 2, 3, rank, 2, drop),
        [(), [5], [3, 1, 4, 1, 5, 9, 2], [number * 7919 % 101 for number in range(53)]],
    )


@given(
    costs=st.lists(st.integers(0, 9) | st.floats(0, 9), max_size=60),
    ranks=st.integers(1, 4),
    size=st.integers(1, 3),
    steps=st.integers(1, 4),
    drop=st.booleans(),
)
def test_each_element_comes_once_over_all_ranks(
    costs: list[float], ranks: int, size: int, steps: int, drop: bool
) -> None:
    numbered = ad.Dataset.from_iterable([*enumerate(costs)])
    shares = [
        numbered.balance(lambda _, cost: cost, size, ranks, rank, steps=steps, drop_remainder=drop)
        for rank in range(ranks)
    ]
    found = [[int(number) for number, _ in share] for share in shares]
    assert [*map(len, found)] == [*map(len, shares)]  # which was known before
    assert [*map(len, found)] == [(len(costs) + (0 if drop else ranks - 1 - rank)) // ranks for rank in range(ranks)]
    kept = sorted(number for share in found for number in share)
    assert kept == list(range(len(costs) - (len(costs) % ranks if drop else 0)))


def batch_costs(ranks: int, size: int, steps: int) -> np.ndarray:
    """What each batch of each rank costs; the last short step is left out."""
    ds = ad.Dataset.from_tensor_slices(LENGTHS)
    shares = [
        [int(batch.sum()) for batch in ds.balance(itself, size, ranks, rank, steps=steps).batch(size)]
        for rank in range(ranks)
    ]
    return np.array([share[: len(LENGTHS) // (size * ranks)] for share in shares])


def imbalance(costs: np.ndarray) -> float:
    """How much longer than the mean the slowest rank takes, on average."""
    return float((costs.max(0) / costs.mean(0)).mean())


def test_all_ranks_take_about_as_long() -> None:
    dealt = LENGTHS[: 6000 // 32 * 32].reshape(-1, 4, 8).sum(2).T
    assert imbalance(dealt) > 1.3  # as they come
    assert imbalance(batch_costs(4, 8, 8)) < 1.01
    assert imbalance(batch_costs(4, 8, 1)) < 1.1
    assert imbalance(batch_costs(4, 1, 64)) < 1.1  # of single elements, those that are alike come together


def test_no_rank_is_always_the_slowest() -> None:
    costs = batch_costs(4, 1, 16)
    assert max(np.bincount(costs.argmax(0), minlength=4)) < 0.4 * costs.shape[1]


def test_batches_that_exist_are_dealt_too() -> None:
    """`bucket_by_token_count` makes batches of many sizes; a step has those that are alike."""
    sequences = ad.Dataset.from_tensor_slices(LENGTHS[:1000]).map(np.zeros)
    batches = sequences.bucket_by_token_count(4096, buffer_size=200)
    shares = [[*batches.balance(np.size, 1, 2, rank)] for rank in range(2)]
    assert sum(int(batch.shape[0]) for share in shares for batch in share) == 1000


@pytest.mark.parametrize("size", [1, 3])
def test_goes_on_after_any_element(size: int) -> None:
    check_resumes(lambda: ad.Dataset.range(40).shuffle(9, seed=1).balance(lambda x: x * x % 13, size, 2, 1, steps=3))
    check_resumes(
        lambda: ad.Dataset.range(40).balance(lambda x: x % 5, size, 2, 0, steps=2).shuffle(7, seed=1).batch(4)
    )


def test_a_state_is_as_small_in_the_middle_of_a_group_as_at_its_end() -> None:
    ds = ad.Dataset.range(3200).balance(lambda x: x % 97, 8, 4, 1, steps=50)
    with ds.iterate() as elements:
        for _ in range(500):
            next(elements)
        state = elements.state_dict()
    assert state["position"] == [1600, 1, 100]


def test_an_element_without_a_cost_is_raised_by_all_ranks_and_dealt_to_none() -> None:
    def cost(x: int) -> Any:
        return 1 / (x - 5)  # fails for 5, and is below 0 before

    ds = ad.Dataset.range(9)
    for rank in range(2):
        found = results(ds.balance(cost, 1, 2, rank))
        assert [*map(str, found)].count("Failed(reason='ValueError', of_source=False)") == 5
        assert sum(isinstance(one, Failed) for one in found) == 6
    dealt = [one for rank in range(2) for one in results(ds.balance(cost, 1, 2, rank)) if not isinstance(one, Failed)]
    assert sorted(dealt) == [6, 7, 8]


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        ("1", TypeError, "a cost is a number, got '1'"),
        (None, TypeError, "float"),
        (-1, ValueError, "at least 0 and finite, got -1"),
        (float("nan"), ValueError, "at least 0 and finite, got nan"),
        (float("inf"), ValueError, "at least 0 and finite, got inf"),
        (np.zeros(2), TypeError, "scalar|size-1"),
    ],
)
def test_what_is_no_cost_is_an_error_that_names_the_element(cost: Any, error: type[Exception], message: str) -> None:
    ds = ad.Dataset.range(2).balance(lambda x: 1 if x else cost, 1, 1, 0)
    with pytest.raises(error, match=message) as caught, ds.iterate() as elements:
        next(elements)
    assert "element 0" in "".join(caught.value.__notes__)
    assert "balance" in "".join(caught.value.__notes__)


def test_numbers_of_numpy_are_costs() -> None:
    for kind in (np.int32, np.float32, np.array):
        assert [*ad.Dataset.range(4).balance(lambda x, kind=kind: kind(x), 2, 2, 0)] == [0, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, r"balance\(batch_size=\) must be at least 1, got 0"),
        ({"steps": 0}, r"balance\(steps=\) must be at least 1"),
        ({"rank": 2}, r"balance\(rank=\) must be less than ranks=2, got 2"),
        ({"rank": None}, r"balance\(rank=\) must be an integer, got None"),
        ({"ranks": None, "rank": None}, "found no rank .* give ranks and rank"),
        ({"drop_remainder": 1}, "drop_remainder"),
        ({"cost": 3}, "balance needs a function"),
        ({"cost": lambda a, b: a}, "called with one argument"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in (("WORLD_SIZE", "RANK"), ("SLURM_NTASKS", "SLURM_PROCID")):
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    given = {"cost": itself, "batch_size": 2, "ranks": 2, "rank": 0, **arguments}
    with pytest.raises(ad.PlanError, match=message):
        ad.Dataset.range(3).balance(**given)


def test_a_coroutine_function_is_refused() -> None:
    async def cost(x: int) -> int:
        return x

    with pytest.raises(ad.PlanError, match="coroutine function"):
        ad.Dataset.range(3).balance(cost, 2, 1, 0)  # type: ignore[arg-type]


def test_ranks_that_would_read_in_other_orders_are_refused() -> None:
    with pytest.raises(ad.PlanError, match=r"give shuffle\(3.* a seed, the same on all ranks"):
        ad.Dataset.range(9).shuffle(3).balance(itself, 1, 2, 0)
    assert len([*ad.Dataset.range(9).shuffle(3).balance(itself, 1, 1, 0)]) == 9
    unordered = ad.Dataset.range(9).batch(2, within=1).balance(np.sum, 1, 2, 0)
    with pytest.raises(
        ad.PlanError, match=r"the order after batch\(2, within=1\) depends on timing: leave that step out"
    ):
        next(iter(unordered))


def test_steps_before_it_keep_their_order() -> None:
    ds = ad.Dataset.range(60).map(itself, num_parallel_calls=4, deterministic=False)
    assert [*ds.balance(itself, 2, 3, 1)] == [*ad.Dataset.range(60).balance(itself, 2, 3, 1)]


def test_the_launcher_says_which_rank_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert [*ad.Dataset.range(4).balance(itself, 2)] == [1, 2]


def test_other_arguments_are_refused_by_a_state_also_without_strict() -> None:
    def build(size: int = 2, steps: int = 2) -> ad.Dataset[int]:
        return ad.Dataset.range(40).balance(itself, size, 2, 1, steps=steps)

    with build().iterate() as elements:
        first = [next(elements) for _ in range(3)]
        state = elements.state_dict()
    assert [*first, *build().iterate(state=state)] == [*build()]
    for other in (build(3), build(steps=3)):
        for strict in (True, False):
            with pytest.raises(ad.ResumeError, match="balance"):
                other.iterate(state=state, strict=strict)


def test_another_number_of_ranks_continues_between_two_groups() -> None:
    def batches(ranks: int, rank: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(60).shuffle(seed=3).balance(lambda x: x % 7, 2, ranks, rank, steps=2).batch(2)

    def stopped(steps: list[int]) -> tuple[list[int], dict[str, Any]]:
        read, states = list[int](), list[dict[str, Any]]()
        for rank, most in enumerate(steps):
            with batches(len(steps), rank).iterate() as elements:
                read += [int(x) for _ in range(most) for x in next(elements)]
                states.append(elements.state_dict())
        return read, merge_states(states)

    for steps in ([4, 4, 4], [0, 0], [10, 10, 10]):
        for ranks in (1, 2, 4):
            read, merged = stopped(steps)
            for rank in range(ranks):
                read += [int(x) for batch in batches(ranks, rank).iterate(state=merged) for x in batch]
            assert sorted(read) == [*range(60)]
    for steps in ([3, 3, 3], [4, 2, 4]):
        _, merged = stopped(steps)
        with pytest.raises(ad.ResumeError, match="all ranks saved after a multiple of 2 steps"):
            batches(2, 0).iterate(state=merged)

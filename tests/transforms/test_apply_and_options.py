from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_transform


def test_apply_gives_the_dataset_to_a_function() -> None:
    check_transform(lambda ds: ds.apply(lambda d: d.skip(1).take(2)), lambda items: items[1:3])


def test_apply_refuses_what_returns_no_dataset() -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.range(3).apply(list)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("wrong", [{"placement": "moon"}, {"placement": 3}])
def test_wrong_options_are_refused_where_they_are_given(wrong: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match="placement"):
        ad.Options(**wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "1 GB", True])
def test_a_budget_is_a_number_of_bytes(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"Options\(ram_budget=\) must be a number of bytes"):
        ad.Options(ram_budget=wrong)
    with pytest.raises(ad.PlanError, match=r"Options\(reorder=\) must be True, False or None"):
        ad.Options(reorder=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", ["thread", "current"])
def test_the_smallest_budget_lets_everything_through(placement: Any) -> None:
    ds = ad.Dataset.range(6).interleave(lambda x: ad.Dataset.range(x, 90, 6), 3, num_parallel_calls=ad.AUTOTUNE)
    ds = ds.map(lambda x: [x] * 1000, num_parallel_calls=3).map(len, ad.AUTOTUNE).batch(4).prefetch().unbatch()
    assert sum(ds.with_options(ad.Options(ram_budget=1, placement=placement))) == 90_000


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError):
        ad.Options(speed=11)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        ad.Options().speed = 11  # type: ignore[attr-defined]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ad.PlanError, match="no_such_rule"):
        list(ad.Dataset.range(1).with_options(ad.Options(disabled_rules=("no_such_rule",))))


def test_an_unknown_rule_is_refused_where_a_dataset_gets_it() -> None:
    with pytest.raises(ad.PlanError, match="no rule 'nope'; rules are filter_pushdown, .*take_pushdown"):
        ad.Dataset.range(1).with_options(ad.Options(disabled_rules=("nope",)))


def test_options_that_are_asked_for_cannot_be_changed() -> None:
    given = ad.Options()
    given.deterministic = False
    ds = ad.Dataset.range(3).with_options(given)
    seen = ds.options()
    with pytest.raises(ad.PlanError, match=r"deterministic has no effect .*with_options\(Options\(deterministic="):
        seen.deterministic = True
    told = ad.Options(**dataclasses.asdict(seen))
    for own in (
        copy.copy(seen),
        copy.deepcopy(seen),
        pickle.loads(pickle.dumps(seen)),
        dataclasses.replace(seen),
        told,
    ):
        assert own == seen
        own.deterministic = True
    given.deterministic = True
    assert ds.options() == seen == ad.Options(deterministic=False)
    merged = seen.merge(ad.Options(autotune=False))
    merged.deterministic = True
    assert ds.with_options(merged).options() == ad.Options(deterministic=True, autotune=False)


def test_what_is_set_later_wins_field_by_field() -> None:
    ds = ad.Dataset.range(3).with_options(ad.Options(placement="current", optimize=False))
    ds = ds.map(lambda x: x).with_options(ad.Options(optimize=True))
    assert (ds.options().placement, ds.options().optimize) == ("current", True)
    assert list(ds) == [0, 1, 2]


def test_options_of_joined_datasets_are_joined() -> None:
    one = ad.Dataset.range(3).with_options(ad.Options(placement="current"))
    two = ad.Dataset.range(3).with_options(ad.Options(optimize=False))
    both = ad.Dataset.zip(one, two).options()
    assert (both.placement, both.optimize) == ("current", False)


def test_a_dataset_is_a_description() -> None:
    """Transforming one changes nothing in it, and starts nothing."""
    calls: list[int] = []
    ds = ad.Dataset.range(3)
    ds.map(calls.append).repeat().prefetch(10)
    assert list(ds) == [0, 1, 2]
    assert calls == []


def test_truth_len_and_cardinality() -> None:
    assert bool(ad.Dataset.range(0))
    assert len(ad.Dataset.range(3)) == 3
    with pytest.raises(TypeError, match="infinite"):
        len(ad.Dataset.counter())
    with pytest.raises(TypeError, match="unknown"):
        len(ad.Dataset.range(3).filter(bool))


def test_explain_shows_the_plan_and_each_rewrite() -> None:
    text = ad.Dataset.range(10).repeat(1).shuffle(3).repeat().explain()
    assert "range(10)" in text
    assert "noop_elimination" in text
    assert "shuffle_and_repeat_fusion" in text
    assert "inject_prefetch" in text


def test_subclassing_as_the_guide_does() -> None:
    class Artificial(ad.Dataset):
        def __new__(cls, count: int = 3) -> Any:
            return ad.Dataset.from_generator(lambda: iter(range(count)))

    assert list(Artificial()) == [0, 1, 2]
    assert list(ad.Dataset.range(2).interleave(lambda _: Artificial(2))) == [0, 0, 1, 1]


def test_a_pipe_is_the_same_as_apply() -> None:
    ds = ad.Dataset.range(4) | (lambda ds: ds.map(lambda x: x * 2)) | (lambda ds: ds.batch(2))
    assert [batch.tolist() for batch in ds] == [[0, 2], [4, 6]]
    with pytest.raises(ad.PlanError, match="Dataset"):
        ad.Dataset.range(4) | (lambda ds: list(ds))

"""Plans before and after the rewrites, as pictures."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator
from asyncdata.graph.node import Node
from asyncdata.planning import optimizer as module
from asyncdata.planning.optimizer import RULES, optimize


def inc(x: int) -> int:
    return x + 1


def double(x: int) -> int:
    return 2 * x


def is_even(x: int) -> bool:
    return x % 2 == 0


async def fetch(x: int) -> int:
    return x


def plan(ds: ad.Dataset[int], **options: object) -> str:
    kept = ad.Options(disabled_rules=("inject_prefetch",)).merge(ad.Options(**options))  # type: ignore[arg-type]
    return str(optimize(ds.plan, kept).plan)


TUNED = ", num_parallel_calls=AUTOTUNE, executor=AUTOTUNE"
R = ad.Dataset.range(10)


@pytest.mark.parametrize(
    ("ds", "picture"),
    [
        (R.take(-1).skip(0).repeat(1).prefetch(0), "range(10)"),
        (
            R.map(inc, 2, deterministic=False).shard(2, 1),
            "range(10) → shard(2, index=1) → map(inc, num_parallel_calls=2)",
        ),
        (R.map(inc).map(double), "range(10) → map(inc → double)"),
        (R.map(inc).map(double).map(inc), "range(10) → map(inc → double → inc)"),
        (R.filter(is_even).map(inc), "range(10) → map_and_filter(filter(is_even) → map(inc))"),
        (R.filter(is_even).filter(is_even), "range(10) → map_and_filter(filter(is_even) → filter(is_even))"),
        (
            R.map(inc).map(double).filter(is_even).map(inc),
            "range(10) → map_and_filter(map(inc) → map(double) → filter(is_even) → map(inc))",
        ),
        (R.map(inc, 2).filter(is_even), "range(10) → map(inc, num_parallel_calls=2) → filter(is_even)"),
        (
            R.map(inc, 2).filter(is_even, pure=True),
            "range(10) → map_and_filter(map(inc) → filter(is_even), num_parallel_calls=2)",
        ),
        (R.map(inc, 2).map(double, pure=True), "range(10) → map(inc → double, num_parallel_calls=2)"),
        (
            R.map(fetch, 2).map(double, pure=True),
            f"range(10) → map(fetch, num_parallel_calls=2) → map(double{TUNED})",
        ),
        (R.map(inc, vectorized=True).batch(2), "range(10) → map_and_batch(map(inc), 2)"),
        (
            R.filter(is_even)
            .map(inc, vectorized=True, pure=True)
            .map(double, vectorized=True, pure=True)
            .batch(2, True),
            "range(10) → filter(is_even) → map_and_batch(map(inc) → map(double), 2, drop_remainder=True)",
        ),
        (R.map(inc, 2, vectorized=True).batch(2), "range(10) → map(inc, num_parallel_calls=2, batch=2) → batch(2)"),
        (R.map(inc, 2).batch(3), "range(10) → map(inc, num_parallel_calls=2, batch=3) → batch(3)"),
        (R.map(inc, 2).map(inc).batch(3), "range(10) → map(inc, num_parallel_calls=2) → map(inc) → batch(3)"),
        (R.map(fetch, 2).batch(3), "range(10) → map(fetch, num_parallel_calls=2) → batch(3)"),
        (R.map(inc, 2).padded_batch(3), "range(10) → map(inc, num_parallel_calls=2) → padded_batch(3)"),
        (R.map(inc, vectorized=True).padded_batch(2), "range(10) → map(inc) → padded_batch(2)"),
        (R.map(inc, pure=True), f"range(10) → map(inc{TUNED})"),
        (
            R.map(inc, pure=True).filter(is_even, pure=True).take(2),
            f"range(10) → map_and_filter(map(inc) → filter(is_even){TUNED}) → take(2)",
        ),
        (
            R.map(inc, pure=True).map(double),
            f"range(10) → map(inc{TUNED}) → map(double)",
        ),
        (
            R.map(inc).map(double, pure=True),
            f"range(10) → map(inc) → map(double{TUNED})",
        ),
        (R.map(inc, pure=True, executor="inline").take(3), "range(10) → take(3) → map(inc)"),
        (R.map(fetch, pure=True).skip(3), "range(10) → skip(3) → map(fetch)"),
        (R.map(inc, batch=4, pure=True).skip(3), "range(10) → skip(3) → map(inc, batch=4)"),
        (R.filter(is_even).map(fetch), "range(10) → filter(is_even) → map(fetch)"),
        (R.map(inc).map(fetch), "range(10) → map(inc) → map(fetch)"),
        (
            R.map(inc, num_parallel_calls=2).map(double, num_parallel_calls=2),
            "range(10) → map(inc, num_parallel_calls=2) → map(double, num_parallel_calls=2)",
        ),
        (R.map(inc, 2).take(3), "range(10) → take(3) → map(inc, num_parallel_calls=2)"),
        (R.map(inc, ad.AUTOTUNE).skip(3), "range(10) → skip(3) → map(inc, num_parallel_calls=AUTOTUNE)"),
        (R.map(inc, 2).shard(2, 1), "range(10) → shard(2, index=1) → map(inc, num_parallel_calls=2)"),
        (R.map(inc, 2).take(1).batch(2), "range(10) → take(1) → map(inc, num_parallel_calls=2, batch=2) → batch(2)"),
        (R.map(inc).take(3), "range(10) → map(inc) → take(3)"),
        (
            R.map(inc, 2, deterministic=False).take(3),
            "range(10) → map(inc, num_parallel_calls=2, deterministic=False) → take(3)",
        ),
        (R.shuffle(4, seed=1).take(2), "range(10) → shuffle(4) → take(2)"),
        (ad.Dataset.zip(R.skip(0), R.map(inc)), "zip(range(10), range(10) → map(inc))"),
    ],
)
def test_picture(ds: ad.Dataset[int], picture: str) -> None:
    assert plan(ds) == picture


FIELDS = ad.Dataset.from_iterable([{"id": number, "size": 0} for number in range(10)])


def grow(element: dict[str, int]) -> dict[str, int]:
    return {**element, "size": element["size"] + 1}


def grow_id(element: dict[str, int]) -> dict[str, int]:
    return {**element, "id": element["id"] + 1}


async def grow_awaited(element: dict[str, int]) -> dict[str, int]:
    return grow(element)


def batches(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "size": element["size"] + 1}


EVEN = "filter(is_even, reads='id')"


@pytest.mark.parametrize(
    ("ds", "picture"),
    [
        (FIELDS.map(grow, 2, keeps="id").filter(is_even, reads="id"), f"{EVEN} → map(grow, num_parallel_calls=2)"),
        (FIELDS.map(grow, 2, keeps="id").prefetch(3).filter(is_even, reads="id").prefetch(3), None),
        (
            FIELDS.map(dict, 2, keeps=("size", "id")).filter(lambda a, b: a < b, reads=("id", "size")),
            "filter(<lambda>, reads=('id', 'size')) → map(dict, num_parallel_calls=2)",
        ),
        (FIELDS.map(grow_awaited, keeps="id", pure=True).filter(is_even, reads="id"), f"{EVEN} → map(grow_awaited)"),
        (
            FIELDS.map(batches, batch=4, keeps="id", pure=True).filter(is_even, reads="id"),
            f"{EVEN} → map(batches, batch=4)",
        ),
        # what it does not pass
        (FIELDS.map(grow, 2).filter(is_even, reads="id"), f"map(grow, num_parallel_calls=2) → {EVEN}"),
        (FIELDS.map(grow, 2, keeps="id").filter(bool), "map(grow, num_parallel_calls=2) → filter(bool)"),
        (
            FIELDS.map(grow, 2, keeps="id").filter(lambda a, b: a < b, reads=("id", "size")),
            "map(grow, num_parallel_calls=2) → filter(<lambda>, reads=('id', 'size'))",
        ),
        (
            FIELDS.map(grow, 2, deterministic=False, keeps="id").filter(is_even, reads="id"),
            f"map(grow, num_parallel_calls=2, deterministic=False) → {EVEN}",
        ),
        (
            FIELDS.map(grow, 2, keeps="id").enumerate().map(lambda i, x: x).filter(is_even, reads="id"),
            f"map(grow, num_parallel_calls=2) → enumerate() → map_and_filter(map(<lambda>) → {EVEN})",
        ),
        (FIELDS.shuffle(3).filter(is_even, reads="id"), f"shuffle(3) → {EVEN}"),
        # several of them, and of others
        (
            FIELDS.map(grow, 2, keeps="id").filter(is_even, pure=True, reads="size").filter(is_even, reads="id"),
            f"{EVEN} → map_and_filter(map(grow) → filter(is_even, reads='size'), num_parallel_calls=2)",
        ),
        (
            FIELDS.map(grow, 2, keeps="id").filter(is_even, reads="size").filter(is_even, reads="id"),
            f"map(grow, num_parallel_calls=2) → map_and_filter(filter(is_even, reads='size') → {EVEN})",
        ),
        (
            FIELDS.map(grow, 2, keeps="id").filter(is_even, reads="id").filter(is_even, reads="id"),
            f"map_and_filter({EVEN} → {EVEN}) → map(grow, num_parallel_calls=2)",
        ),
        (
            FIELDS.map(grow_id, 2, keeps="size")
            .map(grow, keeps="id", pure=True)
            .filter(is_even, pure=True, reads="id"),
            f"map_and_filter(map(grow_id) → {EVEN} → map(grow), num_parallel_calls=2)",
        ),
        (
            FIELDS.map(grow, 2, keeps="id").shuffle(3).filter(is_even, reads="id"),
            f"shuffle(3) → {EVEN} → map(grow, num_parallel_calls=2)",
        ),
        # maps that shrink
        (FIELDS.shuffle(3).map(grow, 2, shrinks=True), "map(grow, num_parallel_calls=2) → shuffle(3)"),
        (FIELDS.map(grow, 2, shrinks=True).shuffle(3), "map(grow, num_parallel_calls=2) → shuffle(3)"),
        (
            FIELDS.shuffle(3).prefetch(2).map(batches, 2, batch=4, shrinks=True),
            "map(batches, batch=4, num_parallel_calls=2) → shuffle(3) → prefetch(2)",
        ),
        (
            FIELDS.shuffle(3).map(grow, 2).map(grow, 2, shrinks=True),
            "shuffle(3) → map(grow, num_parallel_calls=2) → map(grow, num_parallel_calls=2)",
        ),
        (
            FIELDS.shuffle(3).filter(is_even, reads="id").map(grow, 2, shrinks=True),
            f"shuffle(3) → {EVEN} → map(grow, num_parallel_calls=2)",
        ),
        (
            FIELDS.shuffle(3).map(grow, 2, deterministic=False, shrinks=True),
            "shuffle(3) → map(grow, num_parallel_calls=2, deterministic=False)",
        ),
    ],
)
def test_what_is_reordered_when_asked_for(ds: ad.Dataset[Any], picture: str | None) -> None:
    first = str(FIELDS.plan)
    if picture is None:
        picture = f"{EVEN} → map(grow, num_parallel_calls=2) → prefetch(3) → prefetch(3)"
    assert plan(ds, reorder=True) == f"{first} → {picture}"
    ran, asked = list(ds), list(ds.with_options(ad.Options(reorder=True)))
    assert sorted(map(repr, ran)) == sorted(map(repr, asked))
    fired = {rewrite.rule for rewrite in optimize(ds.plan, ad.Options()).story}
    assert not fired & {"filter_pushdown", "shrink_pushdown"}


def test_a_map_that_shrinks_comes_before_the_buffer_of_a_shuffle_once() -> None:
    """Declared or not, no rule undoes what another one did."""
    ds = FIELDS.map(grow, 2).map(grow, 2, shrinks=True).shuffle(3).map(grow, 2, shrinks=True).map(grow, 2).shuffle(3)
    for reorder in (False, True):
        assert len(optimize(ds.plan, ad.Options(reorder=reorder)).story) < 9


def test_long_plans_are_laid_out_over_lines() -> None:
    def source(size: int) -> ad.Dataset[int]:
        return ad.Dataset.range(size).map(inc, num_parallel_calls=2).filter(is_even).shuffle(1000).take(10**9)

    ds = source(10**9).concatenate(source(10**8).map(inc, 3).map(inc, 4).map(inc, 5)).concatenate(source(7)).batch(2)
    text = ds.explain()
    assert max(map(len, text.splitlines())) <= 120
    lines = text.partition("runs as")[0].splitlines()
    assert [line for line in lines if "range(" in line] == [line for line in lines if "→ filter" in line]
    assert lines[0] == "plan       concatenate("
    assert lines[-1] == "           ) → batch(2)"
    joined = " ".join(text.partition("runs as")[0].split()[1:]).replace("( ", "(").replace(" )", ")")
    assert joined == str(ds.plan)
    assert text.endswith("\n  inject_prefetch  … → batch(2)  ⇒  … → batch(2) → prefetch(AUTOTUNE)")


def test_explain_tells_what_was_reordered() -> None:
    ds = FIELDS.map(grow, 2, keeps="id").filter(is_even, reads="id").with_options(ad.Options(reorder=True))
    before, after = f"map(grow, num_parallel_calls=2) → {EVEN}", f"{EVEN} → map(grow, num_parallel_calls=2)"
    change = f"  filter_pushdown  {FIELDS.plan} → {before}\n{19 * ' '}⇒  {FIELDS.plan} → {after}\n"
    assert change in ds.explain()


def test_what_a_filter_drops_is_not_mapped_and_cannot_fail_there() -> None:
    calls: list[int] = []

    def reciprocal(element: dict[str, int]) -> dict[str, float]:
        calls.append(element["id"])
        return {"id": element["id"], "size": 1 / element["id"]}

    ds = FIELDS.map(reciprocal, pure=True, executor="inline", keeps="id").filter(bool, reads="id")
    with pytest.raises(ZeroDivisionError):
        list(ds)
    calls.clear()
    assert [element["id"] for element in ds.with_options(ad.Options(reorder=True))] == [*range(1, 10)] == calls


def test_shuffle_and_repeat_become_one() -> None:
    assert plan(R.shuffle(4, seed=1).repeat(2)) == "range(10) → shuffle_and_repeat(4, count=2)"


def test_a_prefetch_ends_the_plan_once() -> None:
    batches = R.batch(2)
    for ds, picture in [
        (R, "range(10) → prefetch(AUTOTUNE)"),
        (R.prefetch(3), "range(10) → prefetch(3)"),
        (batches.unbatch(), "range(10) → batch(2) → prefetch(1) → unbatch() → prefetch(AUTOTUNE)"),
        (batches.prefetch(3).unbatch(), "range(10) → batch(2) → prefetch(3) → unbatch() → prefetch(AUTOTUNE)"),
    ]:
        assert str(optimize(ds.plan, ad.Options()).plan) == picture
        device = str(optimize(ds.prefetch_to_device(Accelerator()).plan, ad.Options()).plan)
        assert device.startswith(f"{picture} → prefetch_to_device(")


def test_the_option_for_order_reaches_maps_that_do_not_say() -> None:
    parallel = R.map(inc, 2).map(double, 2, deterministic=True)
    assert plan(parallel, deterministic=False) == (
        "range(10) → map(inc, num_parallel_calls=2, deterministic=False) → map(double, num_parallel_calls=2)"
    )


def test_nothing_is_rewritten_when_switched_off() -> None:
    ds = R.map(inc).map(double).skip(0)
    optimized = optimize(ds.plan, ad.Options(optimize=False))
    assert (str(optimized.plan), optimized.story) == (str(ds.plan), [])


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_each_rule_can_be_switched_off_by_name(rule: str) -> None:
    ds = (
        R.shuffle(2, seed=0)
        .map(inc, 2, shrinks=True)
        .map(inc, pure=True)
        .filter(is_even)
        .map(inc)
        .map(double)
        .skip(0)
        .map(inc, 2)
        .map(inc)
        .map(inc)
        .shuffle(2, seed=0)
        .repeat(2)
    )
    ds = ds.map(inc, 2).take(1).map(inc, 2).skip(1).map(inc, 2).shard(2, 0)
    ds = ds.map(inc, 2).shuffle(2, seed=0).map(inc, 2, keeps="x").filter(is_even, reads="x")
    ds = ds.map(inc, vectorized=True).batch(2).map(inc, 2).batch(2)
    fired = {rewrite.rule for rewrite in optimize(ds.plan, ad.Options(reorder=True)).story}
    assert rule in fired
    fired = {rewrite.rule for rewrite in optimize(ds.plan, ad.Options(disabled_rules=(rule,), reorder=True)).story}
    assert rule not in fired


def test_a_rule_that_does_not_exist_is_named() -> None:
    with pytest.raises(ad.PlanError, match="no rule 'make_fast'"):
        list(R.with_options(ad.Options(disabled_rules=("make_fast",))))


def test_explain_tells_what_each_rewrite_did() -> None:
    text = R.map(inc, 2).take(2).explain()
    assert "plan       range(10) → map(inc, num_parallel_calls=2) → take(2)" in text
    assert "runs as    range(10) → take(2) → map(inc, num_parallel_calls=2) → prefetch(AUTOTUNE)" in text
    assert "take_pushdown" in text
    assert "inject_prefetch" in text


def squares() -> Iterator[int]:
    yield from (x * x for x in range(5))


class Numbers:
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))

    async def __aiter__(self) -> AsyncIterator[int]:
        yield 1


class Offset(Numbers):
    def state_dict(self) -> int:
        return 0

    def load_state_dict(self, state: int) -> None: ...


UNLESS = "is run again up to the position, unless its iterator is Stateful"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: R.shuffle(3).batch(2), ["exact"]),
        (lambda: ad.Dataset.from_iterable([1, 2]).repeat(), ["exact"]),
        (lambda: ad.TFRecordDataset("a.tfrecord"), ["exact"]),
        (lambda: ad.Dataset.from_generator(squares), ["from_generator(squares) is run again up to the position"]),
        (lambda: ad.Dataset.from_generator(lambda: iter([])), [f"from_generator(<lambda>) {UNLESS}"]),
        (lambda: ad.Dataset.from_generator(Offset), ["from_generator(Offset) resumes at its own offset"]),
        (lambda: ad.Dataset.from_generator(Numbers), [f"from_generator(Numbers) {UNLESS}"]),
        (lambda: ad.Dataset.from_iterable({1: 2}), ["from_iterable(dict) is run again up to the position"]),
        (lambda: ad.Dataset.from_iterable(squares()), ["from_iterable(generator) is run again up to the position"]),
        (lambda: ad.Dataset.from_iterable(Numbers()), [f"from_iterable(Numbers) {UNLESS}"]),
        (lambda: ad.Dataset.from_iterable(Offset()).batch(2), ["from_iterable(Offset) resumes at its own offset"]),
        (
            lambda: ad.Dataset.from_async_iterable(Numbers()),
            ["from_async_iterable(Numbers) is run again up to the position"],
        ),
        (lambda: ad.Dataset.from_async_iterable(Offset()), ["from_async_iterable(Offset) resumes at its own offset"]),
        (
            lambda: ad.Dataset.zip(
                ad.TFRecordDataset("a.tfrecord", "GZIP").cache(), ad.Dataset.from_generator(squares)
            ),
            [
                "TFRecordDataset(a.tfrecord) is decompressed from its beginning",
                "cache() is filled again",
                "from_generator(squares) is run again up to the position",
            ],
        ),
    ],
)
def test_explain_says_how_a_state_of_the_pipeline_goes_on(build: Any, said: list[str]) -> None:
    lines = build().explain().splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("resume     "))
    end = next(place for place, line in enumerate(lines) if line.startswith("rewrites"))
    assert [line[11:] for line in lines[place:end]] == said
    assert {line[:11] for line in lines[place + 1 : end]} <= {11 * " "}


def test_no_plan_waits_for_the_garbage_collector() -> None:
    ds = ad.Dataset.range(9).map(inc).skip(0)
    living = weakref.ref(ds.plan)
    gc.disable()
    try:
        assert optimize(ds.plan, ad.Options()).story
        del ds
        assert living() is None
    finally:
        gc.enable()


def test_what_was_sequential_stays_in_order_when_it_is_parallel() -> None:
    """`deterministic=False` says something of parallel calls alone."""
    plan = optimize(R.map(inc, deterministic=False, pure=True).plan, ad.Options()).plan
    assert plan.in_order


def test_a_plan_is_rewritten_once_for_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Node] = []
    whole = module.optimize
    monkeypatch.setattr(module, "optimize", lambda plan, options: [seen.append(plan), whole(plan, options)][1])
    ds = ad.Dataset.range(9).shuffle(9).map(inc)
    first = list(ds)
    with ds.iterate() as elements:
        state = elements.state_dict()
    assert list(ds) != first
    assert seen == [ds.plan]
    again = ad.Dataset.range(9).shuffle(9).map(inc)  # which gets the seed of the state, and so another plan
    assert list(again) != list(again.iterate(state=state))
    assert len(seen) == 3
    assert list(ds.with_options(ad.Options(optimize=False)).take(0)) == []
    assert len(seen) == 4


def test_too_many_transformations_in_a_row_are_an_error_that_says_what_to_do() -> None:
    ds = ad.Dataset.range(3)
    for _ in range(1500):
        ds = ds.map(abs)
    with pytest.raises(ad.PlanError, match="1501 steps, too many in a row: call several functions in one map"):
        list(ds)

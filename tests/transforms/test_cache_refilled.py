"""cache() in memory: what another process fills it with is what it held when the state was saved, or an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from tests.offset_stream import COUNT, OffsetStream, out_of_turn
from tests.reference import plain


def unordered() -> ad.Dataset[Any]:
    return ad.Dataset.range(COUNT).map(out_of_turn, num_parallel_calls=4, deterministic=False)


STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "alone": lambda ds: ds,
    "shuffle": lambda ds: ds.shuffle(5, seed=1),
    "shuffle of all": lambda ds: ds.shuffle(2 * COUNT, seed=1),
}


def begun(ds: ad.Dataset[Any], epoch: int) -> tuple[Any, list[Any]]:
    """A state behind some elements of an epoch, and what follows."""
    for _ in range(epoch):
        list(ds)
    with ds.iterate() as elements:
        for _ in range(3):
            next(elements)
        state = json.loads(json.dumps(elements.state_dict()))
        return state, [repr(plain(element)) for element in elements]


def resumed(ds: ad.Dataset[Any], state: Any) -> list[Any]:
    return [repr(plain(element)) for element in ds.iterate(state=state)]


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_what_came_without_order_is_the_same_again(step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]) -> None:
    state, rest = begun(step(unordered().cache()), 1)
    for _ in range(3):
        assert resumed(step(unordered().cache()), state) == rest


VARYING: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "batches": lambda: unordered().batch(4),
    "numbered": lambda: unordered().enumerate(),
    "zipped": lambda: ad.Dataset.zip(unordered(), ad.Dataset.range(COUNT)),
    "some": lambda: unordered().skip(6),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("make", VARYING.values(), ids=VARYING)
def test_what_is_filled_again_with_other_elements_is_refused(
    make: Callable[[], ad.Dataset[Any]], step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]
) -> None:
    ds = step(make().cache())
    state, rest = begun(ds, 1)
    refused = 0
    for _ in range(5):
        try:
            assert resumed(step(make().cache()), state) == rest
        except ad.ResumeError as error:
            assert "had other elements" in str(error)  # noqa: PT017
            refused += 1
    assert refused
    assert resumed(ds, state) == rest  # which still holds them


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("step", [STEPS["alone"], STEPS["shuffle"]])
def test_a_stream_is_read_again_from_where_it_began(
    monkeypatch: pytest.MonkeyPatch, epoch: int, step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]
) -> None:
    def build() -> ad.Dataset[Any]:
        return step(ad.Dataset.from_generator(OffsetStream).cache())

    state, rest = begun(build(), epoch)
    monkeypatch.setattr(OffsetStream, "begin", 7)
    ds = build()
    assert resumed(ds, state) == rest
    assert len(list(ds)) == COUNT


READ_AGAIN: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "unique": lambda ds: ds.unique(),
    "scan of objects": lambda ds: ds.scan(object(), lambda state, x: (state, x)),
    "group_by_reducer": lambda ds: ds.group_by_reducer(
        lambda x: x % 10, ad.Reducer(lambda _: (), lambda found, x: (*found, x), lambda *found: found)
    ),
}


@pytest.mark.parametrize("step", READ_AGAIN.values(), ids=READ_AGAIN)
def test_steps_that_read_a_stream_again_begin_where_it_began(
    monkeypatch: pytest.MonkeyPatch, step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]
) -> None:
    state, rest = begun(step(ad.Dataset.from_generator(OffsetStream)), 0)
    monkeypatch.setattr(OffsetStream, "begin", 7)
    assert resumed(step(ad.Dataset.from_generator(OffsetStream)), state) == rest


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_channel_is_not_taken_for_another(epoch: int, step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]) -> None:
    def build(first: int) -> ad.Dataset[Any]:
        channel = ad.Channel()
        channel.send_nowait(range(first, first + COUNT))
        channel.close()
        return step(ad.Dataset.from_channel(channel).cache())

    ds = build(0)
    state, rest = begun(ds, epoch)
    with pytest.raises(ad.ResumeError, match="does not store items|had other elements"):
        resumed(build(100), state)
    if epoch:
        assert resumed(ds, state) == rest


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_above_a_file_that_was_written_again(
    tmp_path: Path, step: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]
) -> None:
    path = tmp_path / "kept"

    def build() -> ad.Dataset[Any]:
        return step(ad.Dataset.range(COUNT).shuffle(COUNT).cache(path).cache())

    list(build())
    for epoch in (0, 1):
        ds = build()
        state, rest = begun(ds, epoch)
        assert resumed(build(), state) == rest
        whole = path.read_bytes()
        path.unlink()
        list(build())
        with pytest.raises(ad.ResumeError, match="written again|had other elements"):
            resumed(build(), state)
        path.write_bytes(whole)

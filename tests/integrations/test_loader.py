"""Loaders: epochs one after the other, and a state on the loader from which another one goes on exactly."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.integrations.loader import Loader
from asyncdata.iterator import state_before_latest
from tests.marks import first_by_default

Make = Callable[[], ad.Dataset[Any]]

STEPS = 5
"""Batches of an epoch."""


def sized() -> ad.Dataset[Any]:
    return ad.Dataset.range(14).shuffle(seed=1).batch(3)


def unsized() -> ad.Dataset[Any]:
    return ad.Dataset.range(28).filter(lambda x: x % 2 == 0).shuffle(5, seed=1).batch(3)


def in_parallel() -> ad.Dataset[Any]:
    return ad.Dataset.range(14).shuffle(seed=1).map(abs, num_parallel_calls=2).batch(3)


EACH = pytest.mark.parametrize("make", [sized, unsized, in_parallel])


def lists(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def epochs_of(make: Make, count: int = 4) -> list[list[list[int]]]:
    ds = make()
    return [lists(ds) for _ in range(count)]


def stopped_after(make: Make, steps: int, epoch: int = 0) -> dict[str, Any]:
    """Return the state of a loader after some batches of an epoch, as a file would keep it."""
    loader = Loader(make())
    for _ in range(epoch):
        list(loader)
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    return loader.state_dict()


@EACH
def test_each_iteration_is_an_epoch(make: Make) -> None:
    loader, epochs = Loader(make()), epochs_of(make)
    assert [lists(loader) for _ in range(4)] == epochs
    assert loader.epoch == 4


@EACH
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_loader_goes_on_at_any_batch_and_with_the_epochs_after_it(make: Make, epoch: int) -> None:
    epochs = epochs_of(make)
    for steps in range(STEPS):
        loader = Loader(make())
        loader.load_state_dict(stopped_after(make, steps, epoch))
        assert loader.epoch == epoch
        assert lists(loader) == epochs[epoch][steps:]
        assert lists(loader) == epochs[epoch + 1]
        assert loader.epoch == epoch + 2


@EACH
def test_a_state_after_the_last_batch_goes_on_with_the_next_epoch(make: Make) -> None:
    """As trainers save it that know the length, and never ask for a batch after the last."""
    loader = Loader(make())
    loader.load_state_dict(stopped_after(make, STEPS))
    assert lists(loader) == epochs_of(make)[1]
    assert loader.epoch == 2


@EACH
def test_a_state_of_the_end_goes_on_with_the_next_epoch(make: Make) -> None:
    ended = Loader(make())
    list(ended)
    loader = Loader(make())
    loader.load_state_dict(ended.state_dict())
    assert loader.epoch == 1
    assert lists(loader) == epochs_of(make)[1]


@EACH
@pytest.mark.parametrize("steps", range(STEPS + 1))
def test_a_loop_over_epochs_goes_on_as_if_it_had_not_stopped(make: Make, steps: int) -> None:
    """Also where nobody knew that the last batch was the last: its epoch is then empty."""
    loader, found = Loader(make()), []
    loader.load_state_dict(stopped_after(make, steps))
    for epoch in range(loader.epoch, 3):
        loader.set_epoch(epoch)
        found.extend(lists(loader))
    first, *others = epochs_of(make, 3)
    assert found == [*first[steps:], *others[0], *others[1]]


@EACH
def test_an_async_loop_goes_on_too(make: Make) -> None:
    async def body() -> list[list[int]]:
        loader = Loader(make())
        async for _ in loader:
            break
        other = Loader(make())
        other.load_state_dict(loader.state_dict())
        await loader.aclose()
        found = [batch.tolist() async for batch in other]
        return [*found, *[batch.tolist() async for batch in other]]

    first, second = epochs_of(make, 2)
    assert asyncio.run(body()) == [*first[1:], *second]


@pytest.mark.parametrize("placement", first_by_default(["current", "process"]))
def test_a_loader_goes_on_in_each_placement(placement: Any) -> None:
    def make() -> ad.Dataset[Any]:
        return unsized().with_options(ad.Options(placement=placement))

    async def body(state: dict[str, Any]) -> list[list[int]]:
        with Loader(make()) as loader:
            loader.load_state_dict(state)
            found = [batch.tolist() async for batch in loader]
            return [*found, *[batch.tolist() async for batch in loader]]

    first, second, third = epochs_of(make, 3)
    assert [first, second, third] == epochs_of(unsized, 3)
    for steps in range(STEPS):
        assert asyncio.run(body(stopped_after(make, steps))) == [*first[steps:], *second]
    assert asyncio.run(body(stopped_after(make, STEPS))) == [*second, *third]


def test_the_state_from_before_the_latest_batch_can_be_asked_for() -> None:
    """Of a trainer that has read one batch ahead; at the end there is none ahead."""
    for make in (sized, unsized, in_parallel):
        with make().iterate() as batches:
            for step in range(STEPS):
                next(batches)
                assert lists(make().iterate(state=state_before_latest(batches))) == epochs_of(make)[0][step:]
            assert next(batches, None) is None
            assert state_before_latest(batches) == batches.state_dict()


def test_an_async_loop_goes_on_after_the_last_batch() -> None:
    async def body() -> list[list[int]]:
        loader = Loader(unsized())
        loader.load_state_dict(stopped_after(unsized, STEPS))
        return [batch.tolist() async for batch in loader]

    assert asyncio.run(body()) == epochs_of(unsized)[1]


def test_an_iteration_of_which_nothing_was_read_is_no_epoch() -> None:
    loader = Loader(sized())
    iter(loader)
    aiter(loader)
    assert lists(loader) == epochs_of(sized)[0]


def test_a_loader_that_was_made_is_no_epoch_of_its_dataset() -> None:
    ds = sized()
    loader = Loader(ds)
    assert len(loader) == STEPS
    assert loader
    assert lists(ds) == epochs_of(sized)[0]


def test_an_epoch_that_was_left_early_counts() -> None:
    loader, epochs = Loader(sized()), epochs_of(sized)
    for _ in loader:
        break
    assert loader.epoch == 0
    assert lists(loader) == epochs[1]


def test_an_epoch_that_was_looked_at_comes_whole_if_it_is_set() -> None:
    loader, epochs = Loader(sized()), epochs_of(sized)
    next(iter(loader))
    for epoch in range(loader.epoch, 2):
        loader.set_epoch(epoch)
        assert lists(loader) == epochs[epoch]


def test_setting_the_epoch_twice_keeps_the_place() -> None:
    loader = Loader(sized())
    loader.load_state_dict(stopped_after(sized, 2, epoch=1))
    loader.set_epoch(1)
    loader.set_epoch(1)
    assert lists(loader) == epochs_of(sized)[1][2:]


def test_another_epoch_than_that_of_the_state_begins_at_its_beginning() -> None:
    loader = Loader(sized())
    loader.load_state_dict(stopped_after(sized, 2))
    loader.set_epoch(3)
    assert loader.state_dict()["delivered"] == 0
    assert lists(loader) == epochs_of(sized)[3]


def test_the_length_is_that_of_a_whole_epoch_and_unknown_otherwise() -> None:
    loader = Loader(sized())
    loader.load_state_dict(stopped_after(sized, 2))
    assert len(loader) == STEPS
    with pytest.raises(TypeError, match="unknown before it has been read"):
        len(Loader(unsized()))


def test_a_state_goes_on_in_the_dataset_and_the_other_way_round() -> None:
    epoch = epochs_of(sized)[0]
    assert lists(sized().iterate(state=stopped_after(sized, 2))) == epoch[2:]
    with sized().iterate() as batches:
        next(batches)
        loader = Loader(sized())
        loader.load_state_dict(batches.state_dict())
    assert lists(loader) == epoch[1:]


def test_states_of_shares_are_merged_and_go_on() -> None:
    def share(count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.range(12).shard(count, index)

    loaders = [Loader(share(3, index)) for index in range(3)]
    for loader in loaders[:2]:
        next(iter(loader))
    merged = ad.checkpoint.merge_states([loader.state_dict() for loader in loaders])
    found = []
    for index in range(2):
        loader = Loader(share(2, index))
        loader.load_state_dict(merged)
        found += list(loader)
    assert sorted(found) == list(range(2, 12))


def test_states_of_all_ranks_in_one_are_merged_for_another_number_of_them() -> None:
    ds = ad.Dataset.range(12)
    loaders = [Loader(ds.shard(3, index)) for index in range(3)]
    for loader in loaders[:2]:
        next(iter(loader))
    loader = Loader(ds.shard(1, 0))
    loader.load_state_dict({"ranks": [loader.state_dict() for loader in loaders]})
    assert sorted(loader) == list(range(2, 12))
    for wrong in (None, {}, {"ranks": []}):
        with pytest.raises(ad.ResumeError):
            loader.load_state_dict(wrong)  # type: ignore[arg-type]


def test_a_state_of_another_pipeline_is_refused_and_leaves_the_loader_as_it_was() -> None:
    loader = Loader(sized())
    batches = iter(loader)
    next(batches)
    with pytest.raises(ad.AsyncDataError, match="another pipeline"):
        loader.load_state_dict(stopped_after(unsized, 1))
    assert lists(batches) == epochs_of(sized)[0][1:]


def test_a_shuffle_without_a_seed_goes_on_with_that_of_the_state() -> None:
    def unseeded() -> ad.Dataset[Any]:
        return ad.Dataset.range(100).shuffle().batch(50)

    stopped = Loader(unseeded())
    next(iter(stopped))
    loader = Loader(unseeded())
    loader.load_state_dict(stopped.state_dict())
    list(loader)
    assert lists(loader) == lists(stopped)


def test_an_error_is_raised_in_its_place_and_does_not_come_again() -> None:
    def make() -> ad.Dataset[Any]:
        return ad.Dataset.range(4).map(lambda x: 6 // (x - 1))

    loader = Loader(make())
    batches = iter(loader)
    assert next(batches) == -6
    with pytest.raises(ZeroDivisionError):
        next(batches)
    other = Loader(make())
    other.load_state_dict(loader.state_dict())
    assert list(other) == list(batches) == [6, 3]


def test_an_error_that_is_all_that_is_left_is_the_end_of_its_epoch() -> None:
    def make() -> ad.Dataset[Any]:
        return ad.Dataset.range(4).filter(lambda x: x != 1).map(lambda x: 6 // (x - 3))

    stopped = Loader(make())
    batches = iter(stopped)
    assert [next(batches), next(batches)] == [-2, -6]
    loader = Loader(make())
    loader.load_state_dict(stopped.state_dict())
    batches = iter(loader)
    with pytest.raises(ZeroDivisionError):
        next(batches)
    assert next(batches, None) is None
    assert loader.epoch == 1


@pytest.mark.parametrize(("method", "package"), [("loader", "torch"), ("to_torch", "torch"), ("to_keras", "keras")])
def test_a_package_that_is_not_installed_is_named(method: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ad.MissingDependencyError, match=rf"{method}\(\) needs {package}, .* 'asyncdata\[integrations\]'"
    ):
        getattr(sized(), method)()


def test_batches_are_converted_by_the_function_that_is_given() -> None:
    assert list(Loader(ad.Dataset.range(3), str)) == ["0", "1", "2"]


def test_a_loader_that_was_closed_still_tells_its_state() -> None:
    with Loader(sized()) as loader:
        next(iter(loader))
    assert loader.state_dict()["delivered"] == 1
    assert lists(loader) == epochs_of(sized)[1]


def test_a_loader_that_was_not_begun_can_be_copied() -> None:
    for made in (copy.copy(Loader(sized(), str)), pickle.loads(pickle.dumps(Loader(in_parallel(), str)))):
        assert len(list(made)) == STEPS


def test_the_number_of_no_epoch_is_refused_by_the_method_that_got_it() -> None:
    loader = Loader(ad.Dataset.range(4).batch(2))
    with pytest.raises(ad.PlanError, match=r"^set_epoch\(epoch=\)"):
        loader.set_epoch(-1)


def test_a_loader_tells_what_its_epoch_does() -> None:
    loader = Loader(sized())
    assert loader.stats().state == "not begun"
    batches = iter(loader)
    look = batches.monitor()
    assert len([*batches]) == STEPS
    assert [stats.elements for stats in (loader.stats(), batches.stats(), look(), loader.monitor()())] == [STEPS] * 4
    assert loader.bottleneck().loads == batches.bottleneck().loads
    next(iter(loader))
    assert (loader.stats().elements, batches.stats().elements) == (1, STEPS)


def test_an_argument_of_dataloader_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(
        TypeError, match=r"loader\(pin_memory=\) is DataLoader's; a pipeline has \.loader\(device='cuda'\)"
    ):
        ad.Dataset.range(3).loader(pin_memory=True)
    with pytest.raises(TypeError, match="no argument 'batchsize'"):
        ad.Dataset.range(3).loader(batchsize=3)


def test_skip_leaves_out_batches() -> None:
    loader = Loader(ad.Dataset.range(10).batch(2))
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    loader.skip(2)
    assert loader.state_dict()["delivered"] == 3
    assert next(batches).tolist() == [6, 7]

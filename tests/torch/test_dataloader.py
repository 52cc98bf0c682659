"""DataLoader of asyncdata.torch: the batches of PyTorch's own, for every argument, alone and in pairs."""

from __future__ import annotations

import dataclasses
import inspect
import json
import random
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, Subset, WeightedRandomSampler
from torch.utils.data import DataLoader as TorchLoader

import asyncdata as ad
from asyncdata.torch import DataLoader
from asyncdata.torch.epoch_meter import EpochMeter
from asyncdata.torch.worker_process import FUNCTIONS, LoaderWorker
from tests.torch.datasets import (
    Batched,
    BrieflyLocked,
    CountingInClass,
    Delegating,
    DrawingGlobally,
    EagerSampler,
    EndsOnce,
    Guarded,
    LazySampler,
    Nested,
    Noisy,
    Numbers,
    Opening,
    ReadOnce,
    Remembering,
    Rows,
    Stream,
    Table,
    Unsendable,
    die_at_three,
    fail_on_seven,
    interrupted_at_four,
    numbers_of,
    remember,
    remembered,
    seed,
    slow,
    started,
    unsendable_three,
    wait_at_one,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

DATASETS = (Noisy, Batched, Nested, Stream)


@pytest.fixture(autouse=True, scope="module")
def processes() -> list[LoaderWorker]:
    """Start the workers that loaders share, and keep them from one test to the next."""
    return started(3)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


CHOICES: dict[str, list[Callable[[], dict[str, Any]]]] = {
    "batching": [
        lambda: {"batch_size": 4},
        lambda: {"batch_size": None},
        lambda: {"batch_size": 4, "drop_last": True},
        lambda: {"batch_sampler": BatchSampler(RandomSampler(range(11)), 3, False)},
    ],
    "order": [
        dict,
        lambda: {"shuffle": True},
        lambda: {"sampler": WeightedRandomSampler([1.0, 2.0, 3.0] * 3, 9)},
        lambda: {"sampler": LazySampler()},
        lambda: {"sampler": EagerSampler()},
        lambda: {"sampler": SequentialSampler(range(7))},
    ],
    "collate": [dict, lambda: {"collate_fn": list}],
    "generator": [dict, lambda: {"generator": generator()}],
    "pin": [dict, lambda: {"pin_memory": False, "in_order": True}],
}
"""For each argument what it may be: each pair of two of these is tried."""

WITH_WORKERS: dict[str, list[Callable[[], dict[str, Any]]]] = {
    "prefetch": [dict, lambda: {"prefetch_factor": 1}, lambda: {"prefetch_factor": 5}],
    "persistent": [dict, lambda: {"persistent_workers": True}],
    "init": [dict, lambda: {"worker_init_fn": draw_once}],
    "timeout": [dict, lambda: {"timeout": 60}],
}


def draw_once(worker: int) -> None:
    random.random()


def allowed(dataset: type, given: dict[str, Any]) -> bool:
    """Whether PyTorch takes these arguments together."""
    if issubclass(dataset, Stream) and given.keys() & {"shuffle", "sampler", "batch_sampler"}:
        return False
    return "batch_sampler" not in given or not given.keys() & {"shuffle", "sampler"}


def pairs(choices: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    return [(x, y) for first, second in combinations(choices.values(), 2) for x in first for y in second]


def epochs(loader_class: Any, dataset: Any, make: list[Callable[[], dict[str, Any]]], **others: Any) -> str:
    """Two epochs, an early end, and another epoch, as text; then what comes next out of the global generators."""
    seed()
    given = {name: value for one in make for name, value in one().items()}
    loader = loader_class(dataset, **given, **others)
    found: list[Any] = [list(loader), list(loader), next(iter(loader)), list(loader)]
    if hasattr(dataset, "__len__"):
        found.append(len(loader))
    return repr([*found, torch.rand(1), random.random()])


@pytest.mark.parametrize("dataset", DATASETS)
def test_batches_are_those_of_pytorch_for_every_pair_of_arguments(dataset: type) -> None:
    tried = 0
    for make in pairs(CHOICES)[:: 6 if dataset is Nested else 1]:
        given = {name: value for one in make for name, value in one().items()}
        if allowed(dataset, given):
            assert epochs(DataLoader, dataset(), [*make]) == epochs(TorchLoader, dataset(), [*make]), given
            tried += 1
    assert tried >= 10


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dataset", DATASETS)
def test_workers_make_the_batches_of_pytorchs_workers(dataset: type, workers: int) -> None:
    make = CHOICES["batching"][:1] + ([] if dataset is Stream else CHOICES["order"][1:2])
    others = {"num_workers": workers}
    assert epochs(DataLoader, dataset(), make, **others) == epochs(TorchLoader, dataset(), make, **others)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", DATASETS)
def test_workers_make_the_batches_of_pytorch_for_pairs_of_arguments(dataset: type) -> None:
    for make in pairs({**CHOICES, **WITH_WORKERS})[::29]:
        given = {name: value for one in make for name, value in one().items()}
        if allowed(dataset, given):
            ours = epochs(DataLoader, dataset(), [*make], num_workers=2)
            assert ours == epochs(TorchLoader, dataset(), [*make], num_workers=2), given


def test_loader_of_a_pipeline_says_what_to_write_for_each_argument() -> None:
    for name in {*inspect.signature(TorchLoader).parameters} - {"dataset"}:
        with pytest.raises(TypeError, match=rf"loader\({name}=\) is DataLoader's; a pipeline has "):
            ad.Dataset.range(3).loader(**{name: 3})


def test_numbers_of_workers_may_be_numpys() -> None:
    loader = DataLoader(Numbers(6), 2, num_workers=np.int64(2))
    assert [json.loads(json.dumps(loader.state_dict()))["epoch"] for _ in loader] == [0, 0, 0]


def gradients(batches: Iterable[Any]) -> list[bool]:
    return [one.requires_grad for batch in batches for one in batch]


def test_leaves_of_a_batch_keep_that_they_have_gradients() -> None:
    made = [torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(2, dtype=torch.bfloat16, requires_grad=True)]
    given: dict[str, Any] = {"batch_size": 3, "num_workers": 2, "collate_fn": list}
    assert gradients(DataLoader(made, **given)) == gradients(TorchLoader(made, **given)) == [True, False, True]


def test_workers_return_tensors_whose_values_pytorchs_workers_change() -> None:
    conjugate = torch.tensor([1 + 2j]).conj()
    batches = [*DataLoader([conjugate, conjugate.imag], None, num_workers=2)]
    assert [one.tolist() for one in batches] == [[1 - 2j], [-2.0]]


def test_wrong_arguments_are_refused_as_by_pytorch() -> None:
    for given in (
        {"batch_size": 0},
        {"num_workers": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": range(3)},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
    ):
        with pytest.raises(ValueError) as theirs:
            TorchLoader(Numbers(), **given)
        with pytest.raises(ValueError) as ours:
            DataLoader(Numbers(), **given)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_in_the_place_of_its_batch(workers: int) -> None:
    batches = iter(DataLoader(Numbers(), 2, num_workers=workers, collate_fn=fail_on_seven))
    found = []
    for _ in range(6):
        try:
            found.append(next(batches))
        except KeyError as error:
            found.append(error.args)
    assert found == [[0, 1], [2, 3], [4, 5], (7,), [8, 9], [10]]


def test_a_batch_that_cannot_be_sent_is_an_error_in_its_place() -> None:
    started(2)
    batches = iter(DataLoader(Numbers(9), 3, num_workers=2, collate_fn=unsendable_three))
    assert next(batches) == [0, 1, 2]
    with pytest.raises(TypeError, match="a batch, a generator, cannot be sent from a worker process: cannot pickle"):
        next(batches)
    assert [*batches] == [[6, 7, 8]]


@pytest.mark.parametrize("size", [None, 2])
def test_a_stream_is_not_read_behind_its_end(size: int | None) -> None:
    assert epochs(DataLoader, EndsOnce(), [], batch_size=size, num_workers=2) == epochs(
        TorchLoader, EndsOnce(), [], batch_size=size, num_workers=2
    )


def test_loops_may_be_nested_and_left() -> None:
    for workers in (0, 2):
        loader = DataLoader(Numbers(4), 2, num_workers=workers)
        found = [(x.tolist(), y.tolist()) for x in loader for y in loader]
        assert found == [(x, y) for x in ([0, 1], [2, 3]) for y in ([0, 1], [2, 3])]
        assert next(iter(loader)).tolist() == [0, 1]
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_what_has_no_second_epoch_says_so_when_the_second_begins() -> None:
    loader = DataLoader(Numbers(), 4, sampler=iter(range(5)))
    assert len(list(loader)) == 2
    with pytest.raises(ad.PlanError, match="epoch 1 cannot begin"):
        list(loader)
    loader = DataLoader(ReadOnce(), 4)
    assert len(list(loader)) == 2
    with pytest.raises(ad.PlanError, match="epoch 1 has no batch"):
        list(loader)


def test_what_cannot_be_honoured_is_an_error() -> None:
    with pytest.raises(ValueError, match="not forked"):
        DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork")
    DataLoader(Numbers(), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(ValueError, match="num_workers"):
        DataLoader(Numbers(), timeout=1)
    with pytest.raises(ValueError, match="at least 1"):
        DataLoader(Numbers(), num_workers=1, prefetch_factor=0)
    with pytest.raises(
        ad.PlanError, match=r"a Unsendable, .* cannot be sent to a worker process: .*lock.*first call of __getitem__"
    ):
        iter(DataLoader(Unsendable(), num_workers=1))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="the warning is for machines without a device")
def test_pinned_memory_without_a_device_is_a_warning_as_with_pytorch() -> None:
    with pytest.warns(UserWarning, match="pin_memory"):
        assert len(list(DataLoader(Numbers(), 4, pin_memory=True))) == 3


@pytest.mark.parametrize("dataset", [Numbers, Stream])
@pytest.mark.parametrize("workers", [0, 2])
def test_skip_leaves_out_the_next_batches_and_the_state_counts_them(dataset: type, workers: int) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(dataset(), 3, num_workers=workers, collate_fn=numbers_of)

    whole, loader = list(make()), make()
    loader.skip(1)
    batches = iter(loader)
    assert next(batches) == whole[1]
    other = make()
    other.load_state_dict(loader.state_dict())
    other.skip(1)
    assert [*other] == whole[3:]
    assert [*other] == whole


def test_a_batch_that_takes_too_long_ends_with_the_timeout() -> None:
    loader = DataLoader(Numbers(3), 1, num_workers=1, timeout=1, collate_fn=wait_at_one)
    batches = iter(loader)
    assert next(batches) == [0]
    with pytest.raises(RuntimeError, match=r"timed out after 1 seconds"):
        next(batches)


def test_a_loader_with_a_timeout_does_not_wait_for_batches_of_others() -> None:
    one, other, limited = [DataLoader(Numbers(3), num_workers=1, timeout=timeout) for timeout in (0, 0, 9)]
    assert one.workers() == other.workers()
    assert limited.workers() != one.workers()


def test_what_is_set_between_epochs_holds_for_the_next_one_as_with_pytorch() -> None:
    found: list[Any] = []
    for kind in (TorchLoader, DataLoader):
        seed()
        loader, batches = kind(Noisy(7), 2, num_workers=1), list[Any]()
        changes: list[dict[str, Any]] = [{}, {"num_workers": 2}, {"collate_fn": numbers_of}, {"num_workers": 0}]
        for change in changes:
            for name, value in change.items():
                setattr(loader, name, value)
            batches += [*loader]
        found.append(repr(batches))
    assert found[0] == found[1]
    loader.timeout = 3
    with pytest.raises(ValueError, match="num_workers"):
        iter(loader)


@pytest.mark.parametrize("dataset", [Noisy, Stream])
def test_a_worker_that_is_killed_is_replaced_and_no_batch_is_lost(dataset: type) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(dataset(), 2, num_workers=2)

    seed()
    whole = repr(list(make()))
    seed()
    loader, found = make(), list[Any]()
    for batch in loader:
        found.append(batch)
        if len(found) == 2:
            for worker in loader.workers():
                assert worker.process is not None
                worker.process.kill()
    assert repr(found) == whole


def test_a_batch_that_kills_its_worker_is_an_error() -> None:
    loader = DataLoader(Numbers(6), 1, num_workers=1, collate_fn=die_at_three)
    batches = iter(loader)
    assert [next(batches) for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(ad.WorkerCrashed, match="exit code 3"):
        next(batches)


def test_the_first_batches_are_made_here_until_the_workers_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    seed()
    whole = repr([list(DataLoader(Noisy(), 2, shuffle=True, num_workers=2)), torch.rand(1)])
    for count in (1, 4, 100):
        asked = iter([False] * count)
        monkeypatch.setattr(LoaderWorker, "has_started", lambda _, asked=asked: next(asked, True))
        seed()
        assert repr([list(DataLoader(Noisy(), 2, shuffle=True, num_workers=2)), torch.rand(1)]) == whole


@pytest.mark.parametrize("given", [{}, {"persistent_workers": True}, {"shuffle": True, "prefetch_factor": 3}])
def test_a_dataset_that_remembers_something_is_made_for_each_worker(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = epochs(TorchLoader, Remembering(), [lambda: given], num_workers=2, batch_size=2)
    for count in (0, 1, 4, 100):
        asked = iter([False] * count)
        monkeypatch.setattr(LoaderWorker, "has_started", lambda _, asked=asked: next(asked, True))
        assert epochs(DataLoader, Remembering(), [lambda: given], num_workers=2, batch_size=2) == theirs


@pytest.mark.parametrize("dataset", [DrawingGlobally, CountingInClass])
def test_a_dataset_whose_module_remembers_something_is_made_in_its_workers(
    dataset: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = repr([*TorchLoader(dataset(), 2, num_workers=2)])
    monkeypatch.setattr(LoaderWorker, "has_started", lambda _: False)
    loader = DataLoader(dataset(), 2, num_workers=2, persistent_workers=True)
    assert repr([*loader]) == theirs


def test_first_batches_are_made_here_of_a_dataset_that_makes_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoaderWorker, "has_started", lambda _: False)
    monkeypatch.setattr(LoaderWorker, "ask", lambda *_: pytest.fail("a worker was asked"))
    assert [*DataLoader(Opening(4), 2, num_workers=1, collate_fn=list)] == [[0, 1], [2, 3]]


def test_an_interrupt_while_a_batch_is_made_here_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoaderWorker, "has_started", lambda _: False)
    batches = iter(DataLoader(Numbers(8), 2, num_workers=2, collate_fn=interrupted_at_four))
    assert [next(batches), next(batches)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert [*batches] == [[4, 5], [6, 7]]


def test_free_locks_of_a_dataset_are_new_ones_in_workers() -> None:
    started(2)
    loader = DataLoader(Guarded(), 4, num_workers=2, collate_fn=numbers_of)
    assert [*loader] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11]]
    assert not loader.dataset.same.locked()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_profiler_of_pytorch_shows_the_time_of_the_loader(workers: int) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert len([*DataLoader(Numbers(4), 2, num_workers=workers)]) == 2
    found = {one.key: one.count for one in profiler.key_averages() if one.key.startswith("enumerate(DataLoader)#")}
    assert [*found.values()] == [3]  # the last one is that there are no more


def test_a_lock_that_a_thread_holds_briefly_is_awaited() -> None:
    loader = DataLoader(BrieflyLocked(), 2, num_workers=1, collate_fn=numbers_of)
    assert [*loader] == [[0, 1], [2, 3]]


def test_a_dataset_that_delegates_to_another_one_reaches_workers() -> None:
    dataset = Subset(Delegating(Delegating(Numbers(9))), [8, 1, 2, 7])
    assert epochs(DataLoader, dataset, [], num_workers=1) == epochs(TorchLoader, dataset, [], num_workers=1)


def test_worker_init_fn_is_called_once_for_each_worker_and_epoch() -> None:
    loader = DataLoader(Numbers(4), 1, num_workers=2, worker_init_fn=remember, collate_fn=remembered)
    assert [*loader] == [*loader] == [[0], [1], [0], [1]]


@pytest.mark.parametrize("workers", [0, 2])
def test_statistics_name_the_step_that_limits_the_loop(workers: int) -> None:
    loader = DataLoader(Numbers(40), 2, num_workers=workers, persistent_workers=workers > 0, collate_fn=slow)
    with pytest.raises(ad.PlanError, match="nothing was read yet"):
        loader.stats()
    plan = "BatchSampler → map(fetch_batch, num_workers=2) of Numbers"
    assert loader.explain() == (plan if workers else plan.replace(", num_workers=2", ""))
    assert [len(list(loader)) for _ in range(2)] == [20, 20]  # in the second epoch no worker starts
    assert loader.explain().startswith("BatchSampler → map(fetch_batch")
    assert "fetch_batch" in loader.explain()._repr_svg_()  # pyright: ignore[reportPrivateUsage]
    stats = loader.stats()
    assert (stats.elements, stats.state) == (20, "ended")
    assert [step.items for step in stats.steps] == [20, 20]
    assert "fetch_batch" in loader.bottleneck().step
    told = str(loader.bottleneck())
    assert "num_workers" in told
    assert not any(word in told for word in ("executor", "num_parallel_calls", "pipeline)"))
    slow_loop = dataclasses.replace(stats, waiting_seconds=0.0)
    said = "the input is not the problem: its reader waits 0% of the time: make the step that reads it faster."
    assert str(EpochMeter.bottleneck(slow_loop)) == said


@pytest.mark.parametrize("form", ["in shared memory", "in a file"])
def test_what_can_be_mapped_is_not_copied(form: str, tmp_path: Path) -> None:
    array, file = Table().rows, tmp_path / "rows.npy"
    np.save(file, array)
    rows = torch.from_numpy(array).share_memory_().numpy() if form == "in shared memory" else np.load(file, "r")
    before = {*FUNCTIONS.data}
    batches = [*DataLoader(Rows(rows), 4, num_workers=2)]
    assert {*FUNCTIONS.data} <= before
    assert torch.cat(batches).tolist() == array.tolist()


def test_large_arrays_of_a_dataset_are_shared_and_private_where_they_are_written() -> None:
    dataset = Table()
    for _ in range(2):
        batches = iter(DataLoader(dataset, 4, num_workers=2))
        assert sum(one.segment.size for one in FUNCTIONS.data) >= dataset.rows.nbytes
        assert torch.cat([*batches]).tolist() == dataset.rows.tolist()
    assert dataset.rows[0, 0] == 0


def test_what_workers_have_a_copy_of_is_explained() -> None:
    for dataset, words in ((Table(), "MB of the dataset are in shared memory"), (Numbers(), "")):
        loader = DataLoader(dataset, 4, num_workers=1)
        assert loader.copied() == ""
        next(iter(loader))
        assert words in loader.copied()
        assert bool(words) == ("share_memory_()" in loader.explain())

"""PyTorch's loaders over a dataset: each element once, each epoch another order, tensors all the way."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

pytestmark = pytest.mark.torch


@pytest.fixture
def data() -> Any:
    return pytest.importorskip("torch.utils.data")


def shuffled_batches() -> ad.Dataset[Any]:
    return ad.Dataset.range(14).shuffle(seed=1).batch(3)


def lists(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def epochs_of(ds: ad.Dataset[Any], count: int = 3) -> list[list[list[int]]]:
    return [lists(ds.iterate(epoch=epoch)) for epoch in range(count)]


def same(x: Any) -> Any:
    return x


# batches as tensors


def test_a_loader_gives_tensors_that_share_the_memory_of_batches(data: Any) -> None:
    import torch

    made = []

    def keep(batch: Any) -> Any:
        made.append(batch)
        return batch

    element = {"x": np.arange(3.0), "y": 1, "name": "a", "when": np.datetime64("2026-01-01")}
    ds = ad.Dataset.from_iterable([element]).repeat(4).batch(2).map(keep)
    batch = next(iter(ds.loader()))
    assert type(batch["x"]) is type(batch["y"]) is torch.Tensor
    assert batch["x"].dtype is torch.float64
    assert batch["x"].data_ptr() == made[0]["x"].ctypes.data
    assert batch["y"].tolist() == [1, 1]
    assert list(batch["name"]) == ["a", "a"]
    assert batch["when"].dtype.kind == "M"


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6)[::-1],
        np.arange(6, dtype=">i4"),
        np.arange(6).reshape(2, 3).T,
        np.array(3.5),
        np.zeros((0, 2), np.uint8),
        np.array([True, False]),
        np.arange(3, dtype=np.uint16),
        np.array([1 + 2j]),
    ],
    ids=lambda array: f"{array.dtype} {array.shape} {array.strides}",
)
def test_arrays_of_any_layout_become_tensors(data: Any, array: Any) -> None:
    before = array.copy()
    (tensor,) = ad.Dataset.range(1).map(lambda _: array).loader()
    assert np.array_equal(tensor.numpy(), before)


def test_a_tensor_of_a_read_only_array_is_a_copy(data: Any) -> None:
    rows = np.arange(6).reshape(2, 3)
    for tensor in ad.Dataset.from_tensor_slices(rows).loader():
        tensor.zero_()
    assert rows.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_numpy_scalars_become_tensors_and_numbers_stay(data: Any) -> None:
    import torch

    (element,) = ad.Dataset.from_iterable([(np.float32(2), 3, b"x")]).loader()
    assert element == (torch.tensor(2.0), 3, b"x")


def test_a_dtype_of_which_torch_has_no_tensors_is_told_by_its_leaf(data: Any) -> None:
    ds = ad.Dataset.range(1).map(lambda _: {"x": np.zeros(2, np.longdouble)})
    with pytest.raises(ad.StructureError, match=r"\['x'\].* has dtype .*, of which torch has no tensors"):
        next(iter(ds.loader()))


def test_tensors_stay_what_they_are(data: Any) -> None:
    import torch

    ds = ad.Dataset.range(4).map(lambda i: torch.full((2,), i, dtype=torch.bfloat16)).batch(2)
    assert [batch.dtype for batch in ds.loader()] == [torch.bfloat16] * 2


def test_a_loader_for_a_device_goes_on_at_any_batch(data: Any) -> None:
    first, second = epochs_of(shuffled_batches(), 2)
    for steps in range(len(first)):
        stopped = iter(shuffled_batches().loader(device="cpu"))
        assert lists(next(stopped) for _ in range(steps)) == first[:steps]
        loader = shuffled_batches().loader(device="cpu")
        loader.load_state_dict(stopped.state_dict())
        assert [lists(loader), lists(loader)] == [first[steps:], second]


def test_an_async_loop_gets_tensors_too(data: Any) -> None:
    async def body() -> list[list[int]]:
        return [batch.tolist() async for batch in shuffled_batches().loader()]

    assert asyncio.run(body()) == lists(shuffled_batches())


# an IterableDataset


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_dataloader_gives_the_same_epochs_with_any_number_of_workers(data: Any, workers: int) -> None:
    loader = data.DataLoader(shuffled_batches().to_torch(), batch_size=None, num_workers=workers)
    assert [lists(loader) for _ in range(3)] == epochs_of(shuffled_batches())
    assert len(loader) == 5


def test_workers_that_stay_count_epochs_too(data: Any) -> None:
    loader = data.DataLoader(shuffled_batches().to_torch(), batch_size=None, num_workers=2, persistent_workers=True)
    epochs = epochs_of(shuffled_batches())
    assert [lists(loader) for _ in range(2)] == epochs[:2]
    loader.dataset.set_epoch(1)
    assert [lists(loader) for _ in range(2)] == epochs[1:]


@pytest.mark.slow
def test_workers_that_are_spawned_count_epochs_too(data: Any) -> None:
    elements = shuffled_batches().to_torch()
    loader = data.DataLoader(elements, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [lists(loader) for _ in range(2)] == epochs_of(shuffled_batches())[:2]


@pytest.mark.parametrize("left_at", [1, 2, 3])
def test_all_workers_read_the_same_epoch_after_one_that_was_left_before_each_had_begun(
    data: Any, left_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of this test are in this process, so that it can say which of them had begun."""
    elements = shuffled_batches().to_torch()

    def share(worker: int, workers: int, seed: int) -> list[list[int]]:
        info = SimpleNamespace(id=worker, num_workers=workers, seed=seed + worker)
        monkeypatch.setattr(data, "get_worker_info", lambda: info)
        return lists(copy.copy(elements))

    for worker in range(left_at):
        share(worker, 3, 100)
    for epoch, workers in enumerate((3, 2, 3), 1):
        shares = [share(worker, workers, 100 * epoch + 100) for worker in reversed(range(workers))]
        assert sorted(x for batches in shares for batch in batches for x in batch) == list(range(14))
        assert shares[-1][0] == epochs_of(shuffled_batches(), 4)[epoch][0]
    monkeypatch.undo()
    assert lists(elements) == epochs_of(shuffled_batches(), 5)[4]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_another_number_of_workers_goes_on_with_the_next_epoch(data: Any) -> None:
    elements = shuffled_batches().to_torch()
    for epoch, workers in enumerate((2, 3, 0, 3)):
        loader = data.DataLoader(elements, batch_size=None, num_workers=workers)
        assert lists(loader) == epochs_of(shuffled_batches(), 4)[epoch]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_is_set_twice_is_that_epoch(data: Any, workers: int) -> None:
    loader = data.DataLoader(shuffled_batches().to_torch(), batch_size=None, num_workers=workers)
    for epoch in (2, 0, 1):
        loader.dataset.set_epoch(epoch)
        loader.dataset.set_epoch(epoch)
        assert lists(loader) == epochs_of(shuffled_batches())[epoch]


def test_an_iterator_of_which_nothing_was_read_is_no_epoch(data: Any) -> None:
    elements = shuffled_batches().to_torch()
    iter(elements)
    assert lists(elements) == epochs_of(shuffled_batches())[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataloader_makes_batches_of_elements(data: Any, workers: int) -> None:
    rows = ad.Dataset.from_tensor_slices({"x": np.arange(16.0).reshape(8, 2), "y": np.arange(8)})
    loader = data.DataLoader(rows.to_torch(), batch_size=2, num_workers=workers)
    batches = list(loader)
    assert sorted(y for batch in batches for y in batch["y"].tolist()) == list(range(8))
    assert all(batch["x"].shape == (2, 2) for batch in batches)
    assert len(loader) == len(batches) == 4


def test_a_dataset_of_unknown_length_has_none_in_a_dataloader(data: Any) -> None:
    loader = data.DataLoader(ad.Dataset.range(6).filter(lambda x: x > 2).to_torch(), batch_size=None)
    assert list(loader) == [3, 4, 5]
    with pytest.raises(TypeError, match="length of this dataset is unknown"):
        len(loader)


@pytest.mark.parametrize("kind", ["executor", "placement"])
def test_processes_within_a_worker_are_refused_with_advice(data: Any, kind: str) -> None:
    ds = ad.Dataset.range(4)
    ds = ds.map(same, 2, executor="process") if kind == "executor" else ds.with_options(ad.Options(placement="process"))
    with pytest.raises(ad.StageError, match="num_workers=0, as the pipeline has its own workers"):
        next(iter(data.DataLoader(ds.to_torch(), batch_size=None, num_workers=1)))


def test_processes_are_fine_without_workers(data: Any) -> None:
    ds = ad.Dataset.range(4).map(same, 2, executor="process").batch(2)
    assert lists(data.DataLoader(ds.to_torch(), batch_size=None)) == [[0, 1], [2, 3]]


# a dataset given to a DataLoader as it is


def test_a_dataset_with_elements_by_number_is_read_by_a_dataloader(data: Any) -> None:
    ds = ad.Dataset.range(6).map(lambda x: x * x)
    assert lists(data.DataLoader(ds, batch_size=4)) == [[0, 1, 4, 9], [16, 25]]
    shuffled = data.DataLoader(ds, batch_size=4, shuffle=True)
    assert sorted(x for batch in shuffled for x in batch.tolist()) == [0, 1, 4, 9, 16, 25]


def test_one_without_is_refused_with_advice(data: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"pass dataset.to_torch\(\) to PyTorch's DataLoader"):
        next(iter(data.DataLoader(ad.Dataset.range(6).shuffle(3).map(same))))
    with pytest.raises(TypeError, match=r"pass dataset.to_torch\(\) to PyTorch's DataLoader"):
        next(iter(data.DataLoader(ad.Dataset.range(6).filter(bool))))

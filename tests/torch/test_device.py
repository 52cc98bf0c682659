"""DataLoader(device=): the same batches on a device, copied ahead, in no order that a GPU could get wrong."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator
from asyncdata.torch import DataLoader
from asyncdata.torch.device_copies import AHEAD, DeviceCopies
from asyncdata.torch.worker_process import LoaderWorker
from tests.torch.datasets import Noisy, Numbers, Stream, Unsendable, fail_on_seven, seed, started

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

POLICIES: Any = ("random", "lazy", "copy_first", "compute_first")


@pytest.fixture(autouse=True, scope="module")
def processes() -> list[LoaderWorker]:
    return started(2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Noisy, Stream])
def test_batches_are_the_same_and_each_state_resumes_at_the_next(dataset: type, workers: int) -> None:
    def make(device: Any) -> DataLoader[Any]:
        return DataLoader(dataset(), 2, num_workers=workers, device=device)

    seed()
    whole = [repr(batch) for batch in make(None)]
    seed()
    loader = make(torch.device("cpu"))
    states: list[Any] = []
    for batch, want in zip(loader, whole, strict=True):
        assert repr(batch) == want
        states.append(loader.state_dict())
    for place, state in enumerate(states):
        resumed = make("cpu")
        resumed.load_state_dict(state)
        assert [repr(batch) for batch in resumed] == whole[place + 1 :]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("in_order", [True, False])
def test_no_copy_races_with_the_loop_that_reads_late(policy: Any, in_order: bool) -> None:
    for workers in (0, 2):
        accelerator = Accelerator(workers, policy=policy)
        loader = DataLoader(Numbers(24), 2, num_workers=workers, device=accelerator, in_order=in_order)
        kept = list(loader)
        found = sorted(batch.numpy().tolist() for batch in kept)
        assert (found, accelerator.races) == ([[x, x + 1] for x in range(0, 24, 2)], [])


def nested(samples: list[int]) -> Any:
    rows = [torch.ones(x + 1) for x in reversed(samples)]
    return [{"x": [torch.tensor(samples), ("text", [torch.ones(1)])]}, torch.nn.utils.rnn.pack_sequence(rows)]


def test_tensors_in_lists_are_copied_and_the_batch_sizes_of_packed_sequences_stay() -> None:
    accelerator = Accelerator()
    ((first, packed),) = DataLoader(Numbers(3), 3, collate_fn=nested, device=accelerator)
    x, (text, (ones,)) = first["x"]
    found = [type(part).__name__ for part in (x, ones, packed.data, packed.batch_sizes)]
    assert (found, text) == (["SimulatedArray"] * 3 + ["Tensor"], "text")
    (again,) = ad.Dataset.from_list([1]).map(lambda _: packed_ones()).prefetch_to_device(accelerator)
    assert [type(part).__name__ for part in again[:2]] == ["SimulatedArray", "Tensor"]


def packed_ones() -> Any:
    return torch.nn.utils.rnn.pack_sequence([torch.ones(2)])


def wait_for_replies(loader: DataLoader[Any], count: int) -> None:
    """Wait until so many of the next batches have arrived."""
    epoch: Any = loader._latest  # noqa: SLF001
    for number, worker in [*epoch.waiting.items()][:count]:
        epoch.workers[worker].receive(epoch, number)


def test_batches_that_have_arrived_are_copied_while_the_loop_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    started_copies: list[Any] = []
    start = DeviceCopies.start
    monkeypatch.setattr(DeviceCopies, "start", lambda self, data: started_copies.append(data) or start(self, data))
    loader = DataLoader(Numbers(20), 2, num_workers=2, prefetch_factor=3, device="cpu")
    batches = iter(loader)
    wait_for_replies(loader, 6)
    for given in range(1, 8):
        next(batches)
        assert len(started_copies) == given + AHEAD
        wait_for_replies(loader, 6)
    assert loader.stats().elements == 7


def test_an_error_is_raised_in_the_place_of_its_batch() -> None:
    batches = iter(DataLoader(Numbers(), 2, num_workers=2, collate_fn=fail_on_seven, device="cpu"))
    assert [next(batches) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(KeyError):
        next(batches)
    assert [*batches] == [[8, 9], [10]]


def itself(samples: list[int]) -> Any:
    """A batch that contains itself, where it has the sample 5: no device can have it."""
    batch: list[Any] = [torch.tensor(samples)]
    if 5 in samples:
        batch.append(batch)
    return batch


def test_so_is_one_of_the_copy_itself() -> None:
    batches = iter(DataLoader(Numbers(), 2, collate_fn=itself, device="cpu"))
    assert len([next(batches) for _ in range(2)]) == 2
    with pytest.raises(ad.StructureError, match="itself"):
        next(batches)
    assert len([*batches]) == 3


def test_an_epoch_that_is_left_leaves_no_thread() -> None:
    loader = DataLoader(Numbers(), 2, num_workers=2, device="cpu")
    for _ in range(2):
        assert next(iter(loader)).tolist() == [0, 1]
    del loader
    gc.collect()
    left = [thread for thread in threading.enumerate() if thread.name.startswith("asyncdata-device")]
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)


@pytest.mark.parametrize("device", ["gpu", 0, "meta"])
def test_what_is_no_device_is_refused_at_once(device: Any) -> None:
    with pytest.raises(ad.PlanError, match="device= must be 'cuda'"):
        DataLoader(Unsendable(), device=device)


def test_a_device_of_jax_is_refused() -> None:
    device: Any = type("CpuDevice", (), {"__module__": "jaxlib"})  # as it is known by
    with pytest.raises(TypeError, match=r"Dataset\.loader"):
        DataLoader(Numbers(), device=device())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_gpu_reads_each_batch_however_late(workers: int) -> None:
    matrix = torch.ones(4096, 4096, device="cuda")
    found: list[Any] = []
    for batch in DataLoader(Numbers(400), 20, num_workers=workers, device="cuda"):
        torch.mm(matrix, matrix)
        found.append(batch.sum())
    assert [int(one) for one in found] == [sum(range(x, x + 20)) for x in range(0, 400, 20)]

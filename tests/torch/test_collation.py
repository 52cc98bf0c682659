"""Batches of tensors in workers: those of PyTorch's workers, and not in memory that is new for each batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import default_collate

from asyncdata.torch import DataLoader
from asyncdata.torch.collation import stacking_in_place
from asyncdata.torch.internals import collate_functions_of_all, set_worker_info, worker_info
from asyncdata.torch.worker_process import LoaderWorker
from tests.torch.datasets import Numbers, Sample, keep_batches, own_tensors, started, threads_of

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

big = torch.arange(60_000.0)

BATCHES: dict[str, list[Any]] = {
    "large": [big, big + 1],
    "small": [torch.arange(3), torch.arange(3) + 1],
    "numbers": [torch.tensor(1.5), torch.tensor(2.5)],
    "empty": [torch.zeros(0, 3), torch.zeros(0, 3)],
    "half": [big.bfloat16(), big.bfloat16() + 1],
    "complex": [big.to(torch.complex64), 1j * big],
    "bool": [big > 7, big < 7],
    "pictures": [torch.rand(70, 80, 3).permute(2, 0, 1), torch.rand(70, 80, 3).permute(2, 0, 1)],
    "views": [big[::7], big[1::7][: len(big[::7])]],
    "expanded": [torch.ones(1).expand(40_000), torch.zeros(1).expand(40_000)],
    "of two dtypes": [big, big.double()],
    "of one dtype into a smaller one": [torch.arange(3), torch.rand(3)],
    "of two shapes": [big, big[1:]],
    "a longer one": [torch.zeros(2), torch.zeros(6)],
    "with gradients": [big.clone().requires_grad_(), big],
    "sparse": [torch.eye(3).to_sparse(), torch.eye(3).to_sparse()],
    "arrays": [big.numpy(), big.numpy() + 1],
    "parameters": [torch.nn.Parameter(big), torch.nn.Parameter(big)],
    "structures": [{"x": big, "y": (1, big)}, {"x": big + 1, "y": (2, big)}],
}


@pytest.fixture(autouse=True, scope="module")
def processes() -> list[LoaderWorker]:
    """Start the workers that loaders share, and keep them from one test to the next."""
    return started(1)


def facts(value: Any) -> Any:
    """What can be seen of a batch."""
    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, value.shape, value.stride(), value.requires_grad, value.tolist()
    if isinstance(value, dict):
        return {name: facts(part) for name, part in value.items()}
    return [facts(part) for part in value] if isinstance(value, (list, tuple)) else (type(value), value)


def read(kind: Any, items: list[Any]) -> Any:
    """Return what can be seen of the only batch of a loader with a worker, or the kind of error."""
    try:
        return [facts(batch) for batch in kind(items, len(items), num_workers=1)]
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_that_of_pytorchs_worker(name: str) -> None:
    assert read(DataLoader, BATCHES[name]) == read(TorchLoader, BATCHES[name])


def test_conjugates_have_their_signs_which_pytorchs_workers_lose() -> None:
    items = [torch.full((9_000,), 1 + 2j).conj()] * 2
    (batch,) = DataLoader(items, 2, num_workers=1)
    assert {*batch.flatten().tolist()} == {1 - 2j}


def test_tensors_are_not_stacked_into_new_shared_memory() -> None:
    set_worker_info(worker_info(0, 1, 0, None))
    try:
        with stacking_in_place():
            here = default_collate([big, big])
        as_pytorch = default_collate([big, big])
    finally:
        set_worker_info(None)
    assert (here.is_shared(), as_pytorch.is_shared()) == (False, True)


def test_a_function_of_the_program_for_tensors_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(collate_functions_of_all(), torch.Tensor, own_tensors)
    assert [*DataLoader([big, big], 2, num_workers=1)] == [2]
    with stacking_in_place():
        assert default_collate([big, big]) == 2
    assert collate_functions_of_all()[torch.Tensor] is own_tensors
    monkeypatch.undo()
    monkeypatch.setitem(collate_functions_of_all(), Sample, own_tensors)
    assert [*DataLoader([Sample(1, big, "")] * 2, 2, num_workers=1)] == [2]
    monkeypatch.undo()
    (batch,) = DataLoader([Sample(1, big, "")] * 2, 2, num_workers=1)
    assert (type(batch), batch.noise.shape) == (Sample, (2, 60_000))


def test_batches_that_a_function_keeps_stay_as_they_were() -> None:
    found = [*DataLoader(Numbers(8), 2, num_workers=1, collate_fn=keep_batches)]
    assert [(first[0].item(), now[0].item()) for first, now in found] == [(0, 0), (0, 2), (0, 4), (0, 6)]


def test_batches_that_are_made_here_use_one_thread_as_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        monkeypatch.setattr(LoaderWorker, "has_started", lambda _: False)
        assert [*DataLoader(Numbers(2), 1, num_workers=1, collate_fn=threads_of)] == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)

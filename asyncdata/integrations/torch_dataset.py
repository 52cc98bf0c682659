"""A dataset for PyTorch's own loaders: an `IterableDataset` whose iterators have states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, Final, Self

from asyncdata.graph.node import check_count
from asyncdata.integrations.tensors import to_tensors
from asyncdata.iterator import DatasetIterator
from asyncdata.runtime.optional_packages import require

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset

__all__ = ("torch_dataset",)

MOST_WORKERS: Final = 1024
"""The most workers of a DataLoader."""

NOT_SET: Final = -1
"""Means the next epoch of the dataset itself."""


class TorchIterator:
    """One epoch of the share of one worker of a DataLoader."""

    def __init__(self, elements: DatasetIterator[Any], next_epochs: Any, worker: int) -> None:
        self._elements, self._next_epochs, self._worker = elements, next_epochs, worker
        self._begun = False
        self._set_next_epoch(elements.epoch)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if not self._begun:
            self._begun = True
            self._set_next_epoch(self._elements.epoch + 1)
        return to_tensors(next(self._elements))

    def _set_next_epoch(self, epoch: int) -> None:
        self._next_epochs[self._worker] = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return what has been delivered, as `DatasetIterator.state_dict` does."""
        return self._elements.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`, and continue with the epoch after it."""
        self._elements.load_state_dict(state)
        self._begun = True
        self._set_next_epoch(self._elements.epoch + 1)


class TorchElements:
    """The methods of the class that `Dataset.to_torch` returns; the other base is PyTorch's class.

    The number of each worker's next epoch is in memory that all workers share. Without `persistent_workers` they are
    new processes in each epoch, and would begin with the first epoch again.
    """

    def __init__(self, dataset: Dataset[Any], next_epochs: Any) -> None:
        self.dataset = dataset
        self._next_epochs = next_epochs
        self._share: tuple[tuple[int, int], Dataset[Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return torch_dataset, (self.dataset, self._next_epochs)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> TorchIterator:
        info = require("torch.utils.data", "to_torch()").get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        dataset, epoch = self._share_of(worker, workers), int(self._next_epochs[worker])
        elements = dataset.iterate(epoch=None if epoch == NOT_SET else epoch)
        return TorchIterator(elements, self._next_epochs, worker)

    def _share_of(self, worker: int, workers: int) -> Dataset[Any]:
        """Return every n-th element for one of n workers: the same dataset in each epoch, because it has the seeds."""
        if self._share is None or self._share[0] != (worker, workers):
            made = self.dataset if workers == 1 else self.dataset.shard(workers, worker)
            self._share = (worker, workers), made
        return self._share[1]

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next iteration, from 0, in all workers of a DataLoader."""
        self._next_epochs.fill_(check_count("set_epoch", "epoch", epoch, 0))

    def __repr__(self) -> str:
        return f"<torch IterableDataset of {self.dataset.plan}>"


@cache
def torch_class(base: type[Any]) -> type[Any]:
    """Return the class of what `to_torch` returns."""
    return new_class("TorchDataset", (TorchElements, base), exec_body=lambda names: names.update(__module__=__name__))


def torch_dataset(dataset: Dataset[Any], next_epochs: Any = None) -> Any:
    """Return a dataset as an `IterableDataset` of PyTorch."""
    torch = require("torch", "to_torch()")
    if next_epochs is None:
        next_epochs = torch.full((MOST_WORKERS,), NOT_SET, dtype=torch.int64).share_memory_()
    return torch_class(require("torch.utils.data", "to_torch()").IterableDataset)(dataset, next_epochs)

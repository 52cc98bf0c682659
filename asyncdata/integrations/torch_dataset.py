"""A dataset for PyTorch's own loaders: an `IterableDataset` whose iterators have states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, Final, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt

from asyncdata.graph.node import check_count
from asyncdata.integrations.tensors import to_tensors
from asyncdata.iterator import DatasetIterator
from asyncdata.system.optional_packages import require

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset

__all__ = ("torch_dataset",)

ENTRIES: Final = 1024

NOT_SET: Final = -1

IN_THIS_PROCESS: Final = 0
"""The entry of iterations without workers."""

BITS: Final = 32


class EpochTable:
    """The number of the next epoch, in memory that all workers of a DataLoader share.

    Without `persistent_workers` they are new processes in each epoch. All workers of one iteration must read the same
    epoch, even if an earlier iteration was left before each of its workers had begun. So the first one enters the epoch
    for its iteration, where the others find it. Workers that begin at the same time enter the same number.
    """

    def __init__(self, words: Any) -> None:
        self.words = words
        """A tensor. An entry is the key of an iteration, then `BITS` bits with the number of the epoch after it."""
        self.entries: npt.NDArray[np.int64] = words.numpy()

    def epoch_for(self, key: int) -> int | None:
        """Return the epoch of the iteration with this key, or the next epoch; `None` if it is the dataset's next."""
        entries = self.entries.copy()  # a worker of the same iteration may enter its epoch meanwhile
        own = int(entries[entry_of(key)])
        if key != IN_THIS_PROCESS and own >> BITS == key:
            return epoch_after(own) - 1
        return max((epoch_after(int(entry)) for entry in entries[entries != NOT_SET]), default=None)

    def enter(self, key: int, next_epoch: int) -> None:
        """Set the epoch after the iteration with this key."""
        self.entries[entry_of(key)] = key << BITS | next_epoch

    def restart(self, key: int, next_epoch: int) -> None:
        """Set the next epoch, whatever was read before."""
        self.entries.fill(NOT_SET)
        self.enter(key, next_epoch)


def entry_of(key: int) -> int:
    """Return the place of an iteration's entry."""
    return key and 1 + key % (ENTRIES - 1)


def epoch_after(entry: int) -> int:
    """Return the number of the epoch after that of an entry."""
    return entry & ((1 << BITS) - 1)


class TorchIterator:
    """One epoch of the share of one worker of a DataLoader."""

    def __init__(self, elements: DatasetIterator[Any], epochs: EpochTable, key: int) -> None:
        self._elements, self._epochs, self._key = elements, epochs, key
        self._begun = key != IN_THIS_PROCESS
        epochs.enter(key, elements.epoch + self._begun)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if not self._begun:
            self._begun = True
            self._epochs.enter(self._key, self._elements.epoch + 1)
        return to_tensors(next(self._elements))

    def state_dict(self) -> dict[str, Any]:
        """Return what has been delivered, as `DatasetIterator.state_dict` does."""
        return self._elements.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`, and continue with the epoch after it."""
        self._elements.load_state_dict(state)
        self._begun = True
        self._epochs.restart(self._key, self._elements.epoch + 1)


class TorchElements:
    """The methods of the class that `Dataset.to_torch` returns; the other base is PyTorch's class."""

    def __init__(self, dataset: Dataset[Any], words: Any) -> None:
        self.dataset = dataset
        self._epochs = EpochTable(words)
        self._share: tuple[tuple[int, int], Dataset[Any]] | None = None
        self._iterations = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return torch_dataset, (self.dataset, self._epochs.words)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> TorchIterator:
        info = require("torch.utils.data", "to_torch()").get_worker_info()
        dataset, key = (self.dataset, IN_THIS_PROCESS) if info is None else self._of_worker(info)
        elements = dataset.iterate(epoch=self._epochs.epoch_for(key))
        return TorchIterator(elements, self._epochs, key)

    def _of_worker(self, info: Any) -> tuple[Dataset[Any], int]:
        """Return the share of a worker, and the key of the iteration, which all of its workers compute alike.

        A DataLoader draws a seed for each iteration; workers that stay are asked for several.
        """
        self._iterations += 1
        key = crc32(f"{info.seed - info.id} {self._iterations}".encode()) >> 1
        return self._share_of(info.id, info.num_workers), max(1, key)

    def _share_of(self, worker: int, workers: int) -> Dataset[Any]:
        """Return every n-th element for one of n workers: the same dataset in each epoch, because it has the seeds."""
        if self._share is None or self._share[0] != (worker, workers):
            made = self.dataset if workers == 1 else self.dataset.shard(workers, worker)
            self._share = (worker, workers), made
        return self._share[1]

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next iteration, from 0, in all workers of a DataLoader."""
        self._epochs.restart(IN_THIS_PROCESS, check_count("set_epoch", "epoch", epoch, 0))

    def __repr__(self) -> str:
        return f"<torch IterableDataset of {self.dataset.plan}>"


@cache
def torch_class(base: type[Any]) -> type[Any]:
    return new_class("TorchDataset", (TorchElements, base), exec_body=lambda names: names.update(__module__=__name__))


def torch_dataset(dataset: Dataset[Any], words: Any = None) -> Any:
    """Return a dataset as an `IterableDataset` of PyTorch."""
    torch = require("torch", "to_torch()")
    if words is None:
        words = torch.full((ENTRIES,), NOT_SET, dtype=torch.int64, device="cpu").share_memory_()
    return torch_class(require("torch.utils.data", "to_torch()").IterableDataset)(dataset, words)

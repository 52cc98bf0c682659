"""What of PyTorch's own loader is used beside its public parts: one place, for when these change."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncdata.runtime.optional_packages import require

__all__ = (
    "Base",
    "base_fields",
    "is_iterable",
    "make_fetcher",
    "numpy_bits",
    "numpy_global",
    "numpy_seed",
    "set_worker_info",
    "torch",
    "worker_info",
)

torch: Final[Any] = require("torch", "asyncdata.torch")
loader_module: Final[Any] = require("torch.utils.data.dataloader", "asyncdata.torch")
worker_module: Final[Any] = require("torch.utils.data._utils.worker", "asyncdata.torch")
Kinds: Final[Any] = getattr(loader_module, "_DatasetKind")  # noqa: B009

Base: Any = loader_module.DataLoader
"""PyTorch's DataLoader, which checks the arguments and makes the samplers."""


def base_fields(loader: Any) -> tuple[int, Any]:
    """Return which kind of dataset a loader has, and the sampler of what is read at a time."""
    return getattr(loader, "_dataset_kind"), getattr(loader, "_index_sampler")  # noqa: B009


def is_iterable(kind: int) -> bool:
    """Return whether this is the kind of iterable datasets."""
    return kind == Kinds.Iterable


def make_fetcher(loader: Any) -> Any:
    """Return PyTorch's reader of a dataset: `fetch(index)` returns a batch."""
    return Kinds.create_fetcher(loader.kind, loader.dataset, loader.auto_collation, loader.collate_fn, loader.drop_last)


def worker_info(worker: int, workers: int, seed: int, dataset: Any) -> Any:
    """Return what `get_worker_info` returns in a worker."""
    return worker_module.WorkerInfo(id=worker, num_workers=workers, seed=seed, dataset=dataset)


def set_worker_info(info: Any) -> None:
    """Have `get_worker_info` return this in this process."""
    setattr(worker_module, "_worker_info", info)  # noqa: B010


def numpy_seed(base_seed: int, worker: int) -> list[int]:
    """Return the seed that PyTorch gives NumPy's global generator in a worker."""
    return getattr(worker_module, "_generate_state")(base_seed, worker)  # noqa: B009


def numpy_global() -> Any:
    """Return the generator behind the functions of `np.random`."""
    return getattr(getattr(np.random, "mtrand"), "_rand")  # noqa: B009


def numpy_bits() -> Any:
    """Return the bit generator behind the functions of `np.random`."""
    return getattr(numpy_global(), "_bit_generator")  # noqa: B009

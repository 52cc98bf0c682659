"""What of PyTorch's own loader is used beside its public parts: one place, for when these change."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncdata.system.optional_packages import require

__all__ = (
    "Base",
    "BaseSampler",
    "base_fields",
    "check_supported",
    "collate_functions",
    "collate_functions_of_all",
    "collate_tensors",
    "is_iterable",
    "make_fetcher",
    "numpy_bits",
    "numpy_global",
    "numpy_seed",
    "pinned",
    "pins",
    "profiled",
    "set_worker_info",
    "take_collate_functions",
    "torch",
    "without_overrides",
    "worker_info",
)

torch: Final[Any] = require("torch", "asyncdata.torch")
loader_module: Final[Any] = require("torch.utils.data.dataloader", "asyncdata.torch")
worker_module: Final[Any] = require("torch.utils.data._utils.worker", "asyncdata.torch")
collate_module: Final[Any] = require("torch.utils.data._utils.collate", "asyncdata.torch")
pin_module: Final[Any] = require("torch.utils.data._utils.pin_memory", "asyncdata.torch")
Kinds: Final[Any] = getattr(loader_module, "_DatasetKind")  # noqa: B009

if TYPE_CHECKING:
    from torch.utils.data import DataLoader as TorchLoader

    Base = TorchLoader[Any]
else:
    Base = loader_module.DataLoader
"""PyTorch's DataLoader, which checks the arguments and makes the samplers."""

BaseSampler: Any = torch.utils.data.BatchSampler


def base_fields(loader: Any) -> tuple[int, Any]:
    """Return which kind of dataset a loader has, and the sampler of what is read at a time."""
    return getattr(loader, "_dataset_kind"), getattr(loader, "_index_sampler")  # noqa: B009


def check_supported(loader: Any) -> None:
    """Raise for what PyTorch's loader allows and this one cannot do."""
    context = loader.multiprocessing_context
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "multiprocessing_context='fork' cannot be had: workers are not forked from this process, whose threads and "
            "locks they would lack; leave it out, and give the workers what they need in the dataset"
        )
    if isinstance(loader.dataset, (loader_module.IterDataPipe, loader_module.MapDataPipe)):
        raise TypeError(f"a {type(loader.dataset).__name__} is a DataPipe: give a Dataset or an IterableDataset")
    if loader.timeout and not loader.num_workers:
        raise ValueError("timeout is the patience with workers: give num_workers, or leave timeout out")
    if loader.num_workers and not loader.prefetch_factor:
        got = loader.prefetch_factor
        raise ValueError(f"prefetch_factor must be at least 1, got {got}: a worker makes what was asked for")


def pins(loader: Any) -> bool:
    """Return whether batches are copied to pinned memory; warn, as PyTorch does, if there is no device to pin for."""
    if not loader.pin_memory:
        return False
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None or device.type == "mps":
        warnings.warn("pin_memory=True has no effect: there is no accelerator that uses pinned memory", stacklevel=3)
        return False
    return True


def pinned(data: Any) -> Any:
    """Return a batch in pinned memory."""
    return pin_module.pin_memory(data, torch.accelerator.current_accelerator().type)


def is_iterable(kind: int) -> bool:
    """Return whether this is the kind of iterable datasets."""
    return kind == Kinds.Iterable


def make_fetcher(loader: Any) -> Any:
    """Return PyTorch's reader of a dataset: `fetch(index)` returns a batch."""
    return Kinds.create_fetcher(loader.kind, loader.dataset, loader.auto_collation, loader.collate_fn, loader.drop_last)


collate_tensors: Final[Any] = collate_module.collate_tensor_fn
"""PyTorch's function for tensors in `default_collate`."""


def collate_functions_of_all() -> dict[Any, Any]:
    """Return the functions of `default_collate` for all types, to be changed in place."""
    return collate_module.default_collate_fn_map


def collate_functions() -> dict[Any, Any]:
    """Return the functions that a program has given `default_collate` for types."""
    found = collate_functions_of_all()
    return {kind: function for kind, function in found.items() if function.__module__ != collate_module.__name__}


REPLACED: Final[dict[Any, Any]] = {}
"""For each type whose function came from another process what there was before, or nothing."""


def take_collate_functions(given: Mapping[Any, Any]) -> None:
    """Give `default_collate` the functions of another process; those that it has no longer are replaced again."""
    known = collate_functions_of_all()
    for kind in REPLACED.keys() - given.keys():
        known[kind] = REPLACED.pop(kind)
        if known[kind] is None:
            del known[kind]
    for kind, function in given.items():
        REPLACED.setdefault(kind, known.get(kind))
        known[kind] = function


def profiled(owner: object) -> AbstractContextManager[Any]:
    """Return a context that PyTorch's profiler, if it runs, shows as the time that a program waits for a DataLoader."""
    if not getattr(torch.autograd, "_profiler_enabled")():  # noqa: B009
        return nullcontext()
    return torch.autograd.profiler.record_function(f"enumerate(DataLoader)#{type(owner).__name__}.__next__")


def worker_info(worker: int, workers: int, seed: int, dataset: Any) -> Any:
    """Return what `get_worker_info` returns in a worker."""
    return worker_module.WorkerInfo(id=worker, num_workers=workers, seed=seed, dataset=dataset)


def set_worker_info(info: Any) -> None:
    """Have `get_worker_info` return this in this process."""
    setattr(worker_module, "_worker_info", info)  # noqa: B010


def without_overrides() -> AbstractContextManager[None]:
    """Return a context in which subclasses of tensors have PyTorch's own functions."""
    return getattr(torch, "_C").DisableTorchFunctionSubclass()  # noqa: B009


def numpy_seed(base_seed: int, worker: int) -> list[int]:
    """Return the seed that PyTorch gives NumPy's global generator in a worker."""
    return getattr(worker_module, "_generate_state")(base_seed, worker)  # noqa: B009


def numpy_global() -> Any:
    """Return the generator behind the functions of `np.random`."""
    return getattr(getattr(np.random, "mtrand"), "_rand")  # noqa: B009


def numpy_bits() -> Any:
    """Return the bit generator behind the functions of `np.random`."""
    return getattr(numpy_global(), "_bit_generator")  # noqa: B009

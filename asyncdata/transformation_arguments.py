"""Checks of the arguments of `Transformations`' methods, and what some of them build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature as signature_of
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asyncdata.elements.spec import RaggedTensorSpec, TensorSpec
from asyncdata.elements.structure import leaf, map_leaves, same_structure
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.formats.record_limits import CACHED_RECORD_BYTES
from asyncdata.graph.node import Node, check_arguments, check_count
from asyncdata.options import Options
from asyncdata.planning.optimizer import check_rules

if TYPE_CHECKING:
    from asyncdata.persistence.file_cache import FileCache
    from asyncdata.transforms.cache import Cache

__all__ = ("answering", "batched_for", "cached", "check_structures", "inner_call", "options_for")

T = TypeVar("T")

PYTORCH: Final = {
    "batch_size": ".batch(n)",
    "collate_fn": ".list_batch(n).map(fn), or padded_batch and ragged_batch where lengths differ",
    "drop_last": ".batch(n, drop_remainder=True)",
    "num_workers": '.map(fn, num_parallel_calls=n, executor="process")',
    "persistent_workers": "workers stay alive anyway: leave it out",
    "pin_memory": '.prefetch_to_device("cuda") after batch',
    "prefetch_factor": ".prefetch(n)",
    "sampler": ".shuffle(), .repeat() or .rejection_resample(...)",
    "worker_init_fn": "set up in the function that needs it: leave it out",
}
"""Arguments of PyTorch's DataLoader, and their equivalents."""


def answering(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that names the equivalents of PyTorch's arguments in its errors."""
    foreign = PYTORCH.keys() - signature_of(method).parameters.keys()

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        for name in foreign.intersection(named):
            raise TypeError(f"{method.__name__}() has no argument {name!r}; PyTorch's {name}= is {PYTORCH[name]}")
        return method(*args, **named)

    return call


def check_structures(method: str, signatures: Mapping[str, Any]) -> None:
    """Raise `PlanError` if datasets are known to have elements of different structures or dtypes; keys name them."""
    known = [(name, signature) for name, signature in signatures.items() if signature is not None]
    for name, signature in known[1:]:
        one, first = known[0]
        if not same_structure(first, signature):
            raise PlanError(
                f"{method}: elements of {one} are {first}, of {name} {signature}; map one to the structure of the other"
            )
        theirs = dtypes_of(signature)
        for where, dtype in dtypes_of(first).items():
            if dtype != theirs[where]:
                raise PlanError(
                    f"{method}: {leaf(where)} of elements of {one} is {dtype}, of {name} {theirs[where]}; map one to "
                    "the dtype of the other"
                )


def dtypes_of(signature: Any) -> dict[str, str]:
    """Return the dtype of each leaf as text, by its path."""
    found: dict[str, str] = {}

    def note(spec: TensorSpec, where: str) -> None:
        found[where] = f"{'a Ragged of ' if isinstance(spec, RaggedTensorSpec) else ''}{spec.dtype.name}"

    map_leaves(note, signature)
    return found


def inner_call(method: str, fn: Callable[..., Any], plan: Node) -> Call:
    """Return how a function that makes a dataset of an element is called."""
    call = Call(method, fn).prompt()
    check_arguments(call, plan)
    return call


def batched_for(fn: T, rng: bool, seed: int | None) -> T:
    """Return a function of batches, or raise `PlanError` if it should have random numbers for each element."""
    if rng or seed is not None:
        raise PlanError("map(batch=) gives the function no generator: rng= and seed= are for functions of one element")
    return fn


def cached(
    plan: Node, filename: str | PathLike[str], max_bytes: int | None, max_record_bytes: int
) -> Cache | FileCache:
    """Return the plan that caches elements in a file or in memory."""
    from asyncdata.persistence.file_cache import FileCache
    from asyncdata.storage import local_path
    from asyncdata.transforms.cache import Cache, MemoryCache

    check_count("cache", "max_record_bytes", max_record_bytes, 1)
    if max_bytes is not None:
        check_count("cache", "max_bytes", max_bytes, 0)
        if filename:
            raise PlanError("cache(max_bytes=) is for memory; the size of a file is limited by the disk")
    if filename:
        return FileCache.of(plan, local_path(filename), max_record_bytes)
    if max_record_bytes != CACHED_RECORD_BYTES:
        raise PlanError("cache(max_record_bytes=) is for a file; in memory, max_bytes= limits all elements together")
    return Cache(plan, MemoryCache(max_bytes))


def options_for(value: Any) -> Options:
    """Return options, or raise `PlanError` if `value` is none or has rules that there are not."""
    if not isinstance(value, Options):
        raise PlanError(f"with_options needs an asyncdata.Options, got {value!r}")
    check_rules(value)
    return value

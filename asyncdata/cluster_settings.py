"""Cluster: how much of a Ray cluster a pipeline uses."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError

__all__ = ("Cluster",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster whose actors make the calls of parallel `map`, `filter` and `map(batch=)`, and run the datasets
    that `flat_map`, readers of several files and a parallel `interleave` open.

    It goes into options: `Options(cluster=ad.Cluster())`. Elements, their order, errors and states are the same as
    without it; see docs/scale-out.md. It needs the extra `ray`, and `ray.init()` if the cluster is not on this machine.
    Pipelines of one process that have equal settings share the actors. `PlanError` for invalid values.

    >>> import asyncdata as ad
    >>> ds = ad.Dataset.range(3).with_options(ad.Options(cluster=ad.Cluster(calls=16, num_cpus=2)))
    >>> ds.options().cluster.calls
    16
    """

    calls: int = 8
    """How many calls are made at once, each by an actor of its own; it replaces `num_parallel_calls`. If the cluster
    has too few free processors, it continues with as many actors as fit. With 0, calls are made where the pipeline
    runs."""

    runs: int = 0
    """How many actors run the datasets that `flat_map`, readers of several files and `interleave(num_parallel_calls=)`
    open. A dataset runs entirely on its worker: files are read there, and functions called. Every node must reach the
    files by the same names: a bucket, a shared file system. With 0 they are read where the pipeline runs."""

    num_cpus: float = 1
    """How many processors Ray reserves for each actor; may be a fraction."""

    timeout: float = 300.0
    """For how many seconds to wait while the cluster has no free resources for any actor; then it is a `StageError`."""

    copy: bool = True
    """Whether results are writable arrays of the consumer's own. With `False` they are read-only views into Ray's
    object store, which saves a copy and holds the store's memory as long as they live. Functions on workers then also
    get read-only views."""

    def __post_init__(self) -> None:
        for name in ("calls", "runs"):
            if type(value := getattr(self, name)) is not int or value < 0:
                raise PlanError(f"Cluster({name}=) must be an integer, at least 0, got {value!r:.80}")
        if not self.calls + self.runs:
            raise PlanError("Cluster(calls=0, runs=0) has nothing to do: leave Options(cluster=) out")
        check_positive("num_cpus", "a number of processors", self.num_cpus)
        check_positive("timeout", "seconds", self.timeout)
        check_flag("Cluster", "copy", self.copy)


def check_positive(name: str, what: str, value: Any) -> None:
    """Raise `PlanError` unless `value` is a positive number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value <= 0:
        raise PlanError(f"Cluster({name}=) must be {what} above 0, got {value!r:.80}")

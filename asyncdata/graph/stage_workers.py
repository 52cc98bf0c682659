"""Which workers a stage gets, by the executor of its calls."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeAlias

from asyncdata.executors.autotune import Tuning
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.scope import Scope
from asyncdata.executors.workers import RemoteExecutor, TaskWorkers, ThreadWorkers, Workers

if TYPE_CHECKING:
    from asyncdata.executors.process.pool import PoolHandle

__all__ = ("CallExecutor", "workers_of")

CallExecutor: TypeAlias = "PoolHandle | Executor | Tuning | RemoteExecutor"
"""The executor of a stage's calls, if not threads or tasks of the pipeline; or AUTOTUNE's tuner."""


def process_workers(
    scope: Scope, work: GroupWork, workers: int, executor: PoolHandle | Executor, copied: bool
) -> Workers:
    """Return where the groups of a stage run that has an executor, of processes of ours or of the user's."""
    from asyncdata.executors.process.workers import EXECUTORS, ExecutorWorkers, ProcessWorkers

    if not isinstance(executor, Executor):
        return ProcessWorkers(executor, workers, work, scope.epoch, copied)
    EXECUTORS.check(executor, work.label)
    return ExecutorWorkers(executor, workers, work, scope.epoch)


def workers_of(scope: Scope, work: GroupWork, workers: int, executor: CallExecutor | None, copied: bool) -> Workers:
    """Return where the groups of a stage run."""
    if isinstance(executor, Tuning):
        from asyncdata.graph.autotuned_workers import autotuned_workers

        return autotuned_workers(scope, work, executor, copied)
    seeded = work.seeded(scope.owned.seed)
    if isinstance(executor, RemoteExecutor):
        return executor.workers(workers, seeded, scope.epoch, copied)
    if executor is not None:
        return process_workers(scope, seeded, workers, executor, copied)
    work = work.at(scope.epoch, scope.meter.function_seconds)
    if any(call.is_async for call in work.calls):
        return TaskWorkers(scope, workers, work.run_async, work.at_once)
    return ThreadWorkers(scope, workers, work.attempt, any(call.many_at_once for call in work.calls))

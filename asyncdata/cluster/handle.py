"""PoolHandle of a cluster: pipelines with equal settings share its actors, which end with the last of them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Final, Generic, TypeVar

from asyncdata.cluster.parcel import Parcel, copy_of
from asyncdata.cluster.pool import ActorPool, RemoteFunction
from asyncdata.cluster.ray_transport import RayTransport, ray_of
from asyncdata.cluster.remote_run import RunPool
from asyncdata.cluster.transport import CALLS, RUNS, ActorKind, Transport
from asyncdata.cluster.workers import ClusterWorkers
from asyncdata.cluster_settings import Cluster
from asyncdata.errors import PlanError, StageError
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.workers import held_by
from asyncdata.executors.workers import RemoteExecutor, Workers
from asyncdata.system import forks

__all__ = ("ActorPoolHandle", "ActorsBeforeCopy", "RunPoolHandle", "actors_of", "connection", "runs_of", "sent")

END_TIMEOUT: Final = 2.0

P = TypeVar("P", bound=ActorPool)


def connection(cluster: Cluster, kind: ActorKind) -> Callable[[], Transport]:
    """Return a function that connects to a cluster for actors of a kind; `MissingDependencyError` without Ray."""
    if find_spec("ray") is None:
        ray_of()
    return partial(RayTransport, cluster, kind)


class PoolHandle(Generic[P]):
    """A reference to a pool of actors, which ends with its last reference."""

    def __init__(self, cluster: Cluster, pool: P) -> None:
        self.cluster = cluster
        self.pool: P = pool
        POOLS.add(pool)
        weakref.finalize(self, pool.end).atexit = False
        forks.register(self)

    def disown(self) -> None:
        """Take no calls in a forked child: the connection is the parent's."""
        POOLS.discard(self.pool)
        forks.never_finalize(self.pool)
        self.pool = type(self.pool)(self.cluster, self.pool.connect)
        self.pool.refusal = StageError(
            "this process was forked from one that may be connected to Ray, and a fork cannot use that connection: "
            "start it with multiprocessing's 'spawn', or leave Options(cluster=) out here"
        )


class RunPoolHandle(PoolHandle[RunPool]):
    """A reference to the actors that run pipelines."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, RunPool(cluster, connection(cluster, RUNS)))


class ActorPoolHandle(PoolHandle[ActorPool], RemoteExecutor):
    """A reference to the actors that make calls."""

    name: ClassVar[str] = "cluster"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, ActorPool(cluster, connection(cluster, CALLS)))
        self.functions: weakref.WeakValueDictionary[bytes, RemoteFunction] = weakref.WeakValueDictionary()

    def workers(
        self, count: int, work: GroupWork, epoch: tuple[Any, ...], copied: bool, copied_next: bool = False
    ) -> Workers:
        return ClusterWorkers(self, self.pool, self.function(work), count, work, epoch, copied, copied_next)

    def function(self, work: GroupWork) -> RemoteFunction:
        """Return the work of a stage as it travels; `PlanError` if it cannot."""
        function = RemoteFunction(sent(work))
        return self.functions.setdefault(function.name, function)


class ActorsBeforeCopy(RemoteExecutor):
    """The same actors for a step whose results the next step copies: arrays among them come as views."""

    name: ClassVar[str] = ActorPoolHandle.name

    def __init__(self, actors: ActorPoolHandle) -> None:
        self.actors = actors

    def workers(self, count: int, work: GroupWork, epoch: tuple[Any, ...], copied: bool) -> Workers:
        return self.actors.workers(count, work, epoch, copied, copied_next=not copied)


def sent(work: GroupWork) -> Parcel:
    """Return a stage's functions as they travel to another machine, with a copy of the large data that they hold, which
    their user may change; `PlanError` for one that cannot."""
    try:
        held = held_by(work, elsewhere=True)
        return Parcel(held.head, tuple([copy_of(span.bytes) for span in held.spans]))
    except PlanError as error:
        error.add_note(
            "Options(cluster=) sends it to another machine; with executor=ThreadPoolExecutor(...) it stays here"
        )
        raise


POOLS: Final[weakref.WeakSet[ActorPool]] = weakref.WeakSet()
HANDLES: Final[weakref.WeakValueDictionary[Cluster, ActorPoolHandle]] = weakref.WeakValueDictionary()
RUN_HANDLES: Final[weakref.WeakValueDictionary[Cluster, RunPoolHandle]] = weakref.WeakValueDictionary()


def actors_of(cluster: Cluster) -> ActorPoolHandle:
    """Return the actors of a cluster: all pipelines of this process with these settings share them."""
    handle = HANDLES.get(cluster)
    if handle is None:
        handle = HANDLES[cluster] = ActorPoolHandle(cluster)
    return handle


def runs_of(cluster: Cluster) -> RunPoolHandle:
    """Return the actors of a cluster that run pipelines, which are shared likewise."""
    handle = RUN_HANDLES.get(cluster)
    if handle is None:
        handle = RUN_HANDLES[cluster] = RunPoolHandle(cluster)
    return handle


def end_actors() -> None:
    """End all actors before the interpreter exits: Ray would, too, but its threads must not run while it shuts down."""
    pools = [pool for pool in POOLS if pool.thread is not None]
    for pool in pools:
        pool.end()
    for pool in pools:
        if pool.thread is not None:
            pool.thread.join(END_TIMEOUT)


getattr(threading, "_register_atexit")(end_actors)  # noqa: B009 - as concurrent.futures does for its own threads

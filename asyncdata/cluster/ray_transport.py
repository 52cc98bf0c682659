"""Ray as a transport: actors that are never restarted by Ray, and whose results this process owns."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from asyncdata.cluster.actor import Greeting
from asyncdata.cluster.parcel import Parcel
from asyncdata.cluster.transport import GREET, SHUT_DOWN, Actor, ActorKind, Arrived, Loss
from asyncdata.cluster_settings import Cluster
from asyncdata.errors import StageError
from asyncdata.executors.global_random import seed_process
from asyncdata.system.optional_packages import require

__all__ = ("RayTransport", "ray_of")

log = logging.getLogger("asyncdata")

INSTALL: Final = "'asyncdata[ray]'"
MOST_WORDS: Final = 300

NO_TOKEN: Final = (
    "the Ray cluster demands a token, and this process has none or another one (from Ray 2.60 on a head demands one if "
    "a local ray.init() has left ~/.ray/auth_token there): set RAY_AUTH_MODE=token, and the head's token as "
    "RAY_AUTH_TOKEN or in ~/.ray/auth_token, before Ray is imported, on every machine; or start the head with "
    "RAY_AUTH_MODE=disabled if nobody else can reach it"
)


def ray_of() -> Any:
    """Return Ray; `MissingDependencyError` if it is not installed."""
    return require("ray", "Options(cluster=)", INSTALL)


class RayActor:
    """An actor of some kind, which reports its node, and has random numbers of its own."""

    def __init__(self, kind: ActorKind, copied: bool) -> None:
        seed_process()
        self.actor = kind.create(copied)

    def greet(self) -> Greeting:
        context = ray_of().get_runtime_context()
        return Greeting.of_this(context.get_node_id(), ray_of().util.get_node_ip_address())

    def do(self, method: str, *arguments: Any) -> Any:
        return getattr(self.actor, method)(*arguments)


class RayTransport:
    """The cluster that this process is connected to; if there is none, `ray.init()` chooses one."""

    def __init__(self, cluster: Cluster, kind: ActorKind) -> None:
        self.ray = ray_of()
        self.cluster = cluster
        self.kind = kind
        if not self.ray.is_initialized():
            log.info("not connected to a Ray cluster yet: calling ray.init()")
            self.join()
        self.context = self.ray.get_runtime_context()
        self.session = self.context.get_session_name()
        self.remote = self.ray.remote(
            num_cpus=cluster.num_cpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=kind.at_once,
            scheduling_strategy="SPREAD",
        )(RayActor)

    def join(self) -> None:
        """Connect to the cluster that Ray chooses."""
        try:
            self.ray.init()
        except Exception as error:
            if "authentication token" in "".join(map(str, causes(error))).lower():  # Ray's first line hides the reason
                raise StageError(NO_TOKEN) from error
            raise

    def connected(self) -> bool:
        # only what Python knows is asked for: calls of Ray's core after a shutdown end the process
        try:
            return self.ray.is_initialized() and self.context.get_session_name() == self.session
        except (RuntimeError, AttributeError, ConnectionError):  # it is being shut down
            return False

    def start(self) -> Actor:
        return self.remote.remote(self.kind, self.cluster.copy)

    def call(self, actor: Actor, method: str, arguments: tuple[Any, ...], arrived: Arrived) -> None:
        if not self.connected():  # a call would start a cluster of its own
            raise StageError(SHUT_DOWN)
        try:
            call = actor.greet.remote() if method == GREET else actor.do.remote(method, *arguments)
            future: Future[Any] = call.future()
        except Exception as error:  # noqa: BLE001 - a full object store, an actor that is gone
            arrived(None, error)
            return
        future.add_done_callback(partial(settle, arrived))

    def share(self, parcel: Parcel) -> Any:
        return self.ray.put(parcel)

    def lost(self, error: BaseException, greeting: Greeting | None) -> Loss | StageError:
        known = self.ray.exceptions
        if isinstance(error, known.ActorDiedError):
            if error.actor_init_failed:  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
                return StageError(f"an actor cannot start; asyncdata must be installed on every node: {error}")
            return Loss.ACTOR if greeting is not None and self.alive(greeting.node) else Loss.NODE
        if isinstance(error, (known.RayActorError, known.NodeDiedError, known.LocalRayletDiedError)):
            return Loss.NODE
        if isinstance(error, (known.ObjectStoreFullError, known.OutOfDiskError)):
            return StageError(
                f"Ray's object store is full: {error}; start Ray with a larger one (object_store_memory=), hold "
                "fewer batches, or use smaller ones"
            )
        if isinstance(error, (known.ObjectLostError, known.OwnerDiedError)):
            return Loss.RESULT
        return StageError(f"a call on the Ray cluster failed: {error!r}")

    def words(self, error: BaseException) -> str:
        return str(error).strip().splitlines()[-1][:MOST_WORDS]

    def alive(self, node: str) -> bool:
        """Return whether a node is there, by Ray's own list."""
        return any(one["NodeID"] == node and one["Alive"] for one in self.ray.nodes())

    def stop(self, actor: Actor) -> None:
        if self.connected():
            self.ray.kill(actor, no_restart=True)

    def shortage(self) -> str:
        total, free = self.ray.cluster_resources().get("CPU", 0), self.ray.available_resources().get("CPU", 0)
        advice = "add nodes, stop other jobs there, or set Cluster(num_cpus=) lower"
        if free >= self.cluster.num_cpus:
            advice = "its processes are starting, or start on no node: see `ray status` and Ray's logs"
        return (
            f"an actor needs {self.cluster.num_cpus:g} CPUs, the cluster has {total:g}, of which {free:g} are free: "
            f"{advice}"
        )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def settle(arrived: Arrived, future: Future[Any]) -> None:
    """Hand on the outcome of a call."""
    error = future.exception()
    arrived(None if error is not None else future.result(), error)

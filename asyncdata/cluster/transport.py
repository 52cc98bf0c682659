"""Transport: how the trainer reaches actors, and what a failed call means. One is for Ray; tests have another."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from asyncdata.cluster.actor import Greeting
from asyncdata.cluster.parcel import Parcel
from asyncdata.errors import StageError

__all__ = ("CALLS", "GREET", "RUNS", "SHUT_DOWN", "Actor", "ActorKind", "Arrived", "Loss", "Transport")

Actor: TypeAlias = Any
"""An actor as its transport knows it."""

Arrived: TypeAlias = Callable[[Any, BaseException | None], None]
"""The callback for the result of a call, or the reason why there is none; called from any thread, once."""


class ActorKind(NamedTuple):
    """A class of actors by name, which is imported on the workers, and how many methods of one may run at once."""

    module: str
    name: str
    at_once: int = 1

    def create(self, copied: bool) -> Any:
        """Return a new one; on a worker."""
        return getattr(import_module(self.module), self.name)(copied)


GREET: Final = "greet"
"""The first call of each actor: it answers with a `Greeting`."""

SHUT_DOWN: Final = "the connection to Ray was shut down while the pipeline ran; resume from its state"

CALLS: Final = ActorKind("asyncdata.cluster.actor", "CallActor")
RUNS: Final = ActorKind("asyncdata.cluster.run_actor", "RunActor", 32)


class Loss(Enum):
    """What was lost when a call failed."""

    ACTOR = "actor"
    """Its process ended: the call that ran may be to blame."""
    NODE = "node"
    """The machine, or the connection to it: not caused by a call."""
    RESULT = "result"
    """The result alone."""


class Transport(Protocol):
    """A connection to a cluster. All methods are called in one thread."""

    def start(self) -> Actor:
        """Start an actor, and return at once: its first call is made when the cluster has free resources."""
        ...

    def call(self, actor: Actor, method: str, arguments: tuple[Any, ...], arrived: Arrived) -> None:
        """Call a method of an actor, after those called before; `StageError` if there is no connection any more."""
        ...

    def share(self, parcel: Parcel) -> Any:
        """Return a parcel as the argument of many calls, which travels to each machine once; its buffers are one copy
        there for all actors, and read-only."""
        ...

    def lost(self, error: BaseException, greeting: Greeting | None) -> Loss | StageError:
        """Return what a failed call means; an error if the pipeline cannot continue."""
        ...

    def words(self, error: BaseException) -> str:
        """Return the reason of a failed call, in a line."""
        ...

    def stop(self, actor: Actor) -> None:
        """End an actor, if it is there, at once."""
        ...

    def connected(self) -> bool:
        """Return whether this is still the cluster that it was; if not, only `stop` and `words` may be called."""
        ...

    def shortage(self) -> str:
        """Return as text what an actor needs and the cluster has."""
        ...

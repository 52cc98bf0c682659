"""CallActor: runs on a worker of the cluster. It gets a stage's functions once, and calls them for groups."""

from __future__ import annotations

import os
import platform
import sys
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from asyncdata.cluster.parcel import Parcel
from asyncdata.errors import StageError
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.task import RemoteError, Task, carry_out
from asyncdata.executors.process.worker import ForeignError, sent
from asyncdata.memory.buffer_pool import empty, keep_memory_warm

__all__ = ("CallActor", "CallReply", "Greeting", "not_loaded")

MAX_FUNCTIONS: Final = 64


class Greeting(NamedTuple):
    """The first answer of an actor: its versions, its node and its process."""

    python: str
    asyncdata: str
    node: str = ""
    address: str = ""
    pid: int = 0

    @staticmethod
    def of_this(node: str = "", address: str = "") -> Greeting:
        own = getattr(sys.modules["asyncdata"], "__version__", "unknown")
        return Greeting(platform.python_version(), own, node, address or platform.node(), os.getpid())

    def differs(self, other: Greeting) -> bool:
        """Return whether functions of one process may not work, or not work the same, in the other."""
        return self.python.split(".")[:2] != other.python.split(".")[:2] or self.asyncdata != other.asyncdata


class CallReply(NamedTuple):
    """The reply to a call: an outcome or an error, packed; nothing if the actor does not have the functions."""

    parcel: Parcel | None

    @property
    def size(self) -> int:
        """How many bytes came."""
        return 0 if self.parcel is None else self.parcel.size


class CallActor:
    """One call at a time, in the order in which they arrive."""

    def __init__(self, copied: bool) -> None:
        self.copied = copied
        self.functions: OrderedDict[bytes, GroupWork] = OrderedDict()
        keep_memory_warm()

    def call(self, name: bytes, work: Parcel | None, parcel: Parcel) -> CallReply:
        """Do a task. Errors are in the reply."""
        try:
            function = self.learn(name, work)
            return CallReply(None if function is None else self.run_task(function, parcel))
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like end the pipeline, not the actor
            return CallReply(Parcel.of(RemoteError.of(error)))

    def learn(self, name: bytes, work: Parcel | None) -> GroupWork | None:
        """Return the work of a stage, which is unpickled once; nothing if it is not known and was not sent."""
        if name not in self.functions:
            if work is None:
                return None
            try:
                self.functions[name] = work.open(copied=False)
            except Exception as error:
                raise not_loaded(error) from error
        self.functions.move_to_end(name)
        while len(self.functions) > MAX_FUNCTIONS:
            self.functions.popitem(last=False)
        return self.functions[name]

    def run_task(self, work: GroupWork, parcel: Parcel) -> Parcel:
        """Do the work of a task and return its outcome."""
        task: Task = self.unpack_task(parcel)
        outcome = carry_out(work, task, unmarked, empty)
        return sent(outcome, task, work, Parcel.of, Parcel.of)

    def unpack_task(self, parcel: Parcel) -> Any:
        try:
            return parcel.open(self.copied)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise ForeignError(str(error)) from error


def not_loaded(error: Exception) -> StageError:
    """Return the error for functions that cannot be unpickled on this worker."""
    where = f"the worker {platform.node()} (process {os.getpid()}, Python {sys.version.split()[0]})"
    return StageError(
        f"{where} cannot load a function of the pipeline: {error!r}; install what it imports on every node of the "
        "cluster"
    )


def unmarked(_: int) -> None:
    """Do nothing: the caller sends suspect elements one by one, and knows the element."""

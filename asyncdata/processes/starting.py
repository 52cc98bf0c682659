"""How worker processes start: from a server that has imported what they need, and without running the user's script."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from multiprocessing.util import Finalize
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

__all__ = ("Context", "WorkerProcess", "at_exit", "modules_of", "preload")

METHOD: Final = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
BASE: Final = multiprocessing.get_context(METHOD)

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess as Process
else:
    Process = BASE.Process


STARTING: Final = threading.Lock()
"""Held while the main module has no name: of two threads one would find it so, and leave it so."""


class WorkerProcess(Process):
    """A process that does not import the parent's main module: functions from there travel whole."""

    def start(self) -> None:
        with STARTING, nameless_main():
            super().start()


@contextmanager
def nameless_main() -> Generator[None]:
    """Let multiprocessing believe that the main module is nothing to import.

    Else each worker would run the user's script up to its `if __name__ == "__main__"`, and fail without that line.
    """
    main: Any = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    main.__spec__ = ModuleSpec("__main__", None)
    try:
        yield
    finally:
        main.__spec__ = spec


def without_server() -> None:
    """Forget the fork server in a fork of this process: it is not that one's child, and would be refused there."""
    STARTING.release()
    server: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if server is not None:
        server.__init__()


if hasattr(os, "register_at_fork"):  # not while the main module has no name
    os.register_at_fork(before=STARTING.acquire, after_in_parent=STARTING.release, after_in_child=without_server)


@cache
def at_exit(end: Callable[[], object], process: int) -> None:
    """Have `end` called, once in a process, before multiprocessing waits for those that it has started.

    A process of multiprocessing does so before it calls anything else that was to be called at its end.
    """
    Finalize(None, end, exitpriority=100)  # queues of multiprocessing, by which they are told, close at 10


class Context:
    """The standard context, whose processes are kept in `started`."""

    def __init__(self) -> None:
        self.started: list[WorkerProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> WorkerProcess:  # noqa: N802 - the context's own name for it
        """Return a process to be started, and remember it."""
        process = WorkerProcess(*args, **kwargs)
        self.started.append(process)
        return process

    def __getattr__(self, name: str) -> Any:
        return getattr(BASE, name)


THREADED: Final = frozenset({"jax", "tensorflow"})
"""Packages that start threads when they are imported: a process that has done so must not fork."""


def modules_of(fn: Any) -> set[str]:
    """Return the modules that a function uses by name, which a worker would import first."""
    code, names = getattr(fn, "__code__", None), getattr(fn, "__globals__", {})
    used = [names.get(name) for name in code.co_names] if code is not None else []
    found = {module.__name__ for module in used if isinstance(module, ModuleType)}
    found.add(getattr(fn, "__module__", None) or "__main__")
    return {name for name in found - {"__main__"} if name.partition(".")[0] not in THREADED}


def preload(modules: set[str]) -> None:
    """Have the server import modules before it makes its first process; each one then has them at once."""
    if METHOD == "forkserver":
        BASE.set_forkserver_preload(
            ["asyncdata.processes.worker", "asyncdata.beside.child", "uvloop", *sorted(modules)]
        )

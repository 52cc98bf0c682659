"""How worker processes start: from a server that has imported what they need, and without running the user's script."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import connection, process, spawn
from multiprocessing.util import Finalize, get_temp_dir
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from asyncdata.executors.function_wrappers import MAINS
from asyncdata.executors.process.imports import current_folder, folders_elsewhere
from asyncdata.system import forks

__all__ = ("Context", "WorkerProcess", "at_exit", "modules_of", "preload")

METHOD: Final = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
BASE: Final = multiprocessing.get_context(METHOD)

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess as Process
else:
    Process = BASE.Process


class Spawn:
    """`multiprocessing.spawn` as the processes of this package are started with: it does not name the main module.

    Else each worker would run the user's script up to its `if __name__ == "__main__"`, and fail without that line.
    """

    def get_preparation_data(self, name: str) -> dict[str, Any]:
        """Return the preparation of a process before it unpickles its target, without the import of the parent's main
        module. An empty entry of `sys.path` remains the current folder, and this package is found in any case."""
        data: dict[str, Any] = spawn.get_preparation_data(name)
        data["sys_path"] = [*sys.path, str(Path(__file__).parents[3])]
        return {key: value for key, value in data.items() if not key.startswith("init_main")}

    def __getattr__(self, name: str) -> Any:
        return getattr(spawn, name)


def popen_without_main(base: Any) -> Any:
    """Return a subclass of one of multiprocessing's `Popen` classes that sends nothing about the main module.

    The method that starts a process is bound to another `spawn`. Processes that other code starts do not change.
    """
    name = "_launch" if hasattr(base, "_launch") else "__init__"  # the latter on Windows
    launch: Any = getattr(base, name)
    names = {**launch.__globals__, "spawn": Spawn()}
    return type("Popen", (base,), {name: FunctionType(launch.__code__, names, name, None, launch.__closure__)})


@cache
def popen() -> Any:
    """Return the class that starts worker processes on this system."""
    module = "popen_forkserver"
    if METHOD == "spawn":
        module = "popen_spawn_win32" if sys.platform == "win32" else "popen_spawn_posix"
    return popen_without_main(importlib.import_module(f"multiprocessing.{module}").Popen)


STARTING: Final = forks.lock()
"""Held while a process is started: a child forked meanwhile would hold open the pipes that signal its end."""

START_TRIES: Final = 5
START_PAUSE: Final = 0.02
"""Seconds before a process is started again whose server has died; twice as long each time."""
ENDING: Final = 10.0
"""Seconds that a server which takes no more connections is given to end: on a busy machine it takes more than one."""


class WorkerProcess(Process):
    """A process that does not import the parent's main module: functions from there are pickled by value.

    It begins when its parent knows that it has started. A fork server may die just after it has forked a process, and
    before it has said so: that one ends, as another is started in its place, with the same pipes and queues.
    """

    is_ending = False
    """Whether it was terminated from here."""
    begin: connection.Connection | None = None
    """From where the process hears that it may begin."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's own name for it
        return popen()(process_obj)

    def start(self) -> None:
        """Start it. If the fork server dies meanwhile, start again with a new one, a few times."""
        current_folder()
        for attempt in range(START_TRIES):
            try:
                with STARTING, short_socket_path(), self.told_to_begin():
                    super().start()
                    forks.register(self)
            except ChildProcessError:  # this process was forked before this module was imported
                without_server()
            except (*SERVER_DIED, RuntimeError) as error:  # the next try starts a server
                give_up_preloading()
                if isinstance(error, RuntimeError) and UNANSWERED not in str(error):
                    raise
                if attempt == START_TRIES - 1:
                    raise ServerDiedError(
                        f"the fork server of multiprocessing has ended {START_TRIES} times while it started a "
                        f"process ({error!r}); its output says why: a module that fails when it is imported, too "
                        "little memory, or another process that kills it"
                    ) from error
                wait_for_end(error, START_PAUSE * 2**attempt)
            else:
                return

    @contextmanager
    def told_to_begin(self) -> Generator[None]:
        """Let the process begin if the body starts it; if that fails, a process that was forked all the same ends."""
        self.begin, told = BASE.Pipe(duplex=False)
        with self.begin, told:
            yield
            with suppress(OSError):  # it has already ended
                told.send_bytes(b"begin")
        self.begin = None

    def run(self) -> None:
        """Do the work of the process, in it, once it may."""
        if self.begin is not None:
            with self.begin:
                try:
                    self.begin.recv_bytes()
                except EOFError:
                    return
        super().run()

    def terminate(self) -> None:
        """End it, and record that, unless it has already ended."""
        if self.exitcode is None:
            self.is_ending = True
            super().terminate()

    def disown(self) -> None:
        """Be no child of a forked child, which could neither join it nor may read how it ended."""
        getattr(process, "_children").discard(self)  # noqa: B009
        forks.never_finalize(self)


MOST_SOCKET_PATH: Final = 103
"""The longest path of a socket, in bytes, that all systems allow."""
SOCKET_NAME: Final = 20
"""At least as many bytes as the name that multiprocessing gives the fork server's socket, with a slash before it."""


@contextmanager
def short_socket_path() -> Generator[None]:
    """Have a fork server that is started meanwhile make its socket elsewhere, if the path in TMPDIR would be too long.

    Batch systems such as Slurm set TMPDIR to long paths. Python 3.14 does the same.
    """
    config: dict[str, Any] = getattr(process.current_process(), "_config")  # noqa: B009
    if METHOD != "forkserver" or len(os.fsencode(usual := get_temp_dir())) + SOCKET_NAME <= MOST_SOCKET_PATH:
        yield
        return
    config["tempdir"] = short_folder(os.getpid()) or usual
    try:
        yield
    finally:
        config["tempdir"] = usual


@cache
def short_folder(process: int) -> str | None:
    """Return a folder of a process with a short path, which is removed at its exit; `None` if none can be made."""
    for parent in ("/tmp", "/var/tmp", "/dev/shm"):
        with suppress(OSError):
            folder = mkdtemp(prefix="pymp-", dir=parent)
            Finalize(None, rmtree, (folder, True), exitpriority=-100)  # as multiprocessing's own
            return folder
    return None


SERVER_DIED: Final = (EOFError, ConnectionError, FileNotFoundError)
"""The errors raised if the fork server does not answer, or its socket is gone."""
UNANSWERED: Final = "did not receive acknowledgement"
"""What the `RuntimeError` says that is raised instead, on macOS and from Python 3.14, if the server takes what it is
sent and ends."""


class ServerDiedError(RuntimeError):
    """No process could be started, as the fork server ends again and again."""


def wait_for_end(error: Exception, pause: float) -> None:
    """Wait for the fork server to end, which is replaced only then; only briefly, unless it accepts no connections."""
    server: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    try:
        descriptor = os.pidfd_open(getattr(server, "_forkserver_pid"))  # noqa: B009 - multiprocessing's own
    except (AttributeError, TypeError, OSError):  # no Linux, no server, or no descriptor left
        time.sleep(pause)
        return
    try:
        connection.wait([descriptor], ENDING if isinstance(error, ConnectionRefusedError) else pause)
    finally:
        os.close(descriptor)


def without_server() -> None:
    """Forget the fork server in a fork of this process: it is not that one's child, and would be refused there."""
    server: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if server is not None:
        modules = preloaded(server)
        server.__init__()
        server.set_forkserver_preload(modules)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=without_server)


@cache
def at_exit(end: Callable[[], object], process: int) -> None:
    """Have `end` called, once in a process, before multiprocessing waits for those that it has started.

    A process of multiprocessing does so before any other call at its end.
    """
    Finalize(None, end, exitpriority=100)  # queues of multiprocessing, which carry the request, close at 10


class Context:
    """The standard context, which stores its processes in `started`."""

    def __init__(self) -> None:
        self.started: list[WorkerProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> WorkerProcess:  # noqa: N802 - the context's own name for it
        """Return a process to be started, and remember it."""
        process = WorkerProcess(*args, **kwargs)
        self.started.append(process)
        return process

    def __getattr__(self, name: str) -> Any:
        return getattr(BASE, name)


THREADED: Final = frozenset({"jax", "polars", "tensorflow"})
"""Packages that start threads when they are imported: a process that has done so must not fork."""


def modules_of(fn: Any) -> set[str]:
    """Return the modules that a function uses by name, which a worker would import first."""
    code, names = getattr(fn, "__code__", None), getattr(fn, "__globals__", {})
    used = [names.get(name) for name in code.co_names] if code is not None else []
    found = {module.__name__ for module in used if isinstance(module, ModuleType)}
    found.add(getattr(fn, "__module__", None) or "__main__")
    others = THREADED.union(folders_elsewhere())  # the server would look for the latter in other folders
    return {name for name in found.difference(MAINS) if name.partition(".")[0] not in others}


OFTEN: Final = ("threadpoolctl", "uvloop")
"""Packages that each process uses if they are there."""


REFUSED: Final[set[str]] = set()
"""Modules with which a server has ended before it made a process."""
PRELOADED: Final[list[str]] = []
"""The installed modules that the server that is started next imports."""


def preload(modules: set[str], installed: Sequence[str] = ()) -> None:
    """Have the server import modules before it makes its first process; each one then has them at once.

    With `installed` ones it ends if they have started threads, or fail, and the next server is without them.
    """
    if METHOD != "forkserver":
        return
    PRELOADED[:] = []
    if sys.platform == "linux":  # elsewhere a server cannot know about threads
        PRELOADED[:] = [one for one in installed if one not in REFUSED and one.partition(".")[0] not in THREADED]
    package = __package__ or ""
    watched = [f"{package}.preload_begins", *PRELOADED, f"{package}.preload_ends"] if PRELOADED else []
    tell_server([f"{package}.worker", "asyncdata.process_engine.server", *OFTEN, *sorted(modules), *watched])


TOLD: Final[list[str]] = []
"""The modules that the server was told last to import."""
CHOSEN: Final[list[str]] = []
"""Those among them that the program had told it, by `multiprocessing.set_forkserver_preload`."""


def tell_server(modules: list[str]) -> None:
    """Have a server that is started next import these modules, behind those that the program has chosen."""
    module: Any = importlib.import_module("multiprocessing.forkserver")
    names = preloaded(getattr(module, "_forkserver"))  # noqa: B009
    if names != TOLD:
        CHOSEN[:] = [] if names == ["__main__"] else names  # which is multiprocessing's own choice
    TOLD[:] = [*CHOSEN, *modules]
    BASE.set_forkserver_preload([*TOLD])


def preloaded(server: Any) -> list[str]:
    """Return the modules that a fork server is told to import."""
    return getattr(server, "_preload_modules")  # noqa: B009


def give_up_preloading() -> None:
    """Have a server that is started next import no installed modules: one of them may be why the last one has ended."""
    if PRELOADED:
        REFUSED.update(PRELOADED)
        tell_server([name for name in TOLD[len(CHOSEN) :] if name not in REFUSED and "preload_" not in name])

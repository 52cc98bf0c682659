"""How worker processes start: they disturb no other process, and outlive the end of the fork server."""

from __future__ import annotations

import importlib.util
import io
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.reduction
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import asyncdata as ad
from asyncdata.executors.process import spawn
from asyncdata.executors.process.pool import PoolHandle, Processes
from asyncdata.executors.process.spawn import WorkerProcess, popen_without_main
from tests.marks import first_by_default

PROGRAM = Path(__file__).parents[2] / "faults" / "starting.py"
SERVER: Any = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]  # noqa: SLF001

forkserver = pytest.mark.skipif(spawn.METHOD != "forkserver", reason="has no fork server")


@pytest.mark.parametrize(("method", "count"), first_by_default([("forkserver", 5), ("spawn", 2)]))
def test_processes_of_others_find_their_main_module_while_workers_start(method: str, count: int) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), method, str(count)], capture_output=True, text=True, timeout=60, check=False
    )
    assert re.findall(r"mine (\d)", done.stdout) == [*map(str, range(count))], done.stderr
    assert done.stdout.count("imported") == count, "those that are the script's own, and no worker"


FORKED_FIRST = """
import multiprocessing, os
process = multiprocessing.get_context("forkserver").Process(target=print)
process.start()  # so the server is there before any module of the package could be told of a fork
process.join()
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
import asyncdata as ad
assert list(ad.Dataset.range(3).map(abs, 1, executor="process")) == [0, 1, 2]
"""


def test_elements_come_before_the_last_process_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no thread of a pipeline starts one, for which it would have to wait."""
    start, starters, come = WorkerProcess.start, list[str](), threading.Event()

    def start_later(process: WorkerProcess) -> None:
        starters.append(threading.current_thread().name)
        assert len(starters) == 1 or come.wait(20)
        start(process)

    monkeypatch.setattr(WorkerProcess, "start", start_later)
    with ad.Dataset.range(3000).map(abs, num_parallel_calls=3, executor="process").iterate() as elements:
        assert [next(elements) for _ in range(100)] == [*range(100)]
        come.set()
        assert [*elements] == [*range(100, 3000)]
    assert {*starters} == {"asyncdata-pool"}


@forkserver
def test_a_child_of_a_process_that_has_a_fork_server_starts_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED_FIRST], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def preloaded() -> list[str]:
    """Return the modules that the server is told to import."""
    return SERVER._preload_modules  # noqa: SLF001


@forkserver
def test_the_server_imports_what_the_program_has_told_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SERVER, "_preload_modules", ["__main__"])
    for name in ("PRELOADED", "TOLD", "CHOSEN"):
        monkeypatch.setattr(spawn, name, [])
    monkeypatch.setattr(spawn, "REFUSED", set())
    for own in ([], ["one", "two"], ["three"]):
        if own:
            SERVER.set_forkserver_preload(own)
        for _ in "ab":
            spawn.preload({"of.a.function"})
            assert preloaded()[: len(own)] == own
            assert preloaded()[len(own)].startswith("asyncdata.")
            assert preloaded()[-1] == "of.a.function"
        spawn.preload(set(), own)
        spawn.give_up_preloading()
        assert preloaded()[: len(own) + 1] == [*own, "asyncdata.executors.process.worker"]


TOLD_BEFORE_FORK = """
import multiprocessing.forkserver, os
multiprocessing.set_forkserver_preload(["one"])
import asyncdata.executors.process.spawn
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert multiprocessing.forkserver._forkserver._preload_modules == ["one"]
"""


@forkserver
def test_a_forked_child_has_its_server_import_what_the_program_has_told() -> None:
    done = subprocess.run([sys.executable, "-c", TOLD_BEFORE_FORK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_process_is_told_nothing_of_the_main_module_on_windows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent = tmp_path / "sent"
    descriptor = os.open(sent, os.O_CREAT | os.O_WRONLY)
    handles = SimpleNamespace(
        CreatePipe=lambda *_: (0, 0), CreateProcess=lambda *_: (1, 2, 3, 4), CloseHandle=lambda _: None
    )
    monkeypatch.setitem(sys.modules, "_winapi", handles)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(open_osfhandle=lambda *_: descriptor))  # type: ignore[arg-type]
    for name in ("STARTUPINFO", "STARTF_FORCEOFFFEEDBACK"):  # which Python 3.14 imports there
        monkeypatch.setattr(subprocess, name, SimpleNamespace, raising=False)
    monkeypatch.setattr(multiprocessing.spawn, "get_command_line", lambda **_: [])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "main.py", raising=False)
    spec = importlib.util.find_spec("multiprocessing.popen_spawn_win32")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "_base_executable", sys.executable)
    spec.loader.exec_module(module)
    assert "init_main_from_path" in multiprocessing.spawn.get_preparation_data("name")
    process = popen_without_main(module.Popen)(SimpleNamespace(_name="name", answer=42))
    process.finalizer.cancel()
    data = pickle.load(pickled := io.BytesIO(sent.read_bytes()))
    assert data["name"] == "name"
    assert not [key for key in data if "main" in key]
    assert pickle.load(pickled).answer == 42


def kill_server() -> None:
    """Kill the fork server; whether it has ended is not seen by then."""
    os.kill(SERVER._forkserver_pid, signal.SIGKILL)  # noqa: SLF001


def starting() -> bool:
    """Tell whether the caller is called for a process that starts, and not for one of an earlier test that ends."""
    return sys._getframe(2).f_code.co_name == "_launch"  # noqa: SLF001


@forkserver
@pytest.mark.slow
def test_a_process_whose_fork_server_is_killed_is_started_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    connect, send = multiprocessing.forkserver.connect_to_new_process, multiprocessing.reduction.sendfds
    tries = list[int]()

    def killed(fds: list[int]) -> tuple[int, int]:
        """Kill the server at each of its steps: before it is asked, and before it has answered."""
        tries.append(len(tries))
        SERVER.ensure_running()
        if len(tries) == 1:
            kill_server()
        pipes = connect(fds)
        if len(tries) == 2:
            kill_server()
        return pipes

    def stopped(sock: Any, fds: list[int]) -> None:
        if len(tries) == 2:  # after Python 3.14's two sides have shown each other that they know the key
            os.kill(SERVER._forkserver_pid, signal.SIGSTOP)  # noqa: SLF001
        send(SimpleNamespace(sendmsg=sock.sendmsg, recv=lambda count: acknowledged(sock, count)), fds)

    def acknowledged(sock: Any, count: int) -> bytes:
        """Kill the server before it has acknowledged the descriptors, for which Python waits on macOS and from 3.14."""
        if len(tries) in {2, 3}:
            kill_server()
        return b"" if len(tries) == 3 else sock.recv(count)

    monkeypatch.setattr(multiprocessing.forkserver, "connect_to_new_process", killed)
    monkeypatch.setattr(multiprocessing.reduction, "sendfds", stopped)
    for _ in range(3):  # where the first death is seen before the server is asked, that takes no other try
        process = WorkerProcess(target=sys.exit, args=(7,))
        process.start()
        process.join()
        assert process.exitcode == 7
    assert len(tries) >= 3


@forkserver
@pytest.mark.slow
def test_a_pool_whose_fork_server_is_killed_while_it_starts_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read, starts = multiprocessing.forkserver.read_signed, list[int]()

    def killed(fd: int) -> int:
        """Kill the server once, after its first process has started."""
        starts.extend([fd] * starting())
        if starting() and len(starts) == 2:
            kill_server()
        return read(fd)

    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", killed)
    pool = PoolHandle(2)
    ds = ad.Dataset.range(300).map(abs, executor="process")
    object.__setattr__(ds.plan, "executor", pool)
    assert list(ds) == [*range(300)]
    assert len(starts) >= 3


@forkserver
def test_a_pipeline_whose_fork_server_is_killed_while_its_process_starts_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, starts = multiprocessing.forkserver.read_signed, list[int]()

    def killed(fd: int) -> int:
        starts.extend([fd] * starting())
        if starting() and len(starts) == 1:
            kill_server()
            raise EOFError
        return read(fd)

    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", killed)
    assert list(ad.Dataset.range(9).with_options(ad.Options(placement="process"))) == [*range(9)]
    assert len(starts) >= 2


@forkserver
@pytest.mark.parametrize("way", ["pool", "pipeline"])
def test_a_process_that_a_fork_server_forked_just_before_it_died_does_nothing(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, lost = multiprocessing.forkserver.read_signed, list[int]()

    def killed(fd: int) -> int:
        found = read(fd)
        if starting() and not lost:
            lost.append(os.pidfd_open(found))
            kill_server()
            raise EOFError
        return found

    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", killed)
    ds = ad.Dataset.range(300).map(abs, executor="process" if way == "pool" else None)
    if way == "pool":
        object.__setattr__(ds.plan, "executor", PoolHandle(2))
    else:
        ds = ds.with_options(ad.Options(placement="process"))
    assert list(ds) == [*range(300)]
    assert multiprocessing.connection.wait(lost, 60) == lost
    os.close(lost[0])


@forkserver
@pytest.mark.parametrize("way", ["pool", "pipeline"])
def test_a_fork_server_that_always_ends_is_an_error_that_says_so(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(fds: list[int]) -> tuple[int, int]:
        raise ConnectionRefusedError

    monkeypatch.setattr(multiprocessing.forkserver, "connect_to_new_process", gone)
    monkeypatch.setattr(spawn, "START_PAUSE", 0.0)
    monkeypatch.setattr(spawn, "ENDING", 0.0)
    ds = ad.Dataset.range(3).map(abs, executor="process" if way == "pool" else None)
    if way == "pool":
        object.__setattr__(ds.plan, "executor", PoolHandle(1))
    else:
        ds = ds.with_options(ad.Options(placement="process"))
    with pytest.raises(ad.StageError, match="fork server of multiprocessing has ended 5 times"):
        list(ds)


LONG = """
import os, pathlib, sys, tempfile
import asyncdata as ad
for _ in range(2):
    assert list(ad.Dataset.range(3).map(abs, 1, executor="process")) == [0, 1, 2]
assert list(ad.Dataset.range(3).with_options(ad.Options(placement="process"))) == [0, 1, 2]
import multiprocessing
if sys.version_info < (3, 14):  # which itself takes another folder
    assert multiprocessing.util.get_temp_dir().startswith(sys.argv[1])
print(multiprocessing.forkserver._forkserver._forkserver_address)
"""


@forkserver
@pytest.mark.parametrize("length", first_by_default([120, 60, 80, 84, 88, 200]))
def test_workers_start_whatever_length_the_path_of_temporary_files_has(length: int, tmp_path: Path) -> None:
    folder = str(tmp_path / "x") if len(str(tmp_path)) >= length - 2 else str(tmp_path / ("x" * length))[:length]
    Path(folder).mkdir()
    command = [sys.executable, "-c", LONG, folder]
    done = subprocess.run(
        command, env={**os.environ, "TMPDIR": folder}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).parent.exists(), "it was removed at the exit"


MOVED = """
import os, sys
assert sys.path[0] == ""
for folder in ("first", "second"):
    os.makedirs(folder)
    for name in ("early", "late", "beside"):
        with open(f"{folder}/{name}.py", "w") as file:
            file.write(f"def here(_):\\n    return {folder!r}\\n")
os.makedirs("second/package")
with open("second/package/__init__.py", "w") as file:
    file.write("from package.part import here")
with open("second/package/part.py", "w") as file:
    file.write("def here(_):\\n    import beside\\n    return beside.here(_)\\n")
os.chdir("first")
import early
import asyncdata as ad

def run(fn):
    if sys.argv[1] == "executor":
        return ad.Dataset.range(2).map(fn, 1, executor="process")
    return ad.Dataset.range(2).map(fn).with_options(ad.Options(placement="process"))

kept = run(early.here)  # with it, worker processes
assert list(kept) == ["first"] * 2
os.chdir("../second")
import late, package
for fn, folder in ((early.here, "first"), (late.here, "second"), (package.here, "second")):
    assert list(run(fn)) == [folder] * 2, (fn, folder)

def beside(_):
    with open("beside.py") as file:
        return "second" in file.read()

ds = run(beside)
for folder in ("first", "second", "first"):
    os.chdir(f"../{folder}")
    assert list(ds) == [folder == "second"] * 2
os.makedirs("gone")
os.chdir("gone")
os.rmdir("../gone")
try:
    list(ds)
except ad.StageError as error:
    assert "current folder of this process was removed" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.parametrize("where", first_by_default(["executor", "placement"]))
def test_workers_find_the_modules_of_a_notebook_whose_folder_has_changed(where: str, tmp_path: Path) -> None:
    """Of modules of one name in several folders, they find the one that was imported."""
    path = {"PYTHONPATH": str(Path(ad.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", MOVED, where],
        cwd=tmp_path,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class OnlySaysSo:
    """As `lib` of cffi is: it says that it is a module, and has no attributes of one."""

    __slots__ = ()
    __class__ = property(lambda self: ModuleType)  # type: ignore[assignment]


def test_what_only_says_that_it_is_a_module_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "library_of_cffi", OnlySaysSo())
    assert isinstance(sys.modules["library_of_cffi"], ModuleType)
    assert list(ad.Dataset.range(3).map(abs, num_parallel_calls=1, executor="process")) == [0, 1, 2]


STILL_READS = """
import threading
import asyncdata as ad

reads = threading.Event()

def read():
    count = 0
    try:
        for number in ad.Dataset.range(10**6).map(abs, num_parallel_calls=1, executor="process"):
            assert number == count
            count += 1
            reads.set()
    except ad.ClosedError as error:
        print(0 < count < 10**6, error)

if __name__ == "__main__":
    threading.Thread(target=read).start()
    reads.wait()
"""


NO_TIMER = """
import threading

def refuse(timer):
    raise RuntimeError("can't create new thread at interpreter shutdown")

threading.Timer.start = refuse
"""


@pytest.mark.parametrize("before", ["", NO_TIMER], ids=["", "no timer"])
def test_a_thread_that_reads_when_the_main_thread_ends_is_told(before: str) -> None:
    """`concurrent.futures` takes no more work then, and Python 3.12.1 starts no threads."""
    command = [sys.executable, "-c", before + STILL_READS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("True the worker processes were ended before the end of the data")


def test_processes_may_be_added_while_a_thread_goes_through_them() -> None:
    """As when one dies while others are started."""
    processes, one = Processes(), mock.Mock()
    processes[0] = one
    for count, _ in enumerate(processes.values(), 1):
        processes[count] = one
    assert len(processes) == 2

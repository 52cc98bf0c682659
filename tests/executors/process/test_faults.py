"""Worker processes that are killed, that never return, or whose parent is killed."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import unstarted
from asyncdata.executors.process import pool
from asyncdata.executors.process.pool import PendingGroup, PoolHandle, pool_of
from asyncdata.executors.process.shm_arena import SlotReader, Slots, pack
from asyncdata.executors.process.worker import TaskReply, be_ready
from asyncdata.testing import leaves_nothing
from tests.executors.process.children import alive, children_of, workers
from tests.executors.process.test_map import outcomes, processes
from tests.marks import first_by_default

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")

PROGRAM = Path(__file__).parents[2] / "faults" / "worker_pool.py"


def until(condition: Any, seconds: float = 60.0) -> bool:
    """Whether something becomes true; the kernel tells nobody when a process of another has ended."""
    deadline = time.monotonic() + seconds
    gate = threading.Event()
    while not condition() and time.monotonic() < deadline:
        gate.wait(0.01)
    return bool(condition())


def start(what: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def read_until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    while (line := process.stdout.readline().strip()) not in ("ready", ""):
        lines.append(line)
    return lines


def press_ctrl_c(process: subprocess.Popen[str], below: list[int]) -> tuple[str, str]:
    """Press Ctrl-C for a process and those below it, as a terminal does; return what is printed until it ends.

    Python loses one that comes while an object goes away, as results in shared memory do, and says so: once in some
    hundreds. It is pressed again then.
    """
    for lost in range(4):
        for pid in (process.pid, *below):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        try:
            out, errors = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            continue
        assert errors.count("Exception ignored in") == lost, errors
        return out, errors
    process.kill()
    raise AssertionError(f"it goes on: {process.communicate()}")


def kill_now_and_then(stop: threading.Event, kills: list[int], found: list[Any], every: float = 0.3) -> None:
    """Kill a worker every 0.3 s; where the machine takes longer for the elements that were in flight, after those:
    what is killed twice at the same element is that element's fault as far as anybody can tell."""
    dice, before = random.Random(5), 0
    while not stop.wait(every):
        if (alive := workers()) and len(found) >= before:
            before = len(found) + 200
            kills.append(dice.choice(alive))
            try:
                os.kill(kills[-1], signal.SIGKILL)
            except ProcessLookupError:
                kills.pop()


def slowly(number: int) -> tuple[int, Any]:
    total = sum(range(20_000))
    return number, np.full(2_000, number + 0 * total)


@pytest.mark.slow
def test_workers_that_are_killed_again_and_again_cost_nothing_but_time() -> None:
    stop, kills, found = threading.Event(), list[int](), list[Any]()
    killer = threading.Thread(target=kill_now_and_then, args=(stop, kills, found))
    killer.start()
    try:
        for element in processes(ad.Dataset.range(2000).repeat(), slowly):
            found.append(element)
            if len(kills) >= 10 and len(found) >= 3000:
                break
    finally:
        stop.set()
        killer.join()
    assert [number for number, _ in found] == [place % 2000 for place in range(len(found))]
    assert all((array == number).all() for number, array in found)


def kills_itself(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def leaves(number: int) -> int:
    if number == 5:
        os._exit(3)
    return number


def terminates_itself(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGTERM)
    return number


@pytest.mark.parametrize("placement", first_by_default(["thread", "process", "current"]))
@pytest.mark.parametrize(
    ("fn", "how"), [(kills_itself, "SIGKILL"), (leaves, "exit code 3"), (terminates_itself, "SIGTERM")]
)
def test_an_element_that_kills_twice_fails_in_its_place(fn: Any, how: str, placement: Any) -> None:
    found = outcomes(processes(ad.Dataset.range(12), fn).with_options(ad.Options(placement=placement)))
    assert found[:5] + found[6:] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    kind, text, notes = found[5]
    assert kind is ad.WorkerCrashed
    assert how in text
    assert "element 5" in notes[0]
    assert fn.__name__ in notes[0]


def test_an_element_of_a_large_group_that_kills_fails_alone() -> None:
    found = outcomes(processes(ad.Dataset.range(700), lambda n: os._exit(1) if n == 600 else n))
    assert found[:600] + found[601:] == [*range(600), *range(601, 700)]
    assert found[600][0] is ad.WorkerCrashed


def test_a_batch_that_kills_fails_in_all_its_places() -> None:
    def fatal(batch: Any) -> Any:
        if 5 in batch:
            os._exit(1)
        return batch

    found = outcomes(processes(ad.Dataset.range(12), fatal, batch=4))
    assert found[:4] + found[8:] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert {kind for kind, _, _ in found[4:8]} == {ad.WorkerCrashed}


def test_a_worker_that_is_terminated_is_replaced() -> None:
    ds = processes(ad.Dataset.range(300), slowly)
    with ds.iterate() as elements:
        next(elements)
        for worker in workers():
            os.kill(worker, signal.SIGTERM)
        assert [number for number, _ in elements] == list(range(1, 300))


def test_a_worker_that_waits_for_a_lock_which_one_that_died_held_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "END_TIMEOUT", 0.1)
    handle = PoolHandle(2)
    ds = ad.Dataset.range(300).map(slowly, executor="process")
    object.__setattr__(ds.plan, "executor", handle)
    assert [number for number, _ in ds] == [*range(300)]
    executor: Any = handle.pool.executor
    lock = executor._call_queue._rlock  # noqa: SLF001  one that is killed at the right moment leaves it so
    holder = threading.Thread(target=lock.acquire)
    holder.start()
    while holder.is_alive():
        executor.submit(be_ready)  # whoever waits for work lets go of the lock when it has some
        holder.join(0.01)
    handle.pool.report(executor)  # as if a result's memory were gone, which is seen before the end of its worker
    assert [number for number, _ in ds] == [*range(300)]
    assert handle.pool.executor is not executor


def test_processes_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PoolHandle(1)
    monkeypatch.setattr(pool.pool.context, "Process", lambda *_, **__: (_ for _ in ()).throw(OSError("no more")))
    ds = ad.Dataset.range(3).map(slowly, executor="process")
    object.__setattr__(ds.plan, "executor", pool)
    for _ in range(2):
        with pytest.raises(ad.StageError, match="cannot be started.*no more"):
            list(ds)
    monkeypatch.undo()
    assert [number for number, _ in ds] == [0, 1, 2]


def test_an_import_that_finds_too_many_files_open_says_what_to_do() -> None:
    problem = ImportError(f"_posixshmem.so: cannot open shared object file: {os.strerror(errno.EMFILE)}")
    assert any("ulimit -n" in note for note in unstarted("the worker processes", problem).__notes__)
    assert not getattr(unstarted("the worker processes", ImportError("no such file")), "__notes__", [])


@pytest.mark.slow
@pytest.mark.parametrize("options", ["ro", "size=4k"])
def test_a_dev_shm_that_takes_no_files_is_an_error_that_says_so(options: str) -> None:
    mount = f"mount -t tmpfs -o {options} tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False, capture_output=True).returncode:
        pytest.skip("cannot mount another /dev/shm")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable, str(PROGRAM), "leave"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 1
    assert "a lock between processes is a small file of /dev/shm" in done.stderr


def test_a_job_that_is_done_just_as_it_is_dropped_is_no_error() -> None:
    class Done(PendingGroup):
        """Is asked for its future when another thread is about to take that away."""

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name == "future":
                self.future = None
            return value

    job = Done(lambda _: None, lambda _: None, True)
    job.future = waiting = Future()
    pool_of(2).pool.drop(job)
    assert waiting.cancelled()


def never_made() -> None:
    raise AttributeError("module '__main__' has no such name")


class NeverMade:
    """An element that no process can load, as it seems because of the main script."""

    def __reduce__(self) -> Any:
        return never_made, ()


def test_elements_that_no_process_can_load_fail_in_their_places() -> None:
    ds = ad.Dataset.from_iterable([0, NeverMade(), 2]).map(abs, executor="process", num_parallel_calls=1)
    found = outcomes(ds)
    assert found[::2] == [0, 2]
    kind, text, notes = found[1]
    assert kind is AttributeError
    assert text == "module '__main__' has no such name"
    assert notes == ["in map(abs), element 1"]


def test_the_processes_end_with_the_last_dataset_that_uses_them() -> None:
    before = set(workers())
    with leaves_nothing():
        ds = ad.Dataset.range(30).map(slowly, 3, executor="process")
        assert len(list(ds)) == 30
        mine = set(workers()) - before
        assert len(mine) == 3
        del ds
    assert until(lambda: not any(map(alive, mine)))


@pytest.mark.slow
def test_a_parent_that_is_killed_takes_everything_along() -> None:
    process = start("run")
    lines = read_until_ready(process)
    below = children_of(process.pid)
    assert lines == ["main", "0", "1", "2"], "the script runs once, in the parent alone"
    assert len(below) >= 3
    files = shared_files([process.pid, *below])
    assert files, "the pool's own semaphores"
    process.kill()
    process.communicate()
    assert until(lambda: not any(map(alive, below))), "processes left"
    assert not [file for file in files if file.exists()], "shared memory left"


def shared_files(processes: list[int]) -> set[Path]:
    """Return the files of shared memory that processes have mapped and that others could find."""
    lines = [line for process in processes for line in Path(f"/proc/{process}/maps").read_text().splitlines()]
    named = {Path(line.split(maxsplit=5)[-1]) for line in lines if " /dev/shm/" in line}
    return {file for file in named if file.exists()}


@pytest.mark.slow
def test_a_small_dev_shm_does_no_harm() -> None:
    """160 MB of results are kept where `/dev/shm` has 64 MB, as in a container."""
    small = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", small], check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a small /dev/shm")
    program = f'{small} && exec "$0" "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", program, sys.executable, str(PROGRAM), "retained"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert "250 160" in done.stdout.splitlines()  # 3 to 22


@pytest.mark.slow
def test_a_function_that_never_returns_does_not_hold_the_interpreter() -> None:
    process = start("stuck")
    read_until_ready(process)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.slow
def test_ctrl_c_is_for_the_parent_alone() -> None:
    process = start("interrupted")
    read_until_ready(process)
    below = children_of(process.pid)
    out, errors = press_ctrl_c(process, below)
    assert "interrupted" in out
    assert process.returncode == 0, errors
    assert until(lambda: not any(map(alive, below)))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for temporary files whose path leaves room for a socket's name, of which 108 characters are all."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.mark.parametrize(
    "without",
    [
        "import ctypes, os\ndel os.memfd_create\nctypes.PyDLL = lambda *_, **__: None\n",
        "import multiprocessing as m\nm.get_all_start_methods = lambda: ['spawn']\n",
    ],
    ids=["no memfd, a temporary file", "no fork server, spawned"],
)
@pytest.mark.slow
def test_what_is_not_there_on_every_system(tmp_path: Path, short_folder: Path, without: str) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(without)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    process = start("leave", PYTHONPATH=path, TMPDIR=str(short_folder))
    out, errors = process.communicate(timeout=60)
    assert "main\n0\n1\n2\nready" in out, errors
    assert ("memfd False" in out) is ("memfd" in without)
    assert until(lambda: not any(file.name.startswith("asyncdata") for file in short_folder.iterdir()))


@pytest.mark.parametrize(
    "value",
    [np.zeros(10_000), [np.zeros(3)] * 500, "x" * 100_000, ValueError("x" * 100_000), list(range(5000))],
    ids=["array", "many arrays", "text", "error", "numbers"],
)
def test_what_goes_through_the_pipe_of_the_pool_is_written_whole_or_not_at_all(value: Any) -> None:
    slots = Slots(1 << 30)
    assert len(pickle.dumps(TaskReply(pack(value, slots), False))) < 3600, "a pipe takes 4,096 bytes at once"
    slots.close()


def resident() -> int:
    """Bytes of this process's memory that it has for itself alone."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private")) << 10


@pytest.mark.slow
def test_memory_and_descriptors_stay_flat_over_epochs() -> None:
    ds = processes(ad.Dataset.range(60), lambda number: np.full((150, 1000), number)).batch(4)
    sizes: list[tuple[int, int]] = []
    for _ in range(50):
        assert sum(len(batch) for batch in ds) == 60
        gc.collect()
        sizes.append((resident(), len(os.listdir("/proc/self/fd"))))
    memory, descriptors = zip(*sizes, strict=True)
    assert statistics.median(memory[-10:]) < statistics.median(memory[10:20]) + (32 << 20)
    assert max(descriptors) < descriptors[0] + 2 * 36, "two workers with at most 32 slots each, and some on their way"


def test_a_slot_is_free_again_when_its_last_view_has_died() -> None:
    slots, attached = Slots(1 << 30), SlotReader()
    array = attached.open(pack(np.arange(100_000), slots))
    (slot,) = slots.slots
    view = array[5:10].reshape(5, 1)
    del array
    gc.collect()
    assert slot.taken
    assert view.ravel().tolist() == [5, 6, 7, 8, 9]
    del view
    assert not slot.taken
    attached.open(pack(np.arange(100_000), slots))
    assert len(slots.slots) == 1, "it is used again"
    slots.close()


def test_there_are_never_more_slots_than_allowed_for_long() -> None:
    slots, attached = Slots(1 << 30, most=3), SlotReader()
    held = [attached.open(pack(np.full(50_000, number), slots)) for number in range(20)]
    assert len(slots.slots) == 4, "three that are held, and one that is on its way"
    assert [int(array[0]) for array in held] == list(range(20))
    slots.close()


def test_one_pool_for_each_number_of_processes(warm: PoolHandle) -> None:
    assert pool_of(2) is warm
    assert pool_of(4) is not warm


def test_open_files_are_not_used_up() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = list(processes(ad.Dataset.range(2000), lambda number: np.full(20_000, number)))
    assert len(os.listdir("/proc/self/fd")) < min(soft, 300)
    assert [int(array[-1]) for array in held] == list(range(2000))

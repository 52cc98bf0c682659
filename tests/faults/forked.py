"""Forks in the middle of an iteration: what a child does with what it inherits, and what the parent reads then."""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import asyncdata as ad

signal.alarm(50)

COUNT = 60


def picture(number: int) -> Any:
    return np.full((100, 100), number, np.float32)


def pipeline(placement: Any, executor: str) -> ad.Dataset[Any]:
    ds = ad.Dataset.range(COUNT)
    if executor == "none":
        ds = ds.map(picture)
    elif executor == "pool":
        ds = ds.map(picture, executor="process", num_parallel_calls=2)
    else:
        ds = ds.map(picture, num_parallel_calls=2)
    return ds.with_options(ad.Options(placement=placement))


def numbers(elements: Any) -> list[int]:
    return [int(element[0, 0]) for element in elements]


def refused(action: Callable[[], object], kind: type[Exception] = ad.ClosedError) -> None:
    """Do what a child may not do; without pytest, which takes as long to import as all the rest."""
    found: Exception | None = None
    try:
        action()
    except kind as error:
        found = error
    assert found is not None, "a child may not go on with what is its parent's"
    assert "fork" in str(found), found


def leave_alone(ds: Any, it: Any, held: Any) -> None:
    """Do nothing."""


def read_on(ds: Any, it: Any, held: Any) -> None:
    refused(lambda: next(it))
    refused(it.state_dict)
    refused(it.peek)
    refused(lambda: it.skip(1))


def close(ds: Any, it: Any, held: Any) -> None:
    it.close()
    refused(lambda: next(it))


def drop(ds: Any, it: Any, held: Any) -> None:
    """Collect what the parent has."""
    del it
    gc.collect()


def begin_anew(ds: Any, it: Any, held: Any) -> None:
    assert numbers(ds) == list(range(COUNT))


def write(ds: Any, it: Any, held: Any) -> None:
    assert numbers(held) == list(range(len(held)))
    for element in held:
        element[:] = -1


ACTIONS = (leave_alone, read_on, close, drop, begin_anew, write)


def by_exit(action: Callable[..., None], *args: Any) -> int:
    if (pid := os.fork()) == 0:
        signal.alarm(20)
        holder = list(args)
        args = ()
        action(*holder)
        sys.exit(0)
    return os.waitpid(pid, 0)[1]


def by_exit_at_once(action: Callable[..., None], *args: Any) -> int:
    if (pid := os.fork()) == 0:
        signal.alarm(20)
        with suppress(BaseException):
            action(*args)
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1]


def by_multiprocessing(action: Callable[..., None], *args: Any) -> int:
    process = multiprocessing.get_context("fork").Process(target=action, args=args)
    process.start()
    process.join()
    return process.exitcode or 0


WAYS = {"exit": by_exit, "_exit": by_exit_at_once, "multiprocessing": by_multiprocessing}


def half_read(placement: str, executor: str, way: str) -> None:
    """Fork in the middle of an iteration for each thing that a child may do."""
    ds = pipeline(placement, executor)
    for action in ACTIONS:
        it = iter(ds)
        held = [next(it) for _ in range(8)]
        assert WAYS[way](action, ds, it, held) == 0, action
        assert numbers(it) == list(range(8, COUNT)), action
        assert numbers(held) == list(range(8)), action
        assert all((element == element[0, 0]).all() for element in held), action


def square(number: int) -> int:
    return number * number


def cached(placement: str, way: str, folder: str) -> None:
    """Fork while a file of a cache, or of a snapshot, is written."""
    expected = [number * number for number in range(20_000)]
    for name in ("cache", "snapshot"):
        path = str(Path(folder, name))
        ds = ad.Dataset.range(20_000).map(square)
        ds = ds.cache(path) if name == "cache" else ds.snapshot(path)
        ds = ds.with_options(ad.Options(placement=placement))  # type: ignore[arg-type]
        it = iter(ds)
        found = [next(it) for _ in range(5000)]

        def read_all(ds: Any, it: Any) -> None:
            assert list(ds) == expected
            it.close()

        assert WAYS[way](read_all, ds, it) == 0
        assert found + list(it) == expected
        assert list(ds) == expected
        files = [file.name for file in Path(folder).rglob("*") if file.is_file()]
        assert not [file for file in files if file.endswith((".lock", ".partial"))], files


def in_memory(placement: str, way: str) -> None:
    """Fork while a cache in memory is filled."""
    ds = pipeline(placement, "thread").cache()
    it = iter(ds)
    found = numbers([next(it) for _ in range(10)])

    def read_all() -> None:
        assert numbers(ds) == numbers(ds) == list(range(COUNT))

    assert WAYS[way](read_all) == 0
    assert found + numbers(it) == list(range(COUNT))
    assert numbers(ds) == list(range(COUNT))


def shared(placement: str, way: str) -> None:
    """Fork while several consumers share an iteration."""
    first, second = pipeline(placement, "none").tee(2)
    found = numbers([next(first) for _ in range(5)])

    def read_on() -> None:
        refused(lambda: next(second))
        second.close()
        first.close()

    assert WAYS[way](read_on) == 0
    found += numbers([next(first) for _ in range(5)])
    assert numbers([next(second) for _ in range(10)]) == found == list(range(10))


def written(way: str, folder: str) -> None:
    """Fork while a file of records is written."""
    path = str(Path(folder, "records"))
    with ad.TFRecordWriter(path) as writer:
        writer.write(b"one")

        def write_on() -> None:
            refused(lambda: writer.write(b"two"))
            writer.close()

        assert WAYS[way](write_on) == 0
        writer.write(b"three")
    assert list(ad.TFRecordDataset(path)) == [b"one", b"three"]


def saved(folder: str) -> None:
    """Fork in a function while elements are saved, and have the child go on."""
    parent = os.getpid()

    def shard(element: int) -> int:
        if element == 500 and (pid := os.fork()):
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        return 0

    path = str(Path(folder, "saved"))
    ds = ad.Dataset.range(1000)
    try:
        ds.save(path, shard_func=shard)
    except ad.ClosedError as error:
        os._exit(7 if os.getpid() != parent and "fork" in str(error) else 8)
    assert list(ad.Dataset.load(path)) == list(range(1000))


def forking(element: int) -> int:
    if element == 20:
        pid = os.fork()
        if not pid:
            os._exit(3)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return element


def forked_within(placement: str, executor: str) -> None:
    """Fork in a function of the pipeline."""
    more: Any = {"none": {}, "thread": {"num_parallel_calls": 2}, "pool": {"executor": "process"}}[executor]
    ds = ad.Dataset.range(COUNT).map(forking, **more).with_options(ad.Options(placement=placement))  # type: ignore[arg-type]
    assert list(ds) == [3 if number == 20 else number for number in range(COUNT)]


def not_begun() -> None:
    """Read in a child what nobody has begun to read."""
    it = iter(ad.Dataset.range(9))

    def read_all() -> None:
        assert list(it) == list(range(9))

    assert by_exit(read_all) == 0
    assert list(it) == list(range(9))


def outlived(folder: str) -> None:
    """Let a child live on when the process that writes a file is killed."""
    path = str(Path(folder, "kept"))
    ds = ad.Dataset.range(2000).map(square).cache(path)
    (end, keep), (told, tell) = os.pipe(), os.pipe()
    if not (writer := os.fork()):
        it = iter(ds)
        next(it)
        if not os.fork():
            os.close(keep)
            os.write(tell, b"!")
            os.read(end, 1)  # until the test has ended
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(writer, 0)
    os.read(told, 1)
    assert list(ds) == [square(number) for number in range(2000)]
    assert Path(path).exists()


def crowded() -> None:
    """Fork again and again while threads fill caches and start pipelines."""
    stopped = threading.Event()

    def read() -> None:
        while not stopped.is_set():
            list(ad.Dataset.range(300).flat_map(lambda number: ad.Dataset.range(2)).cache())

    ds = ad.Dataset.range(300).map(square).cache()
    threads = [threading.Thread(target=read) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: [list(ds) for _ in range(20)]))
    for thread in threads:
        thread.daemon = True
        thread.start()
    expected = [square(number) for number in range(300)]

    def read_all() -> None:
        assert list(ds) == expected
        assert list(ad.Dataset.range(3).flat_map(lambda number: ad.Dataset.range(2))) == [0, 1] * 3

    for _ in range(20):
        assert by_exit_at_once(read_all) == 0
    stopped.set()
    for thread in threads:
        thread.join()


def imported() -> None:
    """Fork beside a thread: no module is left to import, as the thread may be importing it."""
    assert list(ad.Dataset.range(3)) == [0, 1, 2]
    stopped = threading.Event()
    thread = threading.Thread(target=stopped.wait, daemon=True)
    thread.start()

    registered: list[Any] = []
    register = os.register_at_fork
    os.register_at_fork = lambda **hooks: registered.append(hooks) or register(**hooks)

    def check() -> None:
        assert {
            f"asyncdata.{name}" for name in ("transforms.window", "devices.engine", "storage")
        } <= sys.modules.keys()
        assert "asyncdata.torch" not in sys.modules

    assert by_exit_at_once(check) == 0
    assert not [hooks for hooks in registered if "after_in_parent" in hooks]  # which would undo what was not done
    stopped.set()
    thread.join()


def orphans() -> None:
    """Kill a process that has workers and a child that lives on."""
    (end, keep), (told, tell) = os.pipe(), os.pipe()
    if not (parent := os.fork()):
        os.close(told)
        ds = ad.Dataset.range(COUNT).map(worker, executor="process", num_parallel_calls=1)
        it = iter(ds)
        worker_pid = next(it)
        if not os.fork():
            os.close(keep)
            os.read(end, 1)
            os._exit(0)
        os.write(tell, str(worker_pid).encode())
        os.close(tell)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(tell)
    os.waitpid(parent, 0)
    pid = int(os.read(told, 20))
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        assert select.select([handle], [], [], 20)[0], "the worker lives on"


def executor_of_ones_own() -> None:
    """Read in a child with an executor whose threads are the parent's."""
    with ThreadPoolExecutor(1) as executor:
        ds = ad.Dataset.range(9).map(square, executor=executor)
        expected = [square(number) for number in range(9)]
        assert list(ds) == expected

        def read() -> None:
            refused(lambda: list(ds), ad.StageError)

        assert by_exit_at_once(read) == 0
        assert list(ds) == expected


def worker(number: int) -> int:
    return os.getpid()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

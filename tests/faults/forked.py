"""Forks in the middle of an iteration: what a child does with what it inherits, and what the parent reads afterwards."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import asyncdata as ad

faulthandler.dump_traceback_later(50, exit=True)

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


def refused(action: Callable[[], object]) -> None:
    try:
        action()
    except ad.ClosedError as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("a forked child may not go on reading what its parent reads")


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
        faulthandler.dump_traceback_later(20, exit=True)
        holder = list(args)
        args = ()
        action(*holder)
        sys.exit(0)
    return os.waitpid(pid, 0)[1]


def by_exit_at_once(action: Callable[..., None], *args: Any) -> int:
    if (pid := os.fork()) == 0:
        faulthandler.dump_traceback_later(20, exit=True)
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


def cached(placement: str, executor: str, way: str, folder: str) -> None:
    """Fork while a file of a cache, or of a snapshot, is written."""
    for name in ("cache", "snapshot"):
        path = str(Path(folder, name))
        ds = ad.Dataset.range(20_000).map(square)
        ds = ds.cache(path) if name == "cache" else ds.snapshot(path)
        ds = ds.with_options(ad.Options(placement=placement))  # type: ignore[arg-type]
        expected = [number * number for number in range(20_000)]
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


def in_memory(placement: str, executor: str, way: str, folder: str) -> None:
    """Fork while a cache in memory is filled."""
    ds = pipeline(placement, executor).cache()
    it = iter(ds)
    found = numbers([next(it) for _ in range(10)])

    def read_all() -> None:
        assert numbers(ds) == numbers(ds) == list(range(COUNT))

    assert WAYS[way](read_all) == 0
    assert found + numbers(it) == list(range(COUNT))
    assert numbers(ds) == list(range(COUNT))


def shared(placement: str, executor: str, way: str, folder: str) -> None:
    """Fork while several consumers share an iteration."""
    first, second = pipeline(placement, executor).tee(2)
    found = numbers([next(first) for _ in range(5)])

    def read_on() -> None:
        refused(lambda: next(second))
        second.close()
        first.close()

    assert WAYS[way](read_on) == 0
    found += numbers([next(first) for _ in range(5)])
    assert numbers([next(second) for _ in range(10)]) == found == list(range(10))


def written(placement: str, executor: str, way: str, folder: str) -> None:
    """Fork while a file of records is written."""
    path = str(Path(folder, "records"))
    with ad.TFRecordWriter(path) as writer:
        writer.write(b"one")

        def write_on() -> None:
            try:
                writer.write(b"two")
            except ad.ClosedError:
                writer.close()
            else:
                raise AssertionError("written in a child")

        assert WAYS[way](write_on) == 0
        writer.write(b"three")
    assert list(ad.TFRecordDataset(path)) == [b"one", b"three"]


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

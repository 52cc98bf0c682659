"""Every writer in one table, and a program that writes with one in processes that are killed at a step of it.

    python -m tests.persistence.writers METHOD FOLDER FIRST EVERY

A step is what a writer does to its files: it writes, sees to it that a file is on the disk, or names it. The program
writes the folder `whole` and prints how many steps that took. For every so many of them from the first on it forks a
process, which writes the folder of that number and dies just before that step.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import asyncdata as ad
from asyncdata.storage import sinks

__all__ = ("COUNT", "WRITERS", "Writer", "elements", "sums", "visible", "write")

COUNT = 60


@dataclass(frozen=True)
class Writer:
    """What is written for each number, and what reads it."""

    element: Callable[[int], Any]
    read: Callable[..., ad.Dataset[Any]]
    needs: str | None = None


def raw(number: int) -> bytes:
    return np.random.default_rng(number).bytes(2000)  # which no compression makes shorter


def record(number: int) -> bytes:
    return b"%05d" % number + raw(number)


def row(number: int) -> dict[str, Any]:
    return {"id": number, "text": raw(number).hex(), "part": [number, None]}


def sample(number: int) -> dict[str, Any]:
    return {"__key__": f"{number:05}", "jpg": raw(number), "cls": number, "json": {"by": "Ann"}}


def columns(number: int) -> dict[str, Any]:
    return {"id": number, "half": number / 2, "raw": raw(number), "feature": np.arange(3.0) + number}


WRITERS: dict[str, Writer] = {
    "write_tfrecords": Writer(record, ad.TFRecordDataset),
    "write_jsonl": Writer(row, ad.JsonLinesDataset),
    "write_webdataset": Writer(sample, ad.WebDataset),
    "write_parquet": Writer(columns, ad.ParquetDataset, needs="pyarrow"),
}
"""The methods of a dataset that write it."""


def elements(method: str, seed: int = 1, count: int = COUNT) -> ad.Dataset[Any]:
    """Return a dataset to be written, in an order that a seed gives."""
    return ad.Dataset.range(count).shuffle(seed=seed).map(WRITERS[method].element)


def write(method: str, folder: str | Path, seed: int = 1, **more: Any) -> list[str]:
    """Write a dataset in four files, or as is said."""
    return getattr(elements(method, seed), method)(folder, **{"shards": 4, **more})


def visible(folder: Path) -> list[Path]:
    """Return the files that others see."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def sums(folder: Path) -> dict[str, str]:
    """Return what these files hold, in short."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in visible(folder)}


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """Have this process killed before a step; the steps so far are in the list."""
    done: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if len(done) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            done.append(name)
            return function(*args)

        return call

    with (
        mock.patch.object(sinks.LocalSink, "write", counted("write", sinks.LocalSink.write)),
        mock.patch.object(os, "fsync", counted("sync", os.fsync)),
        mock.patch.object(os, "replace", counted("name", os.replace)),
    ):
        yield done


def forked(method: str, folder: Path, step: int) -> int:
    """Write in a process that is killed at a step, if there is one of that number; return how many steps there were."""
    told, tell = os.pipe()
    if not os.fork():
        with killed_at(step) as done:
            write(method, folder)
        os.write(tell, b"%d" % len(done))
        os._exit(0)
    os.close(tell)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == (0 if step < 0 else -signal.SIGKILL)
    return int(os.read(told, 9) or 0)


def main(method: str, folder: Path, first: int, every: int) -> None:
    """Write in many processes, and print the steps that it took."""
    steps = forked(method, folder / "whole", -1)
    for step in range(first, steps, every):
        forked(method, folder / f"{step}", step)
    print(steps)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

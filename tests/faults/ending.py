"""Read in another thread while the main one ends, and print how the loop ended.

Usage: ending.py thread|process|current plain|threads|process daemon|thread for|async|tee
"""

from __future__ import annotations

import atexit
import threading

atexit.register(lambda: thread.join(20))  # runs after asyncdata's own, which is registered later

import asyncio  # noqa: E402
import sys  # noqa: E402

import asyncdata as ad  # noqa: E402

placement, pipeline, kind, loop = sys.argv[1:]
begun = threading.Event()


def double(x: int) -> int:
    return 2 * x


def dataset() -> ad.Dataset:
    numbers = ad.Dataset.counter()
    if pipeline == "process":
        numbers = numbers.map(double, num_parallel_calls=2, executor="process")
    if pipeline == "threads":
        numbers = numbers.map(double, num_parallel_calls=2)
    return numbers.with_options(ad.Options(placement=placement))


async def read_async() -> None:
    async for _ in dataset():
        begun.set()


def read() -> None:
    try:
        if loop == "async":
            asyncio.run(read_async())
        else:
            for _ in dataset() if loop == "for" else dataset().tee(1)[0]:
                begun.set()
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
    else:
        print("the end", flush=True)


thread = threading.Thread(target=read, daemon=kind == "daemon")
thread.start()
begun.wait()

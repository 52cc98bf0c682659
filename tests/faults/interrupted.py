"""Wait for Ctrl-C somewhere, then see that nothing is left: interrupted.py WHERE thread|current."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial

import asyncdata as ad
from asyncdata.testing import leaves_nothing

where, placement = sys.argv[1:]


async def hang_after_first(x: int) -> int:
    """Return for the first element, say that the second is waited for, and never return.

    Who reads that may have this core next: it is not said here, where it would look as if this blocked the loop.
    """
    if x > 0:
        asyncio.get_running_loop().call_soon(partial(print, "waiting", flush=True))
        await asyncio.Event().wait()
    return x


def block_after_first(x: int) -> int:
    if x > 0:
        print("waiting", flush=True)
        time.sleep(0.5)
    return x


def dataset() -> ad.Dataset:
    if where in {"step", "async_step"}:
        ds = ad.Dataset.counter().map(lambda x: x, num_parallel_calls=2)
    elif where == "blocked_next":
        ds = ad.Dataset.range(2).map(block_after_first, num_parallel_calls=1)
    else:
        ds = ad.Dataset.range(2).map(hang_after_first)
    return ds.with_options(ad.Options(placement=placement))


def train() -> None:
    for _ in dataset():
        if where == "step":
            print("waiting", flush=True)
            time.sleep(3600)


async def train_async() -> None:
    async for _ in dataset():
        if where == "async_step":
            print("waiting", flush=True)
            await asyncio.sleep(3600)


def run() -> None:
    if where.startswith("async"):
        asyncio.run(train_async())
    else:
        train()


if where == "uncaught":
    run()
    sys.exit("the loop ended as if nothing had happened")
with leaves_nothing():
    try:
        run()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print("nothing left", flush=True)

"""An async trainer: coroutines fetch batches while a step runs, and a time limit ends it cleanly."""

from __future__ import annotations

import asyncio

import numpy as np

import asyncdata as ad

at_once = {"now": 0, "most": 0}


async def fetch(index):
    """Stand in for a request to a slow store."""
    at_once["now"] += 1
    at_once["most"] = max(at_once.values())
    await asyncio.sleep(0.05)
    at_once["now"] -= 1
    return np.full(8, index, np.float32)


async def train_step(batch):
    await asyncio.sleep(0.01)
    return float(batch.mean())


async def main():
    ds = ad.Dataset.range(200).map(fetch, num_parallel_calls=20).batch(20)
    async with ds.iterate() as batches:
        async for batch in batches:
            loss = await train_step(batch)
    print(f"an epoch: last loss {loss:.1f}, up to {at_once['most']} fetches at once")

    endless = ad.Dataset.counter().map(fetch, num_parallel_calls=20).batch(20)
    steps = 0
    try:
        async with asyncio.timeout(0.5), endless.iterate() as batches:
            async for batch in batches:
                await train_step(batch)
                steps += 1
    except TimeoutError:
        print("the time is up after some steps:", steps > 0)
    print("tasks left behind:", len(asyncio.all_tasks()) - 1)


asyncio.run(main())

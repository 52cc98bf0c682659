"""Rollouts that do not starve: workers of unlike speed ask before they play, so that no work is thrown away.

    pip install asyncdata && python examples/web/04_lag.py

A trainer makes a new version of the policy from each 8 rollouts. Three workers play with the newest version: a rollout
takes 1, 2 and 25 seconds. In the first form rollouts that are more than 3 versions old are dropped when they are read.
Those are all of the slow worker: its hour is wasted, and the policy never learns from what takes long. In the second
form a worker asks with `channel.admit` before it plays, and waits while more than 16 rollouts of others, 2 batches,
could be read before its own is. These make 2 versions, and the batch that was read before makes a third. So the fast
workers wait for a part of the hour, and nothing is wasted.

The hour is one of a clock that jumps: it takes a second, and prints the same each time.
"""

from __future__ import annotations

import asyncio

import asyncdata as ad
from asyncdata.testing import virtual_time

SECONDS = {"fast": 1, "medium": 2, "slow": 25}
BATCH, VERSIONS, HOUR = 8, 3, 3600
SAME_LOOP = ad.Options(placement="current", disabled_rules=("inject_prefetch",))  # reads no batch ahead


class Policy:
    """A policy in name only: it counts its versions."""

    version = 0


async def asking_worker(name, policy, channel):
    """Ask, play with the newest policy, and send what came of it, again and again."""
    while True:
        async with channel.admit(policy.version) as admission:
            await asyncio.sleep(SECONDS[name])
            await channel.send([name], admission=admission)


async def dropping_worker(name, policy, channel):
    """Do the same without asking."""
    while True:
        version = policy.version
        await asyncio.sleep(SECONDS[name])
        await channel.send([name], version=version)


async def train(policy, batches, trained):
    """Make a version of each batch."""
    async for batch in batches:
        await asyncio.sleep(2)
        trained += batch
        policy.version += 1


async def run(worker, channel, min_version):
    """Let the workers and the trainer work for an hour; return whose rollouts were trained on."""
    policy, trained = Policy(), []
    ds = ad.Dataset.from_channel(channel, min_version=lambda: min_version(policy)).batch(BATCH).map(list)
    async with ds.with_options(SAME_LOOP).iterate() as batches:
        tasks = [asyncio.create_task(worker(name, policy, channel)) for name in SECONDS]
        tasks.append(asyncio.create_task(train(policy, batches, trained)))
        await asyncio.sleep(HOUR)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return trained


def main():
    """Print both forms."""
    forms = {
        "min_version": (dropping_worker, ad.Channel(), lambda policy: policy.version - VERSIONS),
        "max_lag": (asking_worker, ad.Channel(max_lag=(VERSIONS - 1) * BATCH), lambda policy: 0),
    }
    print("             trained on  of the slow  dropped  staleness  at most")
    for name, form in forms.items():
        with asyncio.Runner(loop_factory=virtual_time) as runner:
            trained = runner.run(run(*form))
        stats = form[1].stats()
        print(
            f"{name:13}{len(trained):>10}{trained.count('slow'):>13}{stats['waste']:>9.1%}"
            f"{stats['staleness']:>11.2f}{stats['max_staleness']:>9}"
        )


if __name__ == "__main__":
    main()

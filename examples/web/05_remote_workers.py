"""Rollout workers on other machines: they ask by HTTP before they play, so that no rollout comes too late.

    pip install 'asyncdata[web]' httpx && python examples/web/05_remote_workers.py

The trainer makes a version of the policy from each 4 rollouts, in the service's process. A worker asks by
`POST /admit?version=7&wait=10`, and is told to wait while more than 8 rollouts of others could be read before its own.
Then it plays, and sends the rollout with the id that it got: one id is enough for `Admission` and `Idempotency-Key`.
One worker is slow, and one dies at work: its admission ends after three seconds, and holds up nobody for longer.
"""

from __future__ import annotations

import asyncio
import socket

import httpx
import uvicorn

import asyncdata as ad

BATCH, ROLLOUTS = 4, 60
SECONDS = {"fast": 0.0, "slow": 0.02}


class Policy:
    """A policy in name only: it counts its versions."""

    version = 0


def train(batches):
    """Make a version of each batch; runs in a thread of its own."""
    for _ in batches:
        Policy.version += 1


async def admitted(http):
    """Ask until work with the newest policy may begin; return the id of the admission."""
    while True:
        reply = await http.post("/admit", params={"version": Policy.version, "wait": 10})
        if reply.status_code == 200:
            return reply.json()["admission"]
        await asyncio.sleep(int(reply.headers["Retry-After"]))


async def work(http, name):
    """Play, and send what came of it, again and again."""
    for _ in range(ROLLOUTS // len(SECONDS)):
        admission = await admitted(http)
        await asyncio.sleep(SECONDS[name])  # plays
        headers = {"Admission": admission, "Idempotency-Key": admission}
        (await http.post("/ingest", json={"player": name}, headers=headers)).raise_for_status()


async def main():
    """Run the service, and its workers until all rollouts are trained on."""
    channel = ad.Channel(max_lag=2 * BATCH)
    consumer = ad.web.Consumer(ad.Dataset.from_channel(channel).batch(BATCH), train)
    app = ad.web.ingest_app(channel, consumer=consumer, admission_seconds=3)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listening]))
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            await admitted(http)  # by a worker that dies before it has played
            await asyncio.gather(*[work(http, name) for name in SECONDS])
            metrics = (await http.get("/metrics")).text
        server.should_exit = True
    stats = channel.stats()
    print(f"{ROLLOUTS} rollouts, {Policy.version} versions, thrown away: {stats['waste']:.0%}")
    print(f"at most 4 versions old: {stats['max_staleness'] <= 4}")
    print("an admission that nobody used ended by itself:", "admissions_expired_total 1\n" in metrics)


if __name__ == "__main__":
    asyncio.run(main())

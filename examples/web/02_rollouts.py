"""A rollout queue: actors play with their policy, and a learner trains on rollouts that are not too old.

    pip install 'asyncdata[web]' && python examples/web/02_rollouts.py

Each rollout carries the version of the policy that made it. The learner drops rollouts of a policy more than two
versions old (`min_version`), and rollouts that have waited for more than ten seconds (`max_age`).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import asynccontextmanager

import httpx
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import asyncdata as ad

WINS = np.array([0.2, 0.5, 0.9])  # how often each arm of the bandit wins
STEPS = 150


class Policy:
    """A softmax over the arms; `version` counts its updates."""

    def __init__(self):
        self.logits, self.version, self.done = np.zeros(3), 0, threading.Event()

    def learn(self, batches):
        """Update the policy for each batch of rollouts (REINFORCE); runs in a thread of its own."""
        for batch in batches:
            chance = softmax(self.logits)
            advantage = batch["reward"] - batch["reward"].mean()
            gradient = advantage @ (np.eye(3)[batch["arm"]] - chance) / len(advantage)
            self.logits = self.logits + 2 * gradient
            self.version += 1
            if self.version == STEPS:
                self.done.set()
                return


def softmax(logits):
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


async def actor(url, seed):
    """Fetch the policy, play 20 rounds, send them with its version; again until the learner has finished."""
    rng = np.random.default_rng(seed)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        while not (policy := (await http.get("/policy")).json())["done"]:
            arms = rng.choice(3, size=20, p=softmax(np.array(policy["logits"])))
            rollouts = [{"arm": int(arm), "reward": float(rng.random() < WINS[arm])} for arm in arms]
            reply = await http.post("/queue/ingest", params={"version": policy["version"]}, json=rollouts)
            if reply.status_code == 429:  # the learner is too slow: drop these, and make newer ones
                await asyncio.sleep(0.01)


def service(policy, channel):
    """Build the application: the policy for the actors, and the queue for their rollouts."""
    ds = ad.Dataset.from_channel(channel, min_version=lambda: policy.version - 2, max_age=10).batch(64)

    @asynccontextmanager
    async def lifespan(app):
        async with ad.web.Consumer(ds, policy.learn), channel:
            yield

    async def current(request):
        told = {"version": policy.version, "logits": policy.logits.tolist(), "done": policy.done.is_set()}
        return JSONResponse(told)

    routes = [Route("/policy", current), Mount("/queue", ad.web.ingest_app(channel))]
    return Starlette(routes=routes, lifespan=lifespan)


async def main():
    """Run the service and eight actors, and send one rollout that is too old."""
    policy, channel = Policy(), ad.Channel(max_items=1000)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(service(policy, channel), log_level="warning"))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listening]))
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            await http.post("/queue/ingest", params={"version": -100}, json=[{"arm": 0, "reward": 1.0}])
        async with asyncio.TaskGroup() as actors:
            for seed in range(8):
                actors.create_task(actor(url, seed))
        server.should_exit = True
    told = channel.stats()
    print(f"{policy.version} updates; the best arm is played {softmax(policy.logits)[2]:.0%} of the time")
    print(f"dropped as stale: {told['dropped'] > 0}, sent = taken + dropped + left:", end=" ")
    print(told["sent"] == told["taken"] + told["dropped"] + told["items"])


if __name__ == "__main__":
    asyncio.run(main())

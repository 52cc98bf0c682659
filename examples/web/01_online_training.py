"""A FastAPI service that trains on what it receives and predicts with what it has learnt.

    pip install 'asyncdata[web]' fastapi && python examples/web/01_online_training.py

Samples are stored on the disk before they are acknowledged. The model is saved with the state of the pipeline, so each
sample is trained on once, although the service is stopped in the middle.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

import asyncdata as ad

FOLDER = Path(os.environ.get("FOLDER") or tempfile.mkdtemp())
WEIGHTS = np.array([2.0, -1.0, 0.5])  # the weights that the model must find


class Point(BaseModel):
    x: list[float]


class Model:
    """A linear model, and the state of the pipeline that trains it."""

    def __init__(self):
        self.weights, self.samples, self.state = np.zeros(3), 0, None
        if (FOLDER / "model").exists():
            saved = json.loads((FOLDER / "model").read_text())
            self.weights, self.samples, self.state = np.array(saved["weights"]), saved["samples"], saved["state"]

    def train(self, batches):
        """Take a step of gradient descent for each batch; runs in a thread of its own."""
        for batch in batches:
            error = batch["x"] @ self.weights - batch["y"]
            self.weights = self.weights - 0.1 * batch["x"].T @ error / len(error)
            self.samples += len(error)
            self.save(batches.state_dict())

    def save(self, state):
        """Save the model with the state, then remove the samples that no state needs."""
        saved = {"weights": self.weights.tolist(), "samples": self.samples, "state": state}
        (FOLDER / "new").write_text(json.dumps(saved))
        os.replace(FOLDER / "new", FOLDER / "model")
        ad.web.trim(FOLDER / "samples", state)


def columns(sample):
    return {"x": np.array(sample["x"]), "y": sample["y"]}


def service():
    """Build the application around a channel and a model."""
    channel, model = ad.DurableChannel(FOLDER / "samples"), Model()
    ds = ad.Dataset.from_channel(channel).map(columns).batch(32, within=0.2)

    consumer = ad.web.Consumer(ds, model.train, state=model.state)

    @asynccontextmanager
    async def lifespan(app):
        async with consumer, channel:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/predict")
    async def predict(point: Point):
        return {"y": float(np.dot(point.x, model.weights)), "samples": model.samples}

    app.mount("/data", ad.web.ingest_app(channel, consumer=consumer))
    return app


async def client(url, first, count):
    """Send samples until the service has trained on them all; return its answer about the point [1, 1, 1]."""
    rng = np.random.default_rng(first)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        for start in range(first, first + count, 100):
            x = rng.normal(size=(100, 3))
            samples = [{"x": row.tolist(), "y": float(row @ WEIGHTS)} for row in x]
            reply = await http.post("/data/ingest", json=samples, headers={"Idempotency-Key": f"demo/{start}"})
            assert reply.json() == {"accepted": 100}
        while True:
            told = (await http.post("/predict", json={"x": [1, 1, 1]})).json()
            if told["samples"] == first + count:
                return told
            await asyncio.sleep(0.05)


async def main(first, count):
    """Run the service and a client of it."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(service(), log_level="warning"))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listening]))
        told = await client(url, first, count)
        print(f"{told['samples']} samples, the model says {told['y']:.2f} where {WEIGHTS.sum():.2f} is right")
        server.should_exit = True


if __name__ == "__main__":
    asyncio.run(main(0, 500))
    print("stopped and started again")
    asyncio.run(main(500, 1500))

"""A FastAPI service that takes large files: it writes each to the disk as it comes, and trains on their lines.

    pip install 'asyncdata[web]' fastapi && python examples/web/06_uploads.py

`ingest_app` has a whole request in memory, so it takes some megabytes at most. Here aiofiles writes an upload piece by
piece into a folder, without blocking the service's event loop. When it is there completely, its name goes into a
channel on disk, and the client is told. The pipeline reads the names, and the lines of each file. An upload that breaks
off leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import tempfile
import threading
import uuid
from pathlib import Path

import aiofiles
import aiofiles.os
import httpx
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from starlette.requests import ClientDisconnect

import asyncdata as ad

FOLDER = Path(os.environ.get("FOLDER") or tempfile.mkdtemp())
MOST_BYTES = 1 << 30
LINES = 30_000


async def limited(pieces):
    """Give the pieces of an upload, as long as they are not too many."""
    left = MOST_BYTES
    async for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise HTTPException(413, f"an upload has at most {MOST_BYTES} bytes")
        yield piece


async def spool(pieces, path):
    """Write an upload into a file, which is there completely and on the disk, or not at all; return its size."""
    part = path.with_suffix(".part")
    try:
        async with aiofiles.open(part, "wb") as file:
            async for piece in limited(pieces):
                await file.write(piece)
            size = await file.tell()
            await file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        await aiofiles.os.replace(part, path)
    except BaseException:
        part.unlink()
        raise
    return size


class Trainer:
    """A trainer in name only: it sums what it reads."""

    def __init__(self):
        self.count = self.total = 0
        self.done = threading.Event()

    def train(self, batches):
        """Read batches; runs in a thread of its own."""
        for batch in batches:
            self.count += len(batch["x"])
            self.total += int(batch["x"].sum())
            if self.count >= 4 * LINES:
                self.done.set()


def service(trainer):
    """Build the application around a folder of uploads and a channel of their names."""
    uploads = FOLDER / "uploads"
    uploads.mkdir()
    channel = ad.DurableChannel(FOLDER / "names")
    ds = ad.Dataset.from_channel(channel).flat_map(lambda name: ad.JsonLinesDataset(uploads / name))

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with ad.web.Consumer(ds.batch(1000, within=0.2), trainer.train), channel:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/uploads")
    async def upload(request: Request):
        name = f"{uuid.uuid4().hex}.jsonl"
        try:
            size = await spool(request.stream(), uploads / name)
        except ClientDisconnect:
            raise HTTPException(400, "the client has left") from None
        await channel.send(json.dumps(name).encode(), content_type="application/json")
        return {"bytes": size}

    return app


async def lines(numbers):
    """Give lines of JSON, a thousand at a time."""
    for start in range(numbers.start, numbers.stop, 1000):
        yield b"".join(b'{"x": %d}\n' % number for number in range(start, start + 1000))


async def breaking_off(numbers):
    """Give some lines, and fail."""
    yield b'{"x": 1000000}\n'
    raise ConnectionError


async def main():
    """Run the service, and upload four files at once, and one that breaks off."""
    trainer = Trainer()
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(service(trainer), log_level="warning"))
    async with asyncio.TaskGroup() as group, httpx.AsyncClient(base_url=url, timeout=60) as http:
        group.create_task(server.serve([listening]))
        parts = [range(start, start + LINES) for start in range(0, 4 * LINES, LINES)]
        replies = await asyncio.gather(*[http.post("/uploads", content=lines(part)) for part in parts])
        with contextlib.suppress(ConnectionError):
            await http.post("/uploads", content=breaking_off(parts[0]))
        await asyncio.to_thread(trainer.done.wait)
        server.should_exit = True
    sizes = sorted(path.stat().st_size for path in (FOLDER / "uploads").iterdir())
    print("each upload is in a file:", sizes == sorted(reply.json()["bytes"] for reply in replies))
    print(f"{trainer.count} lines, each once: {trainer.total == sum(range(4 * LINES))}")


if __name__ == "__main__":
    asyncio.run(main())

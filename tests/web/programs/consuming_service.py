"""Sends items by their keys, some of them bad, and trains on the others; goes on where one was killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import asyncdata as ad


def body_of(number: int) -> bytes:
    return json.dumps([f"bad {number}" if number % 10 == 3 else -number if number % 10 == 7 else number]).encode()


def positive(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


async def main(folder: str, notes: str, path: str, count: str) -> None:
    done = set(Path(notes).read_text().split()) if Path(notes).exists() else set()
    saved = json.loads(Path(path).read_text()) if Path(path).exists() else {"trained": [], "data": None}
    over, loop = asyncio.Event(), asyncio.get_running_loop()

    def train(batches: Any) -> None:
        for batch in batches:
            saved["trained"] += batch.tolist()
            saved["data"] = batches.state_dict()
            Path(f"{path}.new").write_text(json.dumps(saved))
            os.rename(f"{path}.new", path)
            ad.web.trim(folder, saved)
            print(len(saved["trained"]), flush=True)
        loop.call_soon_threadsafe(over.set)

    ds = ad.Dataset.from_channel(folder, schema=int).map(positive, num_parallel_calls=2).shuffle(6, seed=1).batch(3)
    with open(notes, "a") as acknowledged, ad.DurableChannel(folder, segment_bytes=2000) as channel:
        async with ad.web.Consumer(ds, train, state=saved["data"], on_error="dead-letter"):
            for number in range(int(count)):
                if str(number) not in done:
                    await channel.send(body_of(number), key=str(number), content_type="application/json")
                    acknowledged.write(f"{number}\n")
                    acknowledged.flush()
            if not channel.closed:  # it may have been killed after that
                await asyncio.to_thread(channel.end)
            await over.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

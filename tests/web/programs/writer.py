"""Sends numbers by their keys, many at once, and notes which were acknowledged; goes on where one was killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncdata as ad


async def main(folder: str, notes: str) -> None:
    done = set(Path(notes).read_text().split()) if Path(notes).exists() else set()
    with open(notes, "a") as acknowledged, ad.DurableChannel(folder, segment_bytes=4000) as channel:

        async def send(number: int) -> None:
            await channel.send(b"%d" % number, key=str(number))
            acknowledged.write(f"{number}\n")
            acknowledged.flush()
            print(number, flush=True)

        left = [number for number in range(400) if str(number) not in done]
        for start in range(0, len(left), 8):
            await asyncio.gather(*map(send, left[start : start + 8]))
        if not channel.closed:  # it may have been killed after that
            channel.end()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

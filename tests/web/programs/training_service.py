"""Trains on the good numbers of a queue, saves its state, and goes on where it was killed; bad ones are dead letters.

Now and then it removes what its state does not need, and another number of readers shares the partitions. With a count
it ends where the queue ends, or, as Kafka's broker does not tell that, when it has trained on so many numbers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from tests.web.programs.numbers_sent import PARTITIONS, checked


class Training:
    """What was trained on, and the states behind it."""

    def __init__(self, path: str, count: float, most: int) -> None:
        self.path = path
        self.count = count if most > 1 else float("inf")
        self.most = most
        """How many readers may share the queue."""
        self.follow = count == float("inf")
        self.trim: Callable[[Any], object] = len
        saved = json.loads(Path(path).read_text()) if Path(path).exists() else {"trained": [], "states": []}
        self.trained: list[int] = saved["trained"]
        self.states: list[Any] = saved["states"]

    @property
    def state(self) -> Any:
        if not self.states:
            return None
        return merge_states(self.states) if self.most > 1 else self.states[0]

    def train(self, readers: Sequence[Any], batches: float) -> bool:
        """Train on so many batches of some readers in turn; return whether that is all.

        A reader has a turn for each of its partitions: the sender waits for all of them when one is behind.
        """
        turns = [reader for index, reader in enumerate(readers) for _ in range(index, PARTITIONS, len(readers))]
        for number, reader in enumerate(cycle(turns), 1):
            if len(self.trained) >= self.count or (batch := next(reader, None)) is None:
                return True
            self.trained += batch.tolist()
            self.states = [one.state_dict() for one in readers]
            Path(f"{self.path}.new").write_text(json.dumps({"trained": self.trained, "states": self.states}))
            os.rename(f"{self.path}.new", self.path)
            print(len(self.trained), flush=True)
            if not random.randrange(4):
                self.trim(self.states)
            if number >= batches:
                break
        return False


def batches_of(numbers: Any) -> Any:
    return numbers.batch(4, within=0.05)


def read(message: Any) -> int:
    body: bytes = (message if isinstance(message, bytes) else message.get("n") or message["value"]).strip()
    try:
        return checked(int(body))
    except ValueError:
        raise ValueError(body.decode()) from None


async def run_queue(training: Training, source: ad.Dataset[Any], letters: str) -> None:
    """Train on a queue by consumers, which keep bad items in one folder."""
    ended, most = False, training.most
    while not ended:
        count = random.randint(1, most) if training.follow else 1
        readers: asyncio.Queue[Any] = asyncio.Queue()
        over = asyncio.Event()

        async def lend(batches: Any, index: int, readers: Any = readers, over: asyncio.Event = over) -> None:
            readers.put_nowait((index, batches))
            await over.wait()

        async with AsyncExitStack() as stack:
            for index in range(count):
                share = (source.shard(count, index) if most > 1 else source).map(read, num_parallel_calls=2)
                # a shuffle gives its last items at the end, and this broker does not tell where the end of a topic is
                pipeline = batches_of(share if most > 1 else share.shuffle(10, seed=1))
                how: Any = {"state": training.state, "on_error": "dead-letter", "dead_letters": letters}
                await stack.enter_async_context(ad.web.Consumer(pipeline, partial(lend, index=index), **how))
            some = [batches for _, batches in sorted([await readers.get() for _ in range(count)])]
            batches = random.randint(5, 40) if most > 1 else float("inf")
            ended = await asyncio.to_thread(training.train, some, batches)
            over.set()


async def run_channel(training: Training, folder: str) -> None:
    """Train on a durable channel; a consumer keeps bad items."""
    over, loop = asyncio.Event(), asyncio.get_running_loop()

    def train(batches: Any) -> None:
        training.train([batches], float("inf"))
        loop.call_soon_threadsafe(over.set)

    source = ad.Dataset.from_channel(folder, schema=int, follow=training.follow)
    pipeline = batches_of(source.map(checked, num_parallel_calls=2).shuffle(10, seed=1))
    async with ad.web.Consumer(pipeline, train, state=training.state, on_error="dead-letter"):
        await over.wait()


def offsets_in(state: Any) -> Iterator[Any]:
    """Yield the offsets in a state of a queue."""
    if isinstance(state, dict):
        yield from (state[name] for name in ("at", "after") if state.get(name) is not None)
        state = state.values()
    if isinstance(state, Iterable) and not isinstance(state, str):
        for part in state:
            yield from offsets_in(part)


def trim_redis(port: int) -> Callable[[Any], None]:
    redis = import_module("redis")
    client = redis.Redis(port=port)

    def trim(states: Any) -> None:
        oldest = min(offsets_in(states), key=lambda offset: [*map(int, offset.split("-"))])
        with suppress(redis.ConnectionError):
            client.xtrim("numbers", minid=oldest, approximate=False)

    return trim


def trim_nats(port: int) -> Callable[[Any], None]:
    nats = import_module("nats")

    async def purge(oldest: int) -> None:
        options: dict[str, Any] = {"allow_reconnect": False, "connect_timeout": 1}
        async with await nats.connect(f"nats://127.0.0.1:{port}", **options) as connection:
            await connection.jetstream().purge_stream("numbers", seq=oldest)

    def trim(states: Any) -> None:
        with suppress(nats.errors.Error, OSError):
            asyncio.run(purge(min(offsets_in(states))))

    return trim


def ignore_ends() -> None:
    """Ask this broker for no ends of partitions: with a bucket it tells those of its own beginning."""

    async def end_offsets(_: Any, partitions: Iterable[Any]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 1 << 60)

    import_module("aiokafka").AIOKafkaConsumer.end_offsets = end_offsets


def main(queue: str, address: str, path: str, letters: str, count: str = "inf") -> None:
    shares = PARTITIONS if queue in ("kafka", "trimmed") else 1
    where, training = json.loads(address), Training(path, float(count), shares)
    source: Any
    match queue:
        case "channel":
            training.trim = lambda states: ad.web.trim(where[0], {"states": states})
            asyncio.run(run_channel(training, where[0]))
            return
        case "redis":
            training.trim = trim_redis(*where)
            source = ad.Dataset.from_redis_stream(f"redis://127.0.0.1:{where[0]}", "numbers", follow=training.follow)
        case "nats":
            training.trim = trim_nats(*where)
            source = ad.Dataset.from_nats(f"nats://127.0.0.1:{where[0]}", "numbers", follow=training.follow)
        case _:
            if queue == "kafka":
                ignore_ends()
            source = ad.Dataset.from_kafka(*where[:2])
    asyncio.run(run_queue(training, source, letters))


if __name__ == "__main__":
    main(*sys.argv[1:])

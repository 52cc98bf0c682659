"""What a step keeps of one block for the next does not keep the blocks before it alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.graph.stages import Step
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Ordinals, TicketWrapper
from asyncdata.transforms.batch import Batch, Batcher
from asyncdata.transforms.map_batches import Grouper
from asyncdata.transforms.rebatch import Rebatch, Rebatcher
from asyncdata.transforms.shard import Shard, Sharder
from asyncdata.transforms.window import Window, Windower

SOURCE = ad.Dataset.range(10).plan


class Watched(TicketWrapper):
    """Tickets whose end can be seen."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: Batcher(Batch(SOURCE, 4)),
        lambda: Rebatcher(Rebatch(SOURCE, 8, False, (3, 5))),
        lambda: Grouper(4),
        lambda: Windower(Window(SOURCE, 4, 4, ad.Dataset)),
        lambda: Sharder(Shard(SOURCE, 4, 0, drop_remainder=True)),
    ],
    ids=["batch", "rebatch", "map", "window", "shard"],
)
def test_a_remainder_in_every_block_keeps_no_earlier_block_alive(make: Callable[[], Step]) -> None:
    """After the first block of five there is always one element left."""
    step, alive, start = make(), list[weakref.ref[Any]](), 0
    for size in (5, *[8] * 50):
        tickets = Watched(Ordinals(start, start + size))
        alive.append(weakref.ref(tickets))
        step.feed(Block(list(range(start, start + size)), tickets))
        start += size
        del tickets
    gc.collect()
    assert sum(tickets() is not None for tickets in alive) <= 2

"""Reading as a consumer does, and what it keeps of items that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from asyncdata.web import Consumer
from asyncdata.web.dead_letters import DeadLetters, Letter
from asyncdata.web.folder import ChannelFolder

__all__ = ("consume", "letters")


async def consume(
    dataset: Any, count: int, with_state: bool = True, **how: Any
) -> tuple[list[Any], dict[str, Any], Consumer]:
    """Read so many elements as a consumer does, and return them, the state behind them, and the consumer."""
    found: list[Any] = []
    states: list[dict[str, Any]] = []
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    def train(elements: Any) -> None:
        for element in elements:
            found.append(element)
            if len(found) == count:
                states.append(elements.state_dict() if with_state else {})
                loop.call_soon_threadsafe(enough.set)

    async with Consumer(dataset, train, **how) as consumer:
        await enough.wait()
    return found, states[0], consumer


def letters(path: Path) -> list[Letter]:
    """Return the letters that were not put back."""
    return DeadLetters(ChannelFolder(path)).content.waiting

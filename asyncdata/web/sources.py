"""Which source reads which channel."""

from __future__ import annotations

import os
from typing import Any

from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.graph.node import Node
from asyncdata.web.channel import Channel
from asyncdata.web.durable import DurableChannel
from asyncdata.web.received import Freshness, Received
from asyncdata.web.stored import Stored

__all__ = ("channel_source",)


def channel_source(channel: object, freshness: Freshness | None, decode: Any, ack: Any, follow: Any) -> Node:
    """Return the source for the arguments of `from_channel`."""
    if isinstance(channel, Channel):
        if decode is not None or ack != "state" or not check_flag("from_channel", "follow", follow):
            raise PlanError(
                "from_channel(decode=, ack=, follow=) are for a DurableChannel: a Channel holds items, not bytes, "
                "gives each once and ends when it is closed"
            )
        return Received(channel, freshness)
    if ack not in ("state", "delivered"):
        raise PlanError(f"from_channel(ack=) must be 'state' or 'delivered', got {ack!r:.80}")
    if decode is not None and not callable(decode):
        raise PlanError(f"from_channel(decode=) must be a function of bytes, got {decode!r:.80}")
    return Stored(folder_of(channel), decode, freshness, ack, check_flag("from_channel", "follow", follow))


def folder_of(channel: object) -> str:
    """Return the path of a durable channel."""
    if isinstance(channel, DurableChannel):
        return channel.path
    if isinstance(channel, (str, os.PathLike)):
        return os.path.abspath(os.fsdecode(channel))  # pyright: ignore[reportUnknownArgumentType]
    raise PlanError(f"from_channel needs a Channel, a DurableChannel or the path of one, got {channel!r:.80}")

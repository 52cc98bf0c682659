"""Keeping messages while a pipeline works on the elements made of them: the tickets of these hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, final

from asyncdata.graph.node import Node
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.meter import Meter
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.tickets import Position, Ticket, Tickets
from asyncdata.transforms.exclude import Passing, Transparent
from asyncdata.web.http_stream import HttpStream
from asyncdata.web.kafka_topic import KafkaTopic
from asyncdata.web.kept_message import KeptMessage
from asyncdata.web.queued import Queued
from asyncdata.web.streamed import HttpStreamed, WebSocketStreamed
from asyncdata.web.websocket_stream import WebSocketStream

__all__ = ("Kept", "keeping")


def keeping(node: Node) -> Node:
    """Return a plan whose queues and streams keep the messages that its elements are made of."""
    match node:
        case Queued() | KafkaTopic():
            return Kept(replace(node, keep=True))
        case HttpStreamed() | WebSocketStreamed() if isinstance(node.iterable, (HttpStream, WebSocketStream)):
            return Kept(replace(node, iterable=replace(node.iterable, keep=True)))
        case _:
            inputs = () if node.sealed else tuple(map(keeping, node.inputs))
            return node if all(map(is_, inputs, node.inputs)) else node.with_inputs(*inputs)


@dataclass(frozen=True, eq=False)
class Kept(Transparent):
    """The elements of kept messages."""

    def passing(self, meter: Meter) -> Passing:
        return without_messages


def without_messages(block: Block) -> Block:
    """Take the elements out of messages, which go on in the tickets."""
    items = [item.element if type(item) is KeptMessage else item for item in block.items]
    return Block(items, KeptTickets(block.tickets, block.items), Failure in set(map(type, items)))


@final
class KeptTickets(Tickets):
    """The tickets of the elements of messages."""

    __slots__ = ("base", "messages")

    def __init__(self, base: Tickets, messages: Sequence[Any]) -> None:
        self.base = base
        self.messages = messages

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: int) -> Ticket:
        ticket, message = self.base[index], self.messages[index]
        if type(message) is not KeptMessage:
            return ticket
        of_state = isinstance(ticket, RestorableItem)
        snapshot, failed = (ticket.snapshot, ticket.failed) if of_state else (SourceSnapshot(0, None), False)
        placed = RestorableItem.at(ticket, snapshot, failed)
        placed.message = message
        return placed

    def at(self, count: int) -> Position:
        return self.base.at(count)

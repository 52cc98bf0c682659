"""Keeping messages while a pipeline works on the elements made of them: the tickets of these hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, final

from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node, OneForOne
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.tickets import Position, Start, Ticket, Tickets
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
class Kept(OneForOne):
    """The elements of kept messages."""

    def stage(self) -> Fold:
        return Fold(lambda _: Opener())

    def run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        inner, meter = Demand(), scope.meters.steps.get(self, scope.meter.within)
        return self.stage().run(Opener(), self.input.open(scope, inner, start), inner, want, meter)

    @property
    def identity(self) -> None:
        return None

    @property
    def preserves_tickets(self) -> bool:
        return True


class Opener(Step):
    """Takes the elements out of messages, which go on in the tickets."""

    def feed(self, block: Block) -> Block:
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

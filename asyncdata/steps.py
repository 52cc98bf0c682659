"""What the author of a step may touch: the names that a step, or a source in memory, is written with."""

from __future__ import annotations

from asyncdata.elements.spec import TensorSpec
from asyncdata.executors.scope import Scope
from asyncdata.graph.members import alone, remade
from asyncdata.graph.node import PHYSICAL, Node, Unary, regrouped, scaled
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import (
    ExplicitTickets,
    FilteredTickets,
    Position,
    SelectedTickets,
    Start,
    Ticket,
    Tickets,
    natural,
    replaying,
)
from asyncdata.sources.random_access import InMemorySource

__all__ = (
    "PHYSICAL",
    "Block",
    "Blocks",
    "Demand",
    "ExplicitTickets",
    "Failure",
    "FilteredTickets",
    "Fold",
    "InMemorySource",
    "Node",
    "Position",
    "Scope",
    "SelectedTickets",
    "Start",
    "Step",
    "TensorSpec",
    "Ticket",
    "Tickets",
    "Unary",
    "alone",
    "natural",
    "regrouped",
    "remade",
    "replaying",
    "scaled",
)

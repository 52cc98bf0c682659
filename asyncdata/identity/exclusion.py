"""Plans that leave out records: whether a state fits them, and which members of an element are left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

from asyncdata.errors import ResumeError
from asyncdata.graph.node import Node, Unary, nodes_of
from asyncdata.runtime.tickets import END, ReplayedTickets, Ticket, Tickets, decode, encode
from asyncdata.transforms.batch import Batch
from asyncdata.transforms.batch_within import BatchWithin
from asyncdata.transforms.bucket_by_token_count import BucketByTokenCount
from asyncdata.transforms.cardinality import AssertCardinality
from asyncdata.transforms.concatenate import Concatenate
from asyncdata.transforms.enumerate import Enumerate
from asyncdata.transforms.exclude import Absent, DropEmpty, Exclude
from asyncdata.transforms.filter import Filter
from asyncdata.transforms.group_by_window import Groups
from asyncdata.transforms.list_batch import ListBatch
from asyncdata.transforms.map import Map
from asyncdata.transforms.map_batches import MapBatches
from asyncdata.transforms.padded_batch import PaddedBatch
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice
from asyncdata.transforms.ragged_batch import RaggedBatch
from asyncdata.transforms.rate_limit import RateLimit
from asyncdata.transforms.repeat import Repeat
from asyncdata.transforms.sample_from_datasets import Choose, Sample
from asyncdata.transforms.shard import Shard
from asyncdata.transforms.shuffle import Shuffle, ShuffleRepeat
from asyncdata.transforms.skip import Skip
from asyncdata.transforms.take import Take

__all__ = ("check_exclusion", "exclusion_digest", "left_in")

FREE: Final = (
    *(
        AssertCardinality,
        Batch,
        BatchWithin,
        Choose,
        Concatenate,
        DropEmpty,
        Enumerate,
        Exclude,
        Filter,
        ListBatch,
        Map,
        MapBatches,
        PaddedBatch,
    ),
    *(Prefetch, PrefetchToDevice, RaggedBatch, RateLimit, Repeat, Sample, Shuffle, ShuffleRepeat, Skip, Take),
)
"""Steps whose positions do not count records, or name them, so that fewer may come from there on."""

JOINING: Final = (Batch, BucketByTokenCount, Groups)
"""Steps whose elements have the tickets of their members."""


def exclusion_digest(plan: Node) -> str | None:
    """Return a hash of the records that a plan leaves out, and how; `None` if there are none."""
    found = {json.dumps(record, sort_keys=True) for node in nodes_of(plan) for record in node.exclusion}
    how = ["keep_steps"] if keeps_steps(plan) else []
    return blake2b("\n".join([*how, *sorted(found)]).encode(), digest_size=8).hexdigest() if found else None


def keeps_steps(plan: Node) -> bool:
    """Return whether all that is left out leaves holes in batches."""
    return all(node.keep_steps for node in nodes_of(plan) if isinstance(node, Exclude))


def check_exclusion(plan: Node, saved: Mapping[str, Any]) -> None:
    """Raise `ResumeError` if a position does not tell which records are left, as others are left out now."""
    was, now = saved.get("excluded"), exclusion_digest(plan)
    if was == now or saved["position"] in (None, END):
        return
    if now is None:
        raise ResumeError(
            "the state is of a pipeline that left out records, which would be given again: call exclude() with them, "
            "or start without the state"
        )
    free = (*FREE, Shard) if keeps_steps(plan) else FREE
    for node in nodes_of(plan):
        if type(node) not in free and any(one.exclusion for part in node.inputs for one in nodes_of(part)):
            raise ResumeError(
                f"{node.label()} counts or repeats what is left out now and was not when the state was saved, so "
                "records would be lost or repeated: leave these out from the next epoch on"
            )


def left_in(plan: Node) -> Callable[[Any], Any] | None:
    """Return a function of the ticket of an element, as JSON, that gives it without what was left out of the element;
    `None` if a plan leaves out nothing."""
    absent: dict[Node, Absent] = {node: Absent(node) for node in nodes_of(plan) if isinstance(node, Exclude)}
    return (lambda encoded: encode(rest_of(plan, decode(encoded), absent))) if absent else None


def rest_of(node: Node, ticket: Ticket, absent: Mapping[Node, Absent]) -> Ticket:
    """Return the ticket of an element without its members that are left out; `None` if it has no others."""
    if node in absent and absent[node].has(ticket):
        return None
    if isinstance(node, JOINING) and isinstance(ticket, Tickets):
        members = [rest for member in ticket if (rest := rest_of(node.input, member, absent)) is not None]
        return ReplayedTickets(members, 0, len(members), END) if members else None
    if isinstance(node, (Concatenate, Sample, Choose)):
        number: int = ticket[0]
        return of_last_part(node.nodes[number], ticket, absent) if number < len(node.nodes) else ticket
    if isinstance(node, (Enumerate, ShuffleRepeat)) or (isinstance(node, Repeat) and node.count != 1):
        return of_last_part(node.input, ticket, absent)
    return rest_of(node.input, ticket, absent) if isinstance(node, FREE) and isinstance(node, Unary) else ticket


def of_last_part(node: Node, ticket: Ticket, absent: Mapping[Node, Absent]) -> Ticket:
    rest = rest_of(node, ticket[-1], absent)
    return None if rest is None else (*ticket[:-1], rest)

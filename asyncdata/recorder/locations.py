"""Locations: which records of which sources an element was made from, read from its ticket and the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

from asyncdata.graph.node import Node
from asyncdata.identity.hashed_attributes import is_users
from asyncdata.persistence.file_cache import FileCache
from asyncdata.runtime.source_state import RestorableItem
from asyncdata.runtime.tickets import Ticket, Tickets, encode
from asyncdata.sources.file_names import FileNames
from asyncdata.sources.in_memory import FOREVER
from asyncdata.sources.iterators import IteratorSource
from asyncdata.sources.listing import Listing
from asyncdata.sources.parsed_files import ParsedFile
from asyncdata.sources.random_access import IndexedSource, InMemorySource
from asyncdata.transforms.balance import Balance
from asyncdata.transforms.batch import Batch, members_of
from asyncdata.transforms.bucket_by_token_count import BucketByTokenCount
from asyncdata.transforms.cache import Cache
from asyncdata.transforms.cardinality import AssertCardinality, PadToCardinality
from asyncdata.transforms.concatenate import Concatenate
from asyncdata.transforms.distinct import Distinct
from asyncdata.transforms.enumerate import Enumerate
from asyncdata.transforms.exclude import DropEmpty, Exclude
from asyncdata.transforms.filter import Filter
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.global_shuffle import Permute
from asyncdata.transforms.group_by_window import Groups
from asyncdata.transforms.ignore_errors import IgnoreErrors
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.join import Join
from asyncdata.transforms.list_batch import ListBatch
from asyncdata.transforms.map import Map
from asyncdata.transforms.map_batches import MapBatches
from asyncdata.transforms.pack_sequences import PackSequences, is_cut
from asyncdata.transforms.padded_batch import PaddedBatch
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice
from asyncdata.transforms.ragged_batch import RaggedBatch
from asyncdata.transforms.rate_limit import RateLimit
from asyncdata.transforms.rejection_resample import Resample
from asyncdata.transforms.repeat import Repeat
from asyncdata.transforms.sample_from_datasets import Choose, Sample
from asyncdata.transforms.scan import Scan
from asyncdata.transforms.shard import Shard, is_padding
from asyncdata.transforms.shuffle import Shuffle, ShuffleRepeat
from asyncdata.transforms.skip import Skip
from asyncdata.transforms.take import Take
from asyncdata.transforms.take_while import TakeWhile
from asyncdata.transforms.unbatch import Unbatch
from asyncdata.transforms.unique import Unique
from asyncdata.transforms.window import Window
from asyncdata.transforms.zip import Zip
from asyncdata.web.kafka_topic import KafkaTopic
from asyncdata.web.received import Received
from asyncdata.web.stored import Stored

__all__ = ("Record", "records_of", "words_of_record")

Record: TypeAlias = dict[str, Any]
"""One record of a source, in words and numbers that JSON can hold: `{"file": "a.tfrecord", "record": 12}`, `{"source":
"range(10)", "index": 3}`; more such pairs say in which turn of `repeat`, which dataset of a mixture, which part of a
packed sequence. `{"unknown": step}` where a step's elements do not say it."""


def records_of(plan: Node, ticket: Ticket) -> list[Record]:
    """Return the records that the element with this ticket was made from, in its order."""
    return [*plan.parse_position(ticket, lambda ticket: [*located(plan, ticket)])]


def located(node: Node, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of an element of a step."""
    read = next((read for kinds, read in READERS if isinstance(node, kinds)), None)
    return unknown(node, ticket) if read is None else read(node, ticket)


def unknown(node: Node, ticket: Ticket) -> Iterator[Record]:
    """Say that a step's elements do not tell."""
    yield {"unknown": node.label(), "ticket": encode(ticket)}


def in_file(node: Any, ticket: Ticket) -> Iterator[Record]:
    yield {"file": node.shown, "record": number(ticket)}


def in_source(node: Node, ticket: Ticket) -> Iterator[Record]:
    """Yield the element's number in its source; of a stream also the state from which it can be read, of a listed file
    its name."""
    found: Record = {"source": node.label(), "index": number(ticket)}
    if isinstance(ticket, RestorableItem) and isinstance(ticket.snapshot.state, str):
        found["state"] = encode(ticket)["state"]
    if isinstance(node, FileNames):
        found["file"] = name_at(node, ticket)
    yield found


def in_listing(node: Node, ticket: Ticket) -> Iterator[Record]:
    yield {"source": node.label(), "file": ticket}


def same(node: Any, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of the element that was passed on or changed."""
    return located(node.input, ticket)


def padded(node: Any, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of an element, marked if it fills up only."""
    if not is_padding(ticket):
        yield from located(node.input, ticket)
    elif isinstance(node, PadToCardinality):  # of zeros
        yield {"source": node.label(), "padding": True}
    else:
        yield from marked(located(node.input, ticket[1]), padding=True)


def of_members(node: Any, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of all members of a batch, window or group."""
    for member in members_of(ticket):
        yield from located(node.input, member)


def of_packed(node: Any, ticket: Ticket) -> Iterator[Record]:
    """Yield the sequences in a row; of one that was cut, which tokens."""
    for member in members_of(ticket):
        if is_cut(member):
            _, whole, start, stop = member
            yield from marked(located(node.input, whole), tokens=[start, stop])
        else:
            yield from located(node.input, member)


def of_row(node: Unbatch, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of the batch that a row was in; its own alone where a batch has one row for each member."""
    parent, row = ticket
    batch = node.input
    while isinstance(batch, Prefetch):
        batch = batch.input
    if row is not None and isinstance(parent, Tickets) and type(batch) in (Batch, PaddedBatch, RaggedBatch, ListBatch):
        yield from located(cast("Batch", batch).input, parent[row])
    else:
        yield from marked(located(node.input, parent), row=row)


def in_turn(node: Any, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of one turn of `repeat`."""
    if isinstance(node, Repeat) and node.count == 1:
        return located(node.input, ticket)
    turn, inner = ticket
    return marked(located(node.input, inner), turn=number(turn))


def of_inputs(node: Node, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of one of several datasets."""
    dataset, inner = ticket
    nodes = node.nodes if isinstance(node, (Sample, Choose)) else node.inputs
    if number(dataset) == len(nodes) and isinstance(node, Choose):
        return marked(located(node.choices, inner), dataset="choices")
    name = node.names[number(dataset)] if isinstance(node, Sample) and node.names else dataset
    return marked(located(nodes[number(dataset)], inner), dataset=name)


def of_all_inputs(node: Zip, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of each part of a row."""
    for place, (part, inner) in enumerate(zip(node.nodes, ticket, strict=True)):
        yield from marked(located(part, inner), dataset=place)


def of_pair(node: Join, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of an element, and of what matches it."""
    own, other = ticket
    yield from marked(located(node.input, own), dataset=0)
    if other is not None:
        yield from marked(located(node.other, other), dataset=1)


def numbered(node: Any, ticket: Ticket) -> Iterator[Record]:
    return located(node.input, ticket[1])


def inside(node: FlatMap | Interleave, ticket: Ticket) -> Iterator[Record]:
    """Yield the record of a file whose name is known; else what a dataset was made from, and where in it."""
    parent, child = ticket
    name = None if is_users(node.function.fn) else name_at(node.input, parent)
    if name is not None:
        turns = {key: value for one in located(node.input, parent) for key, value in one.items() if key == "turn"}
        yield {"file": name, "record": child, **turns}
    else:
        yield from marked(located(node.input, parent), inside=encode(child))


def name_at(node: Node, ticket: Ticket) -> str | None:
    """Return the name of a file that has this ticket; `None` if only running the steps shows it."""
    if isinstance(node, Listing):
        return ticket
    if isinstance(node, Repeat) and node.count != 1:
        return name_at(node.input, ticket[1])
    if isinstance(node, NAMES_PASS):
        return name_at(node.input, ticket)
    if not isinstance(node, InMemorySource) or not node.is_in_memory or node.size == FOREVER:
        return None
    (name,) = node.rows(number(ticket), number(ticket) + 1)
    return name if isinstance(name, str) else None


def cached(node: Any, ticket: Ticket) -> Iterator[Record]:
    """Yield the records of an element while its cache is filled; later it only has a number there."""
    if isinstance(ticket, tuple):
        return located(node.input, cast("Sequence[Any]", ticket)[1])
    source: Node = node.input
    while isinstance(source, PASSED_ONE_FOR_ONE):
        source = source.input
    if source.gives_all and isinstance(source, (IndexedSource, ParsedFile, IteratorSource)):
        return located(source, number(ticket))
    return iter([{"cache": node.label(), "index": number(ticket)}])


def marked(records: Iterator[Record], **more: Any) -> Iterator[Record]:
    """Yield records with further facts; those of a step nearer to the source come first, and stay under their names."""
    for record in records:
        found = dict(record)
        for name, value in more.items():
            found[name] = [*listed(found[name]), value] if name in found else value
        yield found


def listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def number(ticket: Ticket) -> int:
    """Return the ordinal of an element of a source; `TypeError` for another ticket."""
    if not isinstance(ticket, int):
        raise TypeError(f"{ticket!r:.40} is no number")
    return int(ticket)


NAMES_PASS: Final = (Permute, Prefetch, Shard, Shuffle, Skip, Take, Filter, Repeat)
"""Steps that pass names on as they are, with their tickets."""

PASSED_ONE_FOR_ONE: Final = (Map, MapBatches, Prefetch, PrefetchToDevice, RateLimit)

SAME: Final = (
    *(AssertCardinality, Balance, Distinct, DropEmpty, Exclude, Filter, IgnoreErrors, Permute, Resample, Scan),
    *(Shuffle, Skip, Take, TakeWhile, Unique, *PASSED_ONE_FOR_ONE),
)

READERS: Final[tuple[tuple[Any, Callable[[Any, Ticket], Iterator[Record]]], ...]] = (
    (ParsedFile, in_file),
    (Listing, in_listing),
    ((IndexedSource, IteratorSource, KafkaTopic, Received, Stored), in_source),
    ((PadToCardinality, Shard), padded),
    (SAME, same),
    ((Batch, BucketByTokenCount, Groups, Window), of_members),
    (PackSequences, of_packed),
    (Unbatch, of_row),
    ((Repeat, ShuffleRepeat), in_turn),
    ((Concatenate, Sample, Choose), of_inputs),
    (Zip, of_all_inputs),
    (Join, of_pair),
    (Enumerate, numbered),
    ((FlatMap, Interleave), inside),
    ((Cache, FileCache), cached),
)
"""How the tickets of each step are read; those of other steps say nothing."""


def words_of_record(record: Record) -> str:
    """Return a record as people write it.

    >>> words_of_record({"file": "a.tfrecord", "record": 12, "turn": 1})
    'a.tfrecord record 12, turn 1'
    """
    rest = dict(record)
    head = [str(rest.pop(name)) for name in ("file", "source", "cache") if name in rest]
    first = [f"{name} {rest.pop(name)}" for name in ("record", "index") if name in rest]
    more = [name if value is True else f"{name} {value}" for name, value in rest.items()]
    return ", ".join([" ".join([*head, *first]), *more] if head else more)

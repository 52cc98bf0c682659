"""Exclusion: which records a user wants to be left out, and where in a plan that happens."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from asyncdata.errors import PlanError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.identity.hashed_attributes import is_users
from asyncdata.recorder.locations import Record, records_of
from asyncdata.recorder.replay import check_origin
from asyncdata.runtime.json_text import parse_json
from asyncdata.sources.file_names import FileNames
from asyncdata.sources.listing import Listing
from asyncdata.sources.parsed_files import ParsedFile
from asyncdata.states import place_of_origins
from asyncdata.storage import local_path
from asyncdata.transforms.batch import Batch
from asyncdata.transforms.bucket_by_token_count import BucketByTokenCount
from asyncdata.transforms.cache import Cache
from asyncdata.transforms.concatenate import Concatenate
from asyncdata.transforms.exclude import DropEmpty, Exclude, unexcluded
from asyncdata.transforms.filter import Filter
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.group_by_reducer import GroupByReducer
from asyncdata.transforms.group_by_window import Groups
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.join import Join
from asyncdata.transforms.map import Map
from asyncdata.transforms.pack_sequences import PackSequences
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice
from asyncdata.transforms.sample_from_datasets import Choose, Sample
from asyncdata.transforms.unbatch import Unbatch
from asyncdata.transforms.window import Window
from asyncdata.transforms.zip import Zip

__all__ = ("Exclusion", "excluded")

Exclusion: TypeAlias = "str | os.PathLike[str] | Iterable[Mapping[str, Any]]"
"""Origins and records, or a file of them, one JSON value a line."""

GROUPING: Final = (Batch, BucketByTokenCount, GroupByReducer, Groups, PackSequences, Window)
"""Steps that make one element of several records."""

OPENING: Final = (FlatMap, Interleave)

PASSED_BELOW: Final = (Map, Filter, Prefetch)
"""Steps before which elements are left out as well as after them, and sooner."""

WHEREVER: Final = ("turn", "tokens", "padding", "state", "ticket")
"""What `locate` says of a record that does not tell it from others."""

NAMES: Final = ("file", "record", "source", "index", "dataset", "inside", "row", *WHEREVER)
"""What `locate` says of a record that can be left out."""

NOT_BY_NUMBER: Final = (Unbatch, Zip, Join, Cache, Choose)
"""Steps whose tickets do not end with the number of a record in its source."""


def excluded(plan: Node, exclusion: Exclusion, keep_steps: bool) -> Node:
    """Return a plan that leaves out some records."""
    wanted = list[Record]()
    for record in records_in(unexcluded(plan), exclusion):
        if (kept := {name: value for name, value in record.items() if name not in WHEREVER}) not in wanted:
            wanted.append(kept)
    check_sources(plan, wanted)
    if keep_steps and not depth_of(plan):
        raise PlanError("exclude(keep_steps=True) leaves holes in batches: call it after batch()")
    if not wanted:
        return plan
    placed = placed_in(plan, wanted, keep_steps)
    if not depth_of(plan):
        return placed
    if isinstance(placed, PrefetchToDevice):
        return placed.with_inputs(DropEmpty(placed.input))
    return DropEmpty(placed)


def depth_of(node: Node) -> int:
    """Return how often elements of a step were put together from others."""
    if not node.inputs:
        return 0
    depth = max(map(depth_of, of_data(node)))
    if isinstance(node, Unbatch):
        return max(0, depth - 1)
    return depth + isinstance(node, GROUPING)


def of_data(node: Node) -> Sequence[Node]:
    """Return the inputs whose elements a step gives."""
    return node.nodes if isinstance(node, Choose) else node.inputs


def placed_in(node: Node, wanted: Sequence[Record], keep_steps: bool) -> Node:
    """Return a plan that leaves out records where elements are single ones, as late as possible: so nothing that counts
    elements of a source notices, and a state of before fits."""
    if not depth_of(node):
        return before_maps(node, wanted, keep_steps)
    if node.sealed:
        raise PlanError(
            f"{node.label()} stores batches, from which single records cannot be left out: put it before batch()"
        )
    if isinstance(node, (Zip, Join)):
        name = "zip" if isinstance(node, Zip) else "join"
        raise PlanError(
            f"{node.label()} pairs batches, so a record that is left out of one would move the rest: batch after {name}"
        )
    if keep_steps and isinstance(node, GROUPING) and not depth_of(node.inputs[0]) and not isinstance(node, Batch):
        raise PlanError(f"exclude(keep_steps=True) leaves holes in batches, which {node.label()} does not know")
    if isinstance(node, OPENING):
        wanted = [{name: value for name, value in record.items() if name != "inside"} for record in wanted]
    parts = of_data(node)
    names: Sequence[Any] = getattr(node, "names", ()) or range(len(parts))
    mixes = isinstance(node, (Concatenate, Sample, Choose))
    wanted_of = [of_part(wanted, name) if mixes else wanted for name in names]
    placed = dict(
        zip(parts, (placed_in(*pair, keep_steps) for pair in zip(parts, wanted_of, strict=True)), strict=True)
    )
    return node.over(*[placed.get(one, one) for one in node.inputs])


def before_maps(node: Node, wanted: Sequence[Record], keep_steps: bool) -> Node:
    """Return a plan that leaves out records, before its last maps and filters."""
    if isinstance(node, PASSED_BELOW):
        return node.with_inputs(before_maps(node.input, wanted, keep_steps))
    if not wanted:
        return node
    by_number = not any(isinstance(one, NOT_BY_NUMBER) or opens_users(one) or one.sealed for one in nodes_of(node))
    return Exclude(node, tuple(wanted), partial(records_of, unexcluded(node)), by_number, keep_steps)


def opens_users(node: Node) -> bool:
    """Return whether a step gives the elements of datasets that a user's function makes, or of windows."""
    return isinstance(node, OPENING) and is_users(node.function.fn)


def of_part(wanted: Sequence[Record], name: Any) -> list[Record]:
    """Return which of some records may be in one of several datasets, as that names them."""
    found: list[Record] = []
    for record in wanted:
        last, rest = record.get("dataset"), {key: value for key, value in record.items() if key != "dataset"}
        if isinstance(last, list):
            *inner, last = cast("list[Any]", last)
            rest["dataset"] = inner if len(inner) > 1 else inner[0]
        if last is None or last == name:
            found.append(rest)
    return found


def records_in(plan: Node, exclusion: Exclusion) -> Iterator[Record]:
    """Yield the records that a user names, by themselves or by the origins of elements."""
    if isinstance(exclusion, (str, os.PathLike)):
        exclusion = read_records(Path(local_path(cast("str", exclusion), "a file of records")))
    elif isinstance(exclusion, Mapping):
        raise PlanError("exclude() takes a list of origins or records, got one: put it into a list")
    for one in exclusion:
        if not isinstance(one, Mapping):
            raise PlanError(f"exclude() takes origins, and records as locate() returns them, got {one!r:.80}")
        if "plan" in one:
            place = place_of_origins(plan, [check_origin(one)])
            yield from map(check_record, records_of(place.plan, place.start.back[0]))
        else:
            yield check_record(cast("Mapping[str, Any]", one))


def read_records(path: Path) -> list[Any]:
    """Return the values in a file, one a line."""
    found: list[Any] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            value = parse_json(line) if line.strip() else None
        except ValueError:
            raise PlanError(f"{path}: line {number} is no JSON, got {line!r:.80}") from None
        found += [] if value is None else cast("list[Any]", value) if isinstance(value, list) else [value]
    return found


def check_record(record: Mapping[str, Any]) -> Record:
    """Return a record; `PlanError` if it does not say which."""
    if "unknown" in record:
        raise PlanError(f"{record['unknown']} does not tell which records are in its elements: exclude() before it")
    if "cache" in record:
        raise PlanError(f"elements of {record['cache']} have only numbers there: call exclude() before it")
    kind = "record" if "source" not in record and "record" in record else "index"
    number, is_file = record.get(kind), "file" in record
    named = isinstance(record.get("file", record.get("source")), str)
    if not named or not ((type(number) is int and number >= 0) or (is_file and number is None)):
        raise PlanError(
            "a record to leave out is a file and a number, as {'file': 'a.tfrecord', 'record': 12}, or a source and a "
            f"number, as {{'source': 'range(5)', 'index': 3}}, as locate() returns it; got {dict(record)!r:.120}"
        )
    if others := [name for name in record if name not in NAMES]:  # no record has it, so none would be left out
        raise PlanError(
            f"a record to leave out is described by {', '.join(NAMES)}, not by {others[0]!r}; got {record!r:.120}"
        )
    return dict(record)


def check_sources(plan: Node, wanted: Sequence[Record]) -> None:
    """Raise `PlanError` for a record of a source that a plan does not have, as far as it tells which it has."""
    leaves = [node for node in nodes_of(plan) if not node.inputs]
    files = [path for node in leaves for path in files_of(node)]
    named = all(isinstance(node, ParsedFile) or files_of(node) for node in leaves)
    unseen = any(opens_users(node) or (isinstance(node, OPENING) and not named) for node in nodes_of(plan))
    labels = {node.label() for node in leaves}
    known = ", ".join(sorted(labels))
    for record in wanted:
        if "source" in record and record["source"] not in labels:
            raise PlanError(f"there is no source {record['source']} in this pipeline; it has {known}")
        if "file" in record and not unseen and not any(isinstance(node, Listing) for node in leaves):
            name = record["file"]
            if not any(path == name or path.endswith((f"/{name}", f"\\{name}")) for path in files):
                raise PlanError(f"this pipeline does not read {name}; it reads {', '.join(files[:10]) or 'no files'}")
        check_number(leaves, record)


def check_number(leaves: Sequence[Node], record: Record) -> None:
    """Raise `PlanError` for a number that no record of its source has, as far as that is known."""
    if "index" in record and all(isinstance(node, ParsedFile) for node in leaves):
        raise PlanError(f"a record of a file has its number as 'record', not as 'index'; got {record!r:.120}")
    counts = [node.cardinality for node in leaves if "source" in record and node.label() == record["source"]]
    if counts and all(0 <= count <= record["index"] for count in counts):
        raise PlanError(f"{record['source']} has {max(counts)} elements, from 0 on; got {record!r:.120}")


def files_of(node: Node) -> Sequence[str]:
    """Return the files that a source reads or lists, as far as it tells."""
    if isinstance(node, ParsedFile):
        return [node.shown]
    return cast("Sequence[str]", node.items) if isinstance(node, FileNames) else ()

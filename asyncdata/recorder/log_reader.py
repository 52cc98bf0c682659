"""Reads logs of runs, and says what of them is damaged, cut off or cannot be trusted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeGuard, cast, get_args

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError, PlanError
from asyncdata.graph.node import Node
from asyncdata.persistence.run_log import FORMAT, Occasion, chained
from asyncdata.persistence.run_log_files import contents, log_path, parts_of
from asyncdata.persistence.run_log_lines import MOST_TEXT, name_of_order
from asyncdata.recorder.orders import order_of
from asyncdata.runtime.column_compression import decompressed, decompressed_text
from asyncdata.runtime.columns import Columns
from asyncdata.runtime.json_text import parse_json
from asyncdata.runtime.orders import MOST_PLACES, Order
from asyncdata.runtime.position_codec import rows_of, unpack_columns
from asyncdata.runtime.tickets import END, Position, ReplayedTickets, Ticket, decode, encode
from asyncdata.states import shares_of

MOST_STEPS: Final = 1 << 22
"""The most elements that a line has."""

MOST_RANKS: Final = 1 << 20

DAMAGED: Final = (ValueError, TypeError, LookupError, OverflowError, RecursionError)
"""What is raised for a ticket or an order that is none."""

__all__ = (
    "DAMAGED",
    "Logs",
    "PackedTickets",
    "Run",
    "Step",
    "TicketSpan",
    "in_order_of_time",
    "logs_of",
    "rank_words",
    "read_logs",
    "step_origin",
    "ticket_of",
)


class PackedTickets:
    """The tickets of many elements, or of the members of many batches, as JSON, or their places in one of `orders`."""

    __slots__ = ("count", "of", "orders", "where")

    def __init__(self, of: dict[str, Any], count: int, orders: Mapping[str, Order], where: str) -> None:
        self.of = of
        self.count = count
        self.orders = orders
        self.where = where
        """The file and the line."""

    def columns(self) -> Columns:
        """Return them as columns; `ValueError` or another error if they are damaged."""
        run: list[int] | None = self.of.get("run")
        count: int = self.of["packed"] if run is None else run[1]
        if count != self.count:
            raise ValueError(f"{count} tickets of {self.count}")
        unpack = decompressed if "deflated" in self.of else unpack_columns
        found = unpack(self.of) if run is None else in_steps(*run)
        return self.orders[self.of["order"]].columns(found) if "order" in self.of else found


class TicketSpan(NamedTuple):
    """Those tickets of a line that one batch has; or the one of an element, if there is no `stop`."""

    line: PackedTickets
    start: int
    stop: int | None = None

    @property
    def end(self) -> int:
        """After which ticket it ends."""
        return self.start + 1 if self.stop is None else self.stop


class Step(NamedTuple):
    """One element in a log."""

    ticket: Any
    """As JSON, or a part of a line; `None` if it was not known."""
    failed: bool = False
    """Whether its error was raised in its place."""


@dataclass
class Run:
    """One iteration in a log: from its start or a state up to where it was stopped."""

    path: str
    header: Mapping[str, Any]
    steps: dict[int, Step] = field(default_factory=dict[int, Step])
    """Each element, by its number in the epoch; only what was written completely."""
    positions: dict[int, Position] = field(default_factory=dict[int, Position])
    """Where it continues after so many elements: at its beginning, and at states."""
    stop: int = 0
    """How many elements of the epoch had been delivered at the end of what was written."""
    ended: int | None = None
    """How many elements the epoch had, if the run came to its end."""

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.header["epoch"]

    @property
    def begin(self) -> int:
        """How many elements of the epoch had been delivered before."""
        return self.header["begin"]

    @property
    def shares(self) -> tuple[tuple[int, int], ...]:
        """Which shares it read: of how many, which."""
        return tuple([(count, index) for count, index in self.header["shares"]])

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the run that it is a part of, several after states were merged; none in older logs."""
        return frozenset(self.header.get("run", ()))

    @property
    def time(self) -> str:
        """When it began."""
        return str(self.header.get("time", ""))

    @property
    def process(self) -> tuple[int, ...]:
        """Which of how many processes read it, as the launcher said; nothing if it was one alone."""
        return tuple(self.header.get("rank", ()))

    @property
    def rank(self) -> str:
        """The share, for people."""
        return rank_words(self.shares)


@dataclass
class Logs:
    """The runs in some logs, in their order in each file."""

    runs: list[Run] = field(default_factory=list[Run])
    faults: list[str] = field(default_factory=list[str])
    """What is damaged: it may hide anything."""
    notes: list[str] = field(default_factory=list[str])
    """What was cut off by a crash: such lines do not count, and are missed where they do."""
    orders: dict[str, Order] = field(default_factory=dict[str, Order])
    """The orders in which elements have places, by their hashes."""


def logs_of(record: str | os.PathLike[str], plan: Node) -> Logs:
    """Return what the log of the share that a plan reads has."""
    path = log_path(record, shares_of(plan))
    return read_logs(parts_of(path) or [path])


def read_logs(paths: Sequence[str]) -> Logs:
    """Return what some logs have."""
    logs = Logs()
    ends: dict[bytes, Run] = {}
    for path, lines in contents(paths):
        reader = LogReader(path, logs, ends)
        logs.runs.extend(reader.runs(lines))
        if not reader.sealed:
            logs.faults.append(f"{path} has no run that can be read")
    leave_out_copies(logs)
    return logs


def leave_out_copies(logs: Logs) -> None:
    """Count each run once, where a file and a copy of it are there: by what has the most of it."""
    same, gone = dict[Any, list[Run]](), set[int]()
    for run in logs.runs:
        same.setdefault((run.time, run.shares, run.epoch, run.begin, run.ids), []).append(run)
    for copies in same.values():
        most = max(copies, key=lambda run: (len(run.steps), run.ended is not None))
        for run in copies:
            if run.path != most.path and run.header == most.header:
                logs.notes.append(f"{run.path} has a copy of a run in {most.path}: it counts once")
                gone.add(id(run))
    logs.runs = [run for run in logs.runs if id(run) not in gone]


@dataclass
class Chunk:
    """What was written at once: elements, and with the first of a run its header."""

    path: str
    orders: dict[str, Order]
    """Those of all logs."""
    header: Mapping[str, Any] | None = None
    lines: list[bytes] = field(default_factory=list[bytes])
    steps: dict[int, Step] = field(default_factory=dict[int, Step])
    positions: dict[int, Position] = field(default_factory=dict[int, Position])
    damage: str = ""
    """What of it is damaged."""

    def add(self, line: bytes, value: Any, number: int) -> None:
        """Take a line."""
        self.lines.append(line)
        if isinstance(value, dict) and "lines" in value:
            for one in self.lines_in(cast("dict[str, Any]", value)["lines"]):
                self.add_value(parsed(one), number)
        else:
            self.add_value(value, number)

    def lines_in(self, text: Any) -> list[bytes]:
        """Return the lines that were deflated; one that is none, if they are damaged."""
        try:
            return decompressed_text(text, MOST_TEXT).splitlines()
        except DAMAGED:
            return [b""]

    def add_value(self, value: Any, number: int) -> None:
        """Take what is in the line of one element, of many, of an order or of a position."""
        found = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if is_natural(found.get("at")):
            self.positions[found["at"]] = found.get("position")
            return
        if "steps" in found:
            self.add_many(found, number)
            return
        if "order" in found:
            self.add_order(found, number)
            return
        parts = cast("list[Any]", value) if isinstance(value, list) else []
        if len(parts) > 1 and is_natural(parts[0]) and parts[2:] in ([], [1]):
            self.steps[parts[0]] = Step(parts[1], bool(parts[2:]))
        else:
            self.damaged(number)

    def add_order(self, found: dict[str, Any], number: int) -> None:
        """Take the line of an order."""
        name = found.pop("order")
        try:
            if name_of_order(found) != name:
                raise ValueError(name)
            self.orders[name] = order_of(found)
        except DAMAGED:
            self.damaged(number)

    def add_many(self, found: Mapping[str, Any], number: int) -> None:
        """Take the line of many elements."""
        first, count = found["steps"] if numbers(found["steps"], 2) and found["steps"][1] <= MOST_STEPS else (0, 0)
        each, places = found.get("each"), range(first, first + count)
        sizes = [each] * count if type(each) is int else each
        where = f"{self.path}: line {number}"
        if not places or not isinstance(found.get("of"), dict) or not (each is None or numbers(sizes, count)):
            self.damaged(number)
        elif each is None:
            line = PackedTickets(found["of"], count, self.orders, where)
            self.steps.update((place, Step(TicketSpan(line, index))) for index, place in enumerate(places))
        else:
            stops = [*accumulate(cast("list[int]", sizes), initial=0)]
            line = PackedTickets(found["of"], stops[-1], self.orders, where)
            self.steps.update(
                (place, Step(TicketSpan(line, *bounds))) for place, bounds in zip(places, pairwise(stops), strict=True)
            )

    def damaged(self, number: int) -> None:
        """Take note of a damaged line."""
        self.damage = self.damage or f"line {number} is damaged"


class LogReader:
    """Reads one file or object of a log: a chunk, up to the line that seals it, counts only if its hash is right."""

    def __init__(self, path: str, logs: Logs, ends: dict[bytes, Run]) -> None:
        self.path = path
        self.logs = logs
        self.ends = ends
        """The runs by the last hash of what was read of them, to find those that go on in another part."""
        self.sealed = False
        """Whether anything was read."""
        self.run: Run | None = None
        self.chunk = Chunk(path, logs.orders)
        self.chain = b""

    def runs(self, lines: Iterable[bytes]) -> Iterator[Run]:
        """Yield the runs that begin in this part."""
        number = 0
        for number, line in enumerate(lines, 1):
            value = parsed(line)
            if isinstance(value, dict) and "log" in value:
                self.cut_off(number)
                self.run, self.chunk, self.chain = (
                    None,
                    Chunk(self.path, self.logs.orders, cast("dict[str, Any]", value), [line]),
                    b"",
                )
            elif isinstance(value, dict) and "sum" in value:
                new = self.seal(cast("dict[str, Any]", value), number)
                if new is not None:
                    yield new
            else:
                self.chunk.add(line, value, number)
        self.cut_off(number)

    def seal(self, marker: dict[str, Any], number: int) -> Run | None:
        """Take the end of a chunk; return the run that begins with it."""
        (why, count), *_ = marker.items()
        chunk, self.chunk = self.chunk, Chunk(self.path, self.logs.orders)
        if why not in get_args(Occasion) or not is_natural(count):
            chunk.damaged(number)
        seal = bytes.fromhex(marker["sum"]) if is_hash(marker["sum"]) else b""
        body, new = b"".join(chunk.lines), cast("Run | None", None)
        right = not chunk.damage and chained(self.chain, body, why, count) == seal
        if not right and not chunk.damage and chunk.header is None and why in ("left", "end"):
            for chain, run in self.ends.items():
                if chained(chain, body, why, count) == seal:  # of a run that was closed after the next one had begun
                    self.take(run, chunk, chain, seal, why, count)
                    return None
        if not right:
            self.logs.faults.append(
                f"{self.path}: what was written up to line {number} does not have the hash that it had: "
                f"{chunk.damage or 'the file was changed, or two runs wrote it at once'}"
            )
        elif chunk.header is not None and not self.refused(chunk.header):
            self.run = self.continued(chunk.header) or (new := Run(self.path, chunk.header))
        if right and self.run is not None:
            self.take(self.run, chunk, self.chain, seal, why, count)
        self.chain = seal
        return new

    def continued(self, header: Mapping[str, Any]) -> Run | None:
        """Return the run that goes on where a part begins, `None` if one begins there."""
        follows = header.get("follows")
        run = self.ends.pop(bytes.fromhex(follows), None) if is_hash(follows) else None
        if follows is not None and run is None:
            self.logs.faults.append(f"{self.path}: a run goes on there, and the part before it is not here")
        return run

    def take(self, run: Run, chunk: Chunk, before: bytes, after: bytes, why: str, count: int) -> None:
        """Take a chunk of a run, whose hash was `before` and is now `after`."""
        self.sealed = True
        run.steps.update(chunk.steps)
        run.positions.update(chunk.positions)
        run.stop, run.ended = count, count if why == "end" else None
        self.ends.pop(before, None)
        self.ends[after] = run

    def refused(self, header: Mapping[str, Any]) -> bool:
        """Return whether a run was written by another version, or is none, and say so."""
        if header["log"] in range(1, FORMAT + 1) and is_header(header):
            return False
        self.logs.faults.append(f"{self.path}: a log of format {header['log']!r:.20}; this asyncdata reads {FORMAT}")
        return True

    def cut_off(self, number: int) -> None:
        """Say that lines before line `number` were not written completely. They do not count."""
        if lines := self.chunk.lines:
            self.logs.notes.append(f"{self.path}: {len(lines)} lines up to line {number} were cut off: not counted")
            self.chunk = Chunk(self.path, self.logs.orders)


def in_steps(first: int, count: int, step: int = 1) -> npt.NDArray[np.int64]:
    """Return numbers that grow in equal steps; `ValueError` for those that no log has."""
    if max(map(abs, (first, count, step, first + count * step))) >= MOST_PLACES:
        raise ValueError(f"{count} numbers from {first} on, every {step}")
    return first + step * np.arange(count)


def is_natural(value: Any) -> bool:
    """Return whether a value is an integer from 0 to below 2^62."""
    return type(value) is int and 0 <= value < MOST_PLACES


def numbers(value: Any, count: int) -> bool:
    """Return whether a value is a list of so many natural numbers."""
    found = cast("list[Any]", value) if isinstance(value, list) else [None]
    return len(found) == count and all(map(is_natural, found))


def ticket_of(found: Any) -> Ticket:
    """Return the ticket of a step, or one as JSON; `DataLossError` for what is none."""
    where = found.line.where if isinstance(found, TicketSpan) else f"{found!r:.80}"
    try:
        if not isinstance(found, TicketSpan):
            return decode(found)
        members = members_of(found.line)
    except DAMAGED as error:
        raise DataLossError(f"{where} does not say which records there were: {error}") from None
    return members[found.start] if found.stop is None else ReplayedTickets(members, found.start, found.stop, END)


@lru_cache(2)
def members_of(line: PackedTickets) -> Sequence[Ticket]:
    """Return all tickets of a line, whose elements are mostly asked for one after the other."""
    return rows_of(line.columns())


def parsed(line: bytes) -> Any:
    try:
        return parse_json(line)
    except ValueError:
        return None


def is_header(header: Mapping[str, Any]) -> bool:
    """Return whether a run has what it must begin with."""
    kinds = {"version": int, "plan": list, "seeds": list, "shares": list, "epoch": int, "begin": int, "time": str}
    if not all(type(header.get(name)) is kind for name, kind in kinds.items()):
        return False
    seeds, shares = header["seeds"], header["shares"]
    pairs = all(isinstance(pair, list) and [*map(type, cast("list[Any]", pair))] == [int, int] for pair in seeds)
    ranks = all(numbers(pair, 2) and pair[1] < pair[0] for pair in shares) and prod(pair[0] for pair in shares)
    each, run = (header.get(name, []) for name in ("each", "run"))
    named = all(
        isinstance(some, list) and {*map(type, cast("list[Any]", some))} <= {str} for some in (header["plan"], run)
    )
    counts = isinstance(each, list) and numbers(each, len(cast("list[Any]", each)))
    begun = is_natural(header["begin"]) and is_natural(header["epoch"]) and numbers(header.get("rank", [0, 1]), 2)
    return pairs and 0 < ranks <= MOST_RANKS and named and counts and begun


def rank_words(shares: Sequence[tuple[int, int]]) -> str:
    """Return a share in words."""
    return ", ".join([f"rank {index} of {count}" for count, index in shares if count > 1]) or "the one process"


def is_hash(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) == 16 and set(value) <= set("0123456789abcdef")


def in_order_of_time(runs: Iterable[Run]) -> list[Run]:
    """Return runs as they began: those of one file are in order, also where the clock was put back."""
    latest, times = dict[str, str](), list[tuple[str, Run]]()
    for run in runs:
        latest[run.path] = max(run.time, latest.get(run.path, ""))
        times.append((latest[run.path], run))
    return [run for _, run in sorted(times, key=itemgetter(0))]


def step_origin(logs: Logs, step: int, epoch: int | None) -> dict[str, Any]:
    """Return the origin of one step, as it was delivered last; raise if it is not there, or in several epochs."""
    found = [run for run in logs.runs if step in run.steps and epoch in (None, run.epoch)]
    epochs = {run.epoch for run in found}
    if not found:
        last = max((max(run.steps, default=-1) for run in logs.runs if epoch in (None, run.epoch)), default=-1)
        where = "" if epoch is None else f" in epoch {epoch}"
        raise DataLossError(f"the log has no step {step}{where}{f', the last is {last}' if last >= 0 else ''}")
    if len(epochs) > 1:
        raise PlanError(f"step {step} is in the epochs {', '.join(map(str, sorted(epochs)))}: say which with --epoch")
    run = in_order_of_time(found)[-1]
    if run.steps[step].ticket is None:
        raise DataLossError(f"step {step} cannot be replayed: its origin was not known when the log was written")
    return {**run.header, "step": step, "ticket": encode(ticket_of(run.steps[step].ticket))}

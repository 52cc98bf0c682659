"""Audit: whether logs of all ranks and restarts show each record of an epoch delivered once, and if not, why."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, groupby, pairwise, product
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from asyncdata.errors import ResumeError
from asyncdata.persistence.run_id import JOB
from asyncdata.persistence.run_log import IN_ANY_ORDER, WITH_REPLACEMENT
from asyncdata.recorder.draws import faults_of_draws, times_in_words
from asyncdata.recorder.log_reader import (
    DAMAGED,
    Logs,
    PackedTickets,
    Run,
    Step,
    TicketSpan,
    in_order_of_time,
    rank_words,
    ticket_of,
)
from asyncdata.recorder.record_hashes import Hashes, hashes_of_columns, hashes_of_leaves
from asyncdata.runtime.position_codec import unpack_columns
from asyncdata.runtime.tickets import Ticket, Tickets, plain

__all__ = ("Audit", "Delivered", "Expected", "audit", "leaves_of")

MOST: Final = 10
"""The most records and gaps of one kind that are named."""

Shares: TypeAlias = tuple[tuple[int, int], ...]
"""Which share of each step that divides the data a process gets: of how many, which."""

Part: TypeAlias = tuple[int, Shares]
"""An epoch, and what one rank reads of it."""


class Expected(Protocol):
    """What the pipeline gives, to compare with."""

    @property
    def in_order(self) -> bool:
        """Whether each run gives its elements in one order."""
        ...

    def steps(self, epoch: int, shares: Shares, header: Mapping[str, Any]) -> Iterator[Step]:
        """Yield all elements of an epoch that a process with these shares gets."""
        ...


class Delivered(NamedTuple):
    """Which step of which share gave a record."""

    rank: str
    step: int

    def __str__(self) -> str:
        return f"step {self.step} of {self.rank}"


@dataclass
class Audit:
    """What the logs show of one epoch. It is `complete` if each record was delivered once, as far as can be proved."""

    epoch: int
    steps: int = 0
    records: int = 0
    again: int = 0
    """Steps that were delivered once more after a restart from a state before them; these count once."""
    others: int = 0
    """Steps of other runs of the same epoch, which do not count: the run that began or resumed last does."""
    failed: int = 0
    """Steps whose error was raised instead of an element."""
    twice: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    drawn: str = ""
    """How many records came how often, if repeats are intended: a sampler drew them with replacement."""
    each: str = "once"
    """How often each record comes in a complete epoch, in words."""
    because: list[str] = field(default_factory=list[str])
    """Why it is not complete, or cannot be known to be."""
    notes: list[str] = field(default_factory=list[str])
    """What was cut off, and does not count: it may explain what is missing."""
    delivered: Sequence[tuple[Delivered, Any]] = field(default=(), repr=False)
    """The steps that count, but for those that failed, each with its ticket."""

    @property
    def complete(self) -> bool:
        """Whether each record of the epoch was delivered exactly once."""
        return not (self.because or self.twice or self.missing)

    def __str__(self) -> str:
        again = f"; {self.again} steps were repeated after restarts" if self.again else ""
        again += f"; {self.others} steps are of another run, and do not count" if self.others else ""
        failed = f"; {self.failed} steps failed" if self.failed else ""
        drawn = f" drawn with replacement ({self.drawn})" if self.drawn else ""
        head = f"epoch {self.epoch}: {self.steps} steps, {self.records} records{drawn}{failed}{again}"
        if self.complete:
            return f"{head}: complete, each {self.each}"
        lines = [f"not complete, because {reason}" for reason in self.because]
        lines += [f"delivered twice: {words}" for words in self.twice]
        lines += [f"not delivered: {words}" for words in self.missing]
        lines += [f"note: {words}" for words in self.notes]
        return "\n".join([head, *[f"  {line}" for line in shortened(lines)]])


def shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= 3 * MOST else [*lines[: 3 * MOST], f"and {len(lines) - 3 * MOST} more"]


def audit(logs: Logs, expected: Expected | None = None) -> list[Audit]:
    """Return what logs show of each epoch; with `expected`, compared with what the pipeline gives."""
    runs = logs.runs
    if not runs:
        return [Audit(0, because=[*logs.faults, "there is no run in these logs"], notes=logs.notes)]
    different, gone, found = differences(runs), left_behind(runs), list[Audit]()
    for epoch in sorted({run.epoch for run in runs}):
        one = Audit(epoch, because=[*logs.faults, *different, *gone.get(epoch, [])], notes=logs.notes)
        if not different:
            EpochAudit(one, [run for run in runs if run.epoch == epoch], expected).run()
        found.append(one)
    return found


def left_behind(runs: Sequence[Run]) -> dict[int, list[str]]:
    """Say which epochs came after a state from which the run went on later, and has not come to them again."""
    found, latest = dict[Part, str](), dict[Part, Run]()
    for run in in_order_of_time([run for run in runs if run.steps]):
        again = [part for part in found if part[0] == run.epoch and (part[1] == run.shares or is_dealt_anew(run, part))]
        for part in again:
            del found[part]
        for part, one in latest.items():
            behind = part[1] != run.shares and not is_dealt_anew(run, part)  # another rank, which is slower
            if one.epoch > run.epoch and (one.ids & run.ids or one.ids == run.ids) and not behind:
                found[part] = words_of_return(run, one)
        latest[run.epoch, run.shares] = run
    return {epoch: [words for part, words in found.items() if part[0] == epoch] for epoch, *_ in found}


def words_of_return(run: Run, one: Run) -> str:
    """Say that a run went back from the epoch of another one, unless that may be of another process that goes on."""
    place = f"step {run.begin} of epoch {run.epoch} afterwards, {run.path}"
    if run.shares == one.shares and run.process and one.process and run.process != one.process:
        readers = f"rank {one.process[0]} and rank {run.process[0]} each read all of it, and the latter was at {place}"
        return f"{readers}: the log cannot tell whether what learned from this epoch is gone"
    return f"{run.rank} went back to {place}: what learned from this epoch is gone"


def is_dealt_anew(run: Run, part: Part) -> bool:
    """Return whether a run reads one of another number of shares."""
    return counts_of(run) != [count for count, _ in part[1]]


def counts_of(run: Run) -> list[int]:
    """Return of how many shares a run read one."""
    return [count for count, _ in run.shares]


def differences(runs: Sequence[Run]) -> list[str]:
    """Say which runs are of another pipeline, or of other seeds, than the first one."""
    first = runs[0]
    return [
        f"a run in {run.path} has another {'pipeline' if name == 'plan' else 'seed'} than one in {first.path}: "
        f"{differing(run.header[name], first.header[name])}"
        for run in runs
        for name in ("plan", "seeds")
        if run.header[name] != first.header[name]
    ][:MOST]


def readers_of_all(runs: Sequence[Run]) -> list[str]:
    """Say which processes each read all of the data from one step on; one may have another number after a restart."""
    each: dict[int, set[int]] = {}
    for run in runs if rank_words(runs[0].shares) == rank_words(()) else ():
        each.setdefault(run.begin, set()).update(run.process[:1])
    readers = sorted({number for numbers in each.values() if len(numbers) > 1 for number in numbers})
    words = " and ".join(f"rank {number}" for number in readers[:MOST])
    return [f"{words} each read all of it: give each a share, as shard() does, or record one alone"] if words else []


def differing(one: Sequence[Any], other: Sequence[Any]) -> str:
    """Say which step differs."""
    place = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if place is None:  # one goes on where the other ends
        longer = max(one, other, key=len)
        return (
            f"{len(one)} steps and {len(other)}, the longer one with {longer[min(len(one), len(other))]} too; what is "
            "made from a recorded dataset is recorded too: give it Options(record=) with its own log, or with False"
        )
    return f"{one[place]} and {other[place]}"


class EpochAudit:
    """Looks at all runs of one epoch."""

    def __init__(self, found: Audit, runs: list[Run], expected: Expected | None) -> None:
        self.found = found
        self.expected = expected
        self.generations = generations_of(runs)
        for place, generation in enumerate(self.generations):
            if place and not generation.dealt:  # it began anew with another number of ranks
                self.found.again += sum(len(run.steps) for one in self.generations[:place] for run in one.all_runs)
                self.generations = self.generations[place:]
        self.hashes: list[Hashes] = []
        self.sizes = array("q")
        """How many records each step had."""
        self.places: list[Delivered] = []
        self.tickets: list[Any] = []
        self.failed: set[Delivered] = set()
        self.over = False
        """Whether the last generation of ranks began where all of those before had come to the end."""

    def run(self) -> None:
        """Look for gaps, records that came twice, and those that did not come."""
        if self.generations[0].dealt and sum(self.generations[0].each or [1]):
            self.found.because.append(f"those that had begun the epoch, before {self.generations[0].name}, have no log")
        later = [*self.generations[1:], None]
        for pair in zip(self.generations, later, strict=True):
            for rank, steps in self.parts(*pair):
                self.found.steps += len(steps)
                for line, items in groupby(sorted(steps.items()), lambda item: line_of(item[1])):
                    some = [*items]
                    self.add_line(line, rank, some) if line else self.add(rank, some)
        self.found.records = sum(self.sizes)
        pairs = zip(self.places, self.tickets, strict=True)
        self.found.delivered = [pair for pair in pairs if pair[0] not in self.failed]
        self.check_repeats()
        if self.has_step("cache(", "snapshot(") and any(len(runs) > 1 for runs in self.generations[0].runs.values()):
            self.found.because.append("a run resumed, and elements of a cache then have other names than before")
        if self.expected is not None:
            try:
                self.compare(self.expected)
            except ResumeError as error:  # the logs are of another pipeline
                self.found.because.append(str(error))

    def check_repeats(self) -> None:
        """Look for records, or draws of a sampler, that came twice."""
        found = self.found
        if any(WITH_REPLACEMENT in label for label in self.generations[0].plan):
            found.each = "draw once"
            self.check_draws()
        elif not self.has_step("window("):
            found.each = "once in each turn of repeat" if self.has_step("repeat(") else "once"
            self.find_twice()
        elif self.expected is None:
            self.found.because.append("window() may give records several times: compare it with the pipeline")

    def has_step(self, *begins: str) -> bool:
        """Return whether the pipeline has a step whose text begins so."""
        return any(label.startswith(begins) for label in self.generations[0].plan)

    def add(self, rank: str, steps: Sequence[tuple[int, Step]]) -> None:
        """Take the records of steps one by one; one that failed gave none."""
        for number, step in steps:
            place = Delivered(rank, number)
            self.found.failed += step.failed
            self.failed.update([place] if step.failed else ())
            try:
                hashes = hashes_of(step.ticket)[: 0 if step.failed else None]
            except DAMAGED:
                self.unknown([place])
            else:
                self.take([place], [step.ticket], [len(hashes)], [hashes])

    def add_line(self, line: PackedTickets, rank: str, steps: Sequence[tuple[int, Step]]) -> None:
        """Take the records of steps that are in one line of a log."""
        places, parts = [Delivered(rank, number) for number, _ in steps], [step.ticket for _, step in steps]
        try:
            hashes = hashes_of_columns(line.columns())
        except DAMAGED:
            self.unknown(places, f": {line.where} is damaged")
        else:
            self.take(places, parts, [part.end - part.start for part in parts], pieces_of(hashes, parts))

    def take(self, places: list[Delivered], tickets: list[Any], sizes: list[int], hashes: list[Hashes]) -> None:
        """Take steps, and the hashes of their records."""
        self.places += places
        self.tickets += tickets
        self.sizes.extend(sizes)
        self.hashes += hashes

    def unknown(self, places: Sequence[Delivered], why: str = "") -> None:
        """Say that the records of steps of one rank are not known."""
        steps = ranges(place.step for place in places)
        self.found.because.append(f"it is not known which records step {steps} of {places[0].rank} had{why}")

    def parts(self, generation: Generation, later: Generation | None) -> Iterator[tuple[str, dict[int, Step]]]:
        """Yield what each rank delivered that counts, up to where a later generation of ranks went on."""
        because = self.found.because
        if later is not None and len(later.each) != len(generation.ranks):
            because.append(
                f"{later.name} went on from a state that does not say how far each of {len(generation.ranks)} ranks was"
            )
            return
        self.check_ids(generation, later)
        over, self.over = self.over, True
        for place, shares in enumerate(generation.ranks):
            runs, begin = generation.runs.get(shares), generation.begin_of(shares)
            if runs is None:
                self.over &= over
                if not over if later is None else later.each[place] != begin:  # else it gave nothing
                    because.append(f"{rank_words(shares)} has no log")
                continue
            because += readers_of_all(runs)
            if later is not None and max(run.time for run in runs) > min(run.time for run in later.all_runs):
                because.append(f"{runs[0].rank} went on after {later.name} had begun from its state")
            steps, ended = self.chain(runs)
            stop = ended if later is None else later.each[place]
            self.over &= ended == stop or over
            if stop is None and over:
                stop = begin
            if stop is None:
                because.append(f"{runs[0].rank} is not at the end of the epoch: {len(steps)} steps are in its log")
                stop = max(steps, default=begin - 1) + 1
            absent = gaps(steps, begin, stop)
            if absent:
                ids = f" of run {words_of_ids(runs[-1].ids)}" if len({run.ids for run in runs}) > 1 else ""
                paths = ", ".join(dict.fromkeys(run.path for run in runs[:MOST]))
                because.append(f"{runs[0].rank} has no step {words_of_ranges(absent)}{ids} in its log, {paths}")
            self.found.again += sum(step >= stop for step in steps)
            yield runs[0].rank, {step: one for step, one in steps.items() if step < stop}

    def chain(self, runs: Sequence[Run]) -> tuple[dict[int, Step], int | None]:
        """Return the steps of one rank that count, and how many there are if it came to the end.

        A run from a state replaces what came after that state in the run that saved it. The last one counts.
        """
        found: dict[frozenset[str], dict[int, Step]] = {}
        for run in runs:
            steps = found.setdefault(run.ids, {})
            later = [step for step in steps if step >= run.begin]
            self.found.again += len(later)
            for step in later:
                del steps[step]
            steps.update(run.steps)
        last = found.pop(runs[-1].ids)
        self.found.others += sum(map(len, found.values()))
        return last, runs[-1].ended

    def check_ids(self, generation: Generation, later: Generation | None) -> None:
        """Say if ranks are of several runs, as far as their ids tell: those that each process chose do not."""
        latest = [runs[-1] for runs in generation.runs.values() if runs[-1].ids]
        told = [run for run in latest if generation.dealt or all(one.startswith(JOB) for one in run.ids)]
        for run in told:
            if run.ids != told[0].ids:
                self.found.because.append(f"{of_run(run)}, and {of_run(told[0])}: give the logs of one run alone")
        follows = later.all_runs[0].ids if later is not None else frozenset[str]()
        for run in latest if follows else ():
            if not run.ids <= follows:
                self.found.because.append(
                    f"{of_run(run)}, and the {later.name if later else ''} after it go on from a state of run "
                    f"{words_of_ids(follows)}: give the logs of one run alone"
                )

    def check_draws(self) -> None:
        """Look for draws of a sampler that came twice, or not, or in another order; count how often records came."""
        in_order = not any(IN_ANY_ORDER in label for label in self.generations[0].plan)
        records = list[Any]()
        for rank, some in groupby(self.found.delivered, lambda pair: pair[0].rank):
            steps = [(place.step, [*leaves_of(ticket)]) for place, ticket in some]
            records += [leaf[-1] for _, leaves in steps for leaf in leaves]
            self.found.because += [f"{rank}: {fault}" for fault in faults_of_draws(steps, in_order)]
        self.found.drawn = times_in_words(records)

    def find_twice(self) -> None:
        """Name records that came in two places: those of one hash, if they are equal."""
        hashes, stops = joined(self.hashes), np.cumsum(self.sizes)
        self.hashes = [hashes]
        ordered = np.sort(hashes)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        del ordered
        places = np.flatnonzero(np.isin(hashes, twice) if len(twice) else False)
        places = places[np.argsort(hashes[places], kind="stable")]
        owners: list[int] = np.searchsorted(stops, places, side="right").tolist()
        values = hashes[places].tolist()
        for (one, value), (other, after) in pairwise(zip(owners, values, strict=True)):
            if value != after:
                continue
            found = Counter(leaf for owner in {one, other} for leaf in leaves_of(self.tickets[owner]))
            named = [leaf for leaf, times in found.items() if times > 1 and hash_of(leaf) == value]
            if named:
                where = " and ".join(map(str, dict.fromkeys([self.places[one], self.places[other]])))
                self.found.twice.append(f"record {words_of(named[0])} in {where}")
            if len(self.found.twice) > 10 * MOST:
                break

    def compare(self, expected: Expected) -> None:
        """Compare what was delivered with what the pipeline gives, in number and, where it is fixed, in order."""
        first, hashes, stops = self.generations[0], joined(self.hashes), [*accumulate(self.sizes, initial=0)]
        left, given = Remaining(hashes), {place: number for number, place in enumerate(self.places)}
        ordered = len(self.generations) == 1 and expected.in_order
        for shares in first.ranks:
            rank, odd = rank_words(shares), list[int]()
            for step, (ticket, failed) in enumerate(expected.steps(self.found.epoch, shares, first.header)):
                wanted, number = hashes_of(ticket), given.get(Delivered(rank, step))
                if not failed and (absent := left.take(wanted)):
                    leaves = [*leaves_of(ticket)]
                    self.found.missing += [f"record {words_of(leaves[place])}" for place in absent]
                if number is None or not ordered:
                    continue
                failure = self.places[number] in self.failed
                came = hashes_of(self.tickets[number]) if failure else hashes[stops[number] : stops[number + 1]]
                if failed != failure or not np.array_equal(came, wanted):
                    odd.append(step)
            if odd:
                self.found.because.append(
                    f"{rank} did not get in step {ranges(odd)} what the pipeline gives there: swapped, or another order"
                )
        extra = left.hashes()
        leaves_left: Iterable[Any] = chain.from_iterable(map(leaves_of, self.tickets if extra else ()))
        more = dict.fromkeys(leaf for leaf in leaves_left if hash_of(leaf) in extra)
        self.found.because += [
            f"record {words_of(leaf)} was delivered, and the pipeline does not give it, or less often"
            for leaf in [*more][:MOST]
        ]


class Remaining:
    """Which hashes of records, and how many of each, were not met yet."""

    def __init__(self, hashes: Hashes) -> None:
        self.each, self.left = np.unique(hashes, return_counts=True)

    def take(self, values: Hashes) -> list[int]:
        """Take these; return the places of those of which none was left."""
        places = np.searchsorted(self.each, values)
        known = places < len(self.each)
        known[known] = self.each[places[known]] == values[known]
        if known.all() and len({*places.tolist()}) == len(places) and self.left[places].all():  # as it mostly is
            self.left[places] -= 1
            return []
        absent = np.flatnonzero(~known).tolist()
        for number in np.flatnonzero(known).tolist():
            if not self.left[places[number]]:
                absent.append(number)
            else:
                self.left[places[number]] -= 1
        return sorted(absent)

    def hashes(self) -> set[int]:
        """Return those that are left."""
        return {int(value) for value in self.each[self.left > 0]}


@dataclass
class Generation:
    """The runs of one number of ranks, from the start of the epoch or from a state that was merged from all ranks."""

    runs: dict[Shares, list[Run]]
    each: list[int]

    @property
    def all_runs(self) -> list[Run]:
        """All of them."""
        return [*chain.from_iterable(self.runs.values())]

    @property
    def dealt(self) -> bool:
        """Whether it went on where other ranks had stopped."""
        return bool(self.header.get("dealt"))

    def begin_of(self, shares: Shares) -> int:
        """Return how many elements had been delivered where a rank began: an equal part of those of all."""
        if not self.dealt:
            return 0
        found = [(sum(self.each) + count - 1 - index) // count for count, index in shares]
        run = self.runs.get(shares, self.all_runs)[0]
        return run.begin if run.begin in found else min(found)

    @property
    def header(self) -> Mapping[str, Any]:
        """What all of them share."""
        return self.all_runs[0].header

    @property
    def plan(self) -> list[str]:
        """The steps of the pipeline."""
        return self.header["plan"]

    @property
    def ranks(self) -> list[Shares]:
        """The shares of all ranks that there must be."""
        shares = next(iter(self.runs))
        return [
            tuple(zip([count for count, _ in shares], place, strict=True))
            for place in product(*[range(count) for count, _ in shares])
        ]

    @property
    def name(self) -> str:
        """The ranks in words."""
        return f"{len(self.ranks)} ranks" if len(self.ranks) > 1 else "one process"


def generations_of(runs: Sequence[Run]) -> list[Generation]:
    """Return the runs by the number of ranks, in the order of time: each began where the one before was left."""
    found: dict[Any, Generation] = {}
    for run in in_order_of_time(runs):
        each = run.header.get("each")
        key = (len(run.shares), tuple(count for count, _ in run.shares), bool(run.header.get("dealt")))
        key = (*key, tuple(each)) if each else key
        if each is None and key[2]:  # from a state of a run that began with a merged one
            key = next((one for one in reversed(found) if one[:3] == key), key)
        generation = found.setdefault(key, Generation({}, list(each or [])))
        generation.runs.setdefault(run.shares, []).append(run)
    return [*found.values()]


def leaves_of(found: Any) -> Iterator[Any]:
    """Yield the records in the ticket of an element, as tuples that differ from each other; what pads is none."""
    return leaves(ticket_of(found))


def leaves(ticket: Ticket, before: tuple[Any, ...] = ()) -> Iterator[Any]:
    if isinstance(ticket, Tickets):
        for member in ticket:
            yield from leaves(member, before)
    elif isinstance(ticket, tuple):
        parts = cast("tuple[Any, ...]", ticket)
        if parts[0] != "padding":
            yield from leaves(parts[-1], (*before, *map(plain, parts[:-1])))
    else:
        yield (*before, plain(ticket))


def hashes_of(encoded: Any) -> Hashes:
    """Return the hash of each record in the ticket of an element, as JSON."""
    match encoded:
        case {"of": [{"packed": int()} as packed]}:
            return hashes_of_columns(unpack_columns(packed))
        case _:
            return hashes_of_leaves([*leaves_of(encoded)])


def hash_of(leaf: tuple[Any, ...]) -> int:
    return int(hashes_of_leaves([leaf])[0])


def joined(hashes: Sequence[Hashes]) -> Hashes:
    return hashes[0] if len(hashes) == 1 else np.concatenate([np.empty(0, np.uint64), *hashes])


def of_run(run: Run) -> str:
    return f"{run.rank} is of run {words_of_ids(run.ids)}"


def words_of_ids(ids: Iterable[str]) -> str:
    return " and ".join(sorted(ids)[:3]) or "without an id"


def line_of(step: Step) -> PackedTickets | None:
    return step.ticket.line if isinstance(step.ticket, TicketSpan) else None


def pieces_of(hashes: Hashes, parts: Sequence[TicketSpan]) -> list[Hashes]:
    """Return the hashes of parts of a line: in one piece if they follow each other, as they mostly do."""
    if all(one.end == other.start for one, other in pairwise(parts)):
        return [hashes[parts[0].start : parts[-1].end]]
    return [hashes[part.start : part.end] for part in parts]


def words_of(leaf: tuple[Any, ...]) -> str:
    return ", ".join(map(str, leaf))


def ranges(steps: Iterable[int]) -> str:
    """Return numbers as ranges.

    >>> ranges([3, 4, 5, 9])
    '3 to 5, 9'
    """
    found: list[tuple[int, int]] = []
    for step in sorted(steps):
        joins = found and found[-1][1] == step - 1
        found[-1:] = [(found[-1][0], step)] if joins else [*found[-1:], (step, step)]
    return words_of_ranges(found)


def gaps(steps: Iterable[int], begin: int, stop: int) -> list[tuple[int, int]]:
    """Return the first and the last number of each gap from `begin` to before `stop`.

    >>> gaps([3, 4, 7], 2, 9)
    [(2, 2), (5, 6), (8, 8)]
    """
    known = [begin - 1, *sorted(step for step in steps if begin <= step < stop), stop]
    return [(one + 1, other - 1) for one, other in pairwise(known) if other - one > 1]


def words_of_ranges(found: Sequence[tuple[int, int]]) -> str:
    words = [f"{first}" if first == last else f"{first} to {last}" for first, last in found]
    return ", ".join(words[:MOST]) + (f" and {len(words) - MOST} more gaps" if len(words) > MOST else "")

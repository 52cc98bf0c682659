"""States of pipelines: what a state holds, and whether it fits a plan. `checkpoint.py` keeps them in files.

A state is a dict of JSON values: the plan as text, so that another plan is refused; the seeds; the epoch; how many
elements were delivered; the position, which says from where the source continues and which elements were read before
that and are not delivered yet; and a checksum of all that. Older states have no checksum, and are not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import count as counting
from itertools import zip_longest
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from asyncdata.errors import ResumeError
from asyncdata.executors.element_rng import Chance
from asyncdata.graph.node import Node, nodes_of
from asyncdata.options import Options
from asyncdata.planning.optimizer import settle
from asyncdata.runtime.resharding import Resharding, Share
from asyncdata.runtime.tickets import END, FRESH, Position, Start, decode, natural
from asyncdata.system.checksum import has_checksum, with_checksum

__all__ = (
    "VERSION",
    "ResumePoint",
    "check_same_plan",
    "checked",
    "chosen_seeds",
    "fingerprint",
    "origin_of",
    "place_of",
    "place_of_origins",
    "plan_labels",
    "plan_of_next_epoch",
    "plan_of_worker",
    "seeds_of",
    "shares_of",
    "state_header",
    "state_of",
    "with_seeds",
)

VERSION: Final = 5
"""States of version 2 have no hash of the arguments that labels leave out; up to 3 they do not say which steps counted
elements without order; up to 4 they have other texts for readers of several files, and some of their arguments."""

OLDEST: Final = 2

SEVERAL_FILES: Final = re.compile(r"^(\w*Dataset\()partial\(\w+\)(.*\))( #[0-9a-f]+)?$")

IDENTITY: Final[Callable[[Node], str | None]] = attrgetter("identity")

SIMILAR: Final = (
    "or, if you have changed it on purpose, give strict=False with the state, which resumes at the same place (see "
    "Dataset.iterate)"
)

FILES: Final = " files #"
"""What the text of a list of files has."""

SHARE_OF_WORKER: Final = "shard()"

KINDS: Final = {"plan": list, "seeds": list, "shares": list, "epoch": int, "delivered": int}
"""The parts of a state and their types."""


class ResumePoint(NamedTuple):
    """A state, applied to a plan: the plan with the state's seeds, and where its run resumes.

    If a share was divided again in the middle of an epoch, the number of delivered elements does not say which ones.
    """

    plan: Node
    epoch: int
    delivered: int = 0
    start: Start = FRESH
    resharded: bool = False
    each: Sequence[int] = ()
    """If shares were merged to begin here, how many elements each of them had delivered."""
    run: Sequence[str] = ()
    """The ids of the recorded run that it goes on with: several if their states were merged."""


def plan_labels(plan: Node) -> list[str]:
    """Return a plan as text: what must not change between saving a state and resuming from it."""
    from asyncdata.identity.labels import words_of

    return [words for node in nodes_of(plan) if (words := words_of(node)) is not None]


def chances_of(plan: Node) -> dict[int, Chance]:
    """Return the chances, by the place in the account of the node that has one."""
    identified = [node for node in nodes_of(plan) if node.identity is not None]
    return {place: node.chance for place, node in enumerate(identified) if node.chance is not None}


def seeds_of(plan: Node) -> dict[int, int]:
    """Return the seeds, by the place in the account of the node that has one."""
    return {place: chance.seed for place, chance in chances_of(plan).items()}


def chosen_seeds(plan: Node) -> list[list[int]]:
    """Return the seeds that the user chose, each after its place in the account."""
    return [[place, chance.seed] for place, chance in chances_of(plan).items() if not chance.drawn]


def shares_of(plan: Node) -> list[Share]:
    """Return which shares a plan takes."""
    return [node.share for node in nodes_of(plan) if node.share is not None]


def fingerprint(plan: Node) -> str:
    """Return a hash of a plan's account, of the arguments that it leaves out and of the seeds that the user chose."""
    from asyncdata.identity.content_hash import contents

    described = json.dumps([plan_labels(plan), contents(plan), chosen_seeds(plan)])
    return blake2b(described.encode(), digest_size=16).hexdigest()


def state_header(place: ResumePoint, options: Options) -> dict[str, Any]:
    """Return the part that all states of a run share."""
    from asyncdata.identity.exclusion import exclusion_digest
    from asyncdata.identity.mixtures import mixtures_in
    from asyncdata.identity.similar_plan import unordered_steps

    excluded = exclusion_digest(place.plan)
    unordered = unordered_steps(settle(place.plan, options))
    mixtures = mixtures_in(place.plan)
    header = {
        "version": VERSION,
        "plan": plan_labels(place.plan),
        "seeds": [list(pair) for pair in seeds_of(place.plan).items()],
        "shares": [list(share) for share in shares_of(place.plan)],
        "epoch": place.epoch,
        **({"unordered": unordered} if unordered else {}),
        **({"excluded": excluded} if excluded else {}),
        **({"mixtures": mixtures} if mixtures else {}),
        **({"run": [*place.run]} if place.run else {}),
    }
    return {**header, "dealt": True} if place.resharded else header


def state_of(state_header: Mapping[str, Any], delivered: int, position: Position) -> dict[str, Any]:
    """Return the state of a run; the caller may change it."""
    return with_checksum({**copied(state_header), "delivered": delivered, "position": position})


def origin_of(place: ResumePoint, state_header: Mapping[str, Any], step: int, ticket: Any) -> dict[str, Any]:
    """Return the origin of element `step` of a run; the caller may change it."""
    from asyncdata.identity.exclusion import left_in

    rest = left_in(place.plan)
    ticket = ticket if rest is None else rest(ticket)
    return {**copied(state_header), "step": step, "ticket": ticket}


def copied(state_header: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, list) else value for name, value in state_header.items()}


def place_of_origins(plan: Node, origins: Sequence[Mapping[str, Any]]) -> ResumePoint:
    """Return where a run starts that gives exactly the elements with these origins, which are of one epoch of one run.

    An origin of any share will do, as its elements are found by what they are, and not by their places in it.
    """
    from asyncdata.identity.mixtures import fit_mixtures

    plan, first = fit_mixtures(plan_of_worker(plan, origins[0]), {**origins[0], "position": None}, True)
    check_same_plan(first, plan)
    plan = with_seeds(plan, dict[int, int](origins[0]["seeds"]), True, counting())
    tickets = [plan.parse_position(origin["ticket"], decode) for origin in origins]
    return ResumePoint(plan, origins[0]["epoch"], 0, Start(END, tickets))


def plan_of_worker(plan: Node, header: Mapping[str, Any]) -> Node:
    """Return a plan as a worker of PyTorch's DataLoader reads it, its share, if a log or origin of one is meant."""
    from asyncdata.transforms.shard import Shard

    by_workers = header["plan"][-1:] == [SHARE_OF_WORKER] and len(header["shares"]) == len(shares_of(plan)) + 1
    return Shard(plan, *header["shares"][-1]) if by_workers else plan


def check_same_plan(header: Mapping[str, Any], plan: Node) -> None:
    """Raise `ResumeError` unless what states or origins share is of this pipeline."""
    compare(header["plan"], plan, header["version"])
    check_seeds(dict[int, int](header["seeds"]), plan)


def check_seeds(seeds: Mapping[int, int], plan: Node) -> None:
    """Raise unless there is a seed for each step that has one."""
    if seeds.keys() != seeds_of(plan).keys():
        raise ResumeError(f"the state has seeds for steps {[*seeds]}, the pipeline for {[*seeds_of(plan)]}")


def place_of(plan: Node, state: Mapping[str, Any], strict: bool, options: Options) -> ResumePoint:
    """Return where a run of `plan` with these options continues from `state`; `ResumeError` if the two do not fit."""
    from asyncdata.identity.exclusion import check_exclusion
    from asyncdata.identity.mixtures import fit_mixtures
    from asyncdata.identity.position_check import check_position
    from asyncdata.identity.similar_plan import check_changes, check_order, matched_steps, steps_with_words

    given = plan
    plan, saved = fit_mixtures(plan, checked(state_of_share(state, shares_of(plan))), strict)
    seeds = dict[int, int](saved["seeds"])
    if strict:
        check_equal(saved, plan, lambda: place_of(given, state, False, options))
        places = {place: place for place in range(len(saved["plan"]))}
    else:
        places = matched_steps(saved["plan"], plan_labels(plan))
        seeds = {places[place]: seed for place, seed in seeds.items() if place in places}
        if saved["position"] is not None:
            check_changes(saved["plan"], steps_with_words(plan, words_in(saved["version"])), saved["position"])
    if saved["position"] not in (None, END) and saved["version"] > 3:
        unordered = {places.get(place) for place in saved.get("unordered", ())}
        check_order(settle(plan, options), unordered, saved["position"])
    check_exclusion(plan, saved)
    plan = with_seeds(plan, seeds, strict, counting())
    exact = strict and saved.keys().isdisjoint(("merged", "dealt"))
    for position in plan.parse_position(saved["position"], list) if "merged" in saved else [saved["position"]]:
        check_position(plan, position, exact)
    if "merged" in saved:
        return plan.parse_position(saved, lambda saved: resharded(plan, saved, shares_of(plan)))
    check_shares(saved, shares_of(plan))
    position = saved["position"]
    start = FRESH if position is None else plan.parse_position(position, Start.of)
    run = saved.get("run", ())
    return ResumePoint(plan, saved["epoch"], saved["delivered"], start, saved.get("dealt", False), run=run)


def check_equal(saved: Mapping[str, Any], plan: Node, similar: Callable[[], object]) -> None:
    """Raise `ResumeError` unless a state is of this pipeline; it names `strict=False` if `similar` does not raise."""
    try:
        check_same_plan(saved, plan)
        with_seeds(plan, dict[int, int](saved["seeds"]), True, counting())
    except ResumeError as error:
        if file_lists(saved["plan"]) == file_lists(plan_labels(plan)):  # other files may have other elements
            with suppress(ResumeError):
                similar()
                error.args = (f"{error}; {SIMILAR}",)
        raise


def file_lists(words: Sequence[str]) -> list[str]:
    """Return the steps of an account that are lists of files."""
    return [step for step in words if FILES in step]


def plan_of_next_epoch(plan: Node) -> Node:
    """Return the plan of the epochs after one that resumed from a state."""
    from asyncdata.identity.mixtures import with_program_weights

    return with_program_weights(plan)


def state_of_share(state: Any, shares: list[Share]) -> Any:
    """Return this share's state out of those of all, as `load_shares` returns them; if the shares are others, all
    merged."""
    if not isinstance(state, Mapping) or "ranks" not in state:
        return cast("Any", state)
    from asyncdata.identity.state_merging import dealt_places, has_nested_shares, merged, shares_of_all

    states = list[Any]()
    for one in cast("Mapping[str, list[Any]]", state)["ranks"]:
        if checked(one) not in states:  # several processes may read the same share
            states.append(one)
    mine = [list(share) for share in shares]
    alike = [one for one in states if {*map(tuple, one["shares"])} == {*map(tuple, mine)}]  # also with other datasets
    own = next((one for one in states if one["shares"] == mine), alike[0] if alike else None)
    of_each_share = {str(one["shares"]): one for one in states}
    if own is not None and len(of_each_share) > 1 and not has_nested_shares(shares_of_all([*of_each_share.values()])):
        dealt_places([*of_each_share.values()])
    return own or merged(states)


def check_shares(saved: Mapping[str, Any], shares: list[Share]) -> None:
    """Raise if the state is another share's."""
    same_number(saved["shares"], shares)
    for was, now in zip(map(Share._make, saved["shares"]), shares, strict=True):
        if was != now:
            raise ResumeError(
                f"the state is of {was}, but this pipeline is {now}; to resume with another number of shares, merge "
                "the states of all shares with merge_states"
            )


def same_number(was: Sequence[Any], now: Sequence[Share]) -> None:
    """Raise unless a state has as many shares as the pipeline."""
    if len(was) != len(now):
        raise ResumeError(f"the state is of {len(was)} shares, but the pipeline has {len(now)}")


def resharded(plan: Node, saved: Mapping[str, Any], shares: list[Share]) -> ResumePoint:
    """Return where one share starts among the undelivered elements of shares whose states were merged."""
    from asyncdata.identity.mixtures import check_same_datasets

    check_same_datasets(plan, saved)
    same_number(saved["shares"], shares)
    places: Any = saved["merged"]
    merged = [*map(natural, cast("list[Any]", places) if isinstance(places, list) else [places])]
    outermost = outermost_shares(plan)
    saved_shares = [*map(Share._make, saved["shares"])]
    others = [place for place in merged if place not in outermost and saved_shares[place].num_shards > 1]
    if others or not {*outermost} <= {*merged}:
        raise ResumeError(
            f"the states are of each {saved_shares[merged[-1]]}, but another shard() comes after it or "
            "beside it, whose shares are fixed: the number of shares cannot change in the middle of an epoch"
        )
    share = shares[outermost[-1]]
    for place, (was, now) in enumerate(zip(saved_shares, shares, strict=True)):
        if now != share if place in outermost else was != now:
            raise ResumeError(
                f"the states are of {was}, but this pipeline is {now}; they were merged over another shard()"
            )
    position = plan.parse_position(
        saved["position"], lambda shares: plan.resharded(shares, Resharding(share, (saved["epoch"],)))
    )
    delivered = (saved["delivered"] + share.num_shards - 1 - share.number) // share.num_shards
    each, run = [natural(number) for number in saved.get("each", ())], saved.get("run", ())
    return ResumePoint(plan, saved["epoch"], delivered, Start.of(position), resharded=True, each=each, run=run)


def outermost_shares(plan: Node) -> list[int]:
    """Return which of a plan's shares have no other one after them: several where sharded datasets are combined."""
    numbers = counting()

    def visit(node: Node) -> list[int]:
        inner = [number for one in node.inputs for number in visit(one)]
        return inner if node.share is None else [next(numbers)]

    return visit(plan)


def checked(state: Any) -> Mapping[str, Any]:
    """Return `state` if it has the parts of a state; raise `ResumeError` otherwise."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise ResumeError(f"a state is what state_dict() returns, got {state!r:.80}")
    saved = cast("Mapping[str, Any]", state)
    if type(saved["version"]) is not int or not OLDEST <= saved["version"] <= VERSION:
        raise ResumeError(
            f"the state has version {saved['version']!r:.80}, this asyncdata reads versions {OLDEST} to {VERSION}"
        )
    for name, kind in KINDS.items():
        if not isinstance(saved.get(name), kind) or isinstance(saved.get(name), bool):
            raise ResumeError(f"the state's {name!r} should be {kind.__name__}, got {saved.get(name)!r:.80}")
    for name in ("seeds", "shares"):
        check_pairs(name, saved[name])
    for name, kind, what in (("unordered", int, "integers"), ("run", str, "strings"), ("plan", str, "strings")):
        check_list(name, saved.get(name, []), kind, what)
    if "position" not in saved:
        raise ResumeError("the state has no position")
    if "checksum" in saved and not has_checksum(saved):
        raise ResumeError(
            "the state is damaged: its checksum does not match its contents; use an earlier state, or start without one"
        )
    return saved


def check_list(name: str, found: Any, kind: type, what: str) -> None:
    """Raise unless a part of a state is a list of such values."""
    listed = cast("list[Any]", found) if isinstance(found, list) else [found]
    if odd := [one for one in listed if type(one) is not kind or listed is not found]:
        raise ResumeError(f"the state's {name!r} should be {what}, got {odd[0]!r:.80}")


def check_pairs(name: str, pairs: list[Any]) -> None:
    """Raise unless a state has pairs of integers under this name."""
    for pair in pairs:
        if not isinstance(pair, list) or list(map(type, cast("list[Any]", pair))) != [int, int]:
            raise ResumeError(f"the state's {name} should be pairs of integers, got {pair!r:.80}")


def compare(was: list[str], plan: Node, version: int = VERSION) -> None:
    """Raise, and name the first node that has changed, and what differs in it if that is known."""
    words_now = words_in(version)
    now = [(words, node) for node in nodes_of(plan) if (words := words_now(node)) is not None]
    for place, (old, pair) in enumerate(zip_longest(was, now)):
        new, node = pair or (None, None)
        if old != new and (version > 4 or without_files(old) != without_files(new)):
            from asyncdata.sources.file_list_digest import label_text

            detail = node.difference(old) if node is not None and old is not None else ""
            if node is not None and {bare(old, node), bare(new, node)} == {node.identity}:
                detail = f"the two differ in arguments that this text leaves out, of {node.identity}; "
            raise ResumeError(
                f"the state is of another pipeline: step {place + 1} was {label_text(old or 'nothing')} when it was "
                f"saved, and is {label_text(new or 'nothing')} now; {detail}build the same pipeline, or start without "
                "the state"
            )


def words_in(version: int) -> Callable[[Node], str | None]:
    """Return the function whose texts states of a version have."""
    from asyncdata.identity.labels import words_of

    return IDENTITY if version == OLDEST else words_of


def without_files(words: str | None) -> str:
    """Return the text of a step in a state of version 4 or earlier, for a reader without how it reads several files."""
    return SEVERAL_FILES.sub(r"\1\2", words or "")


def bare(words: str | None, node: Node) -> str | None:
    """Return a step of a state without the hash of what its text leaves out, if the text is of this node."""
    return node.identity if words is not None and words.partition(f"{node.identity} #")[0] == "" else words


def with_seeds(plan: Node, seeds: Mapping[int, int], strict: bool, places: Iterator[int]) -> Node:
    """Return `plan` with the seeds of a state, by place in the account; a seed that the user chose must be the same.

    If all are the same it is the plan itself, so that its process, if it has one, can continue.
    """
    inputs = tuple([with_seeds(node, seeds, strict, places) for node in plan.inputs])
    plan = plan if inputs == plan.inputs else plan.over(*inputs)
    place = next(places) if plan.identity is not None else -1
    if plan.chance is None or place not in seeds:
        return plan
    seed = seeds[place]
    if strict and not plan.chance.drawn and seed != plan.chance.seed:
        raise ResumeError(
            f"{plan.label()}: the seed was {seed} when the state was saved, and is {plan.chance.seed} now"
        )
    seeded = plan.with_seed(seed)
    return plan if seeded.chance == plan.chance else seeded

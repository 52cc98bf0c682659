"""Where a pipeline stands: what a state says, whether it fits a plan, and how it is kept in a file.

A state is a dict of what JSON knows: the plan in words, so that another is refused; the seeds; the epoch; how many
elements were delivered; and the position, which tells from where the source goes on and what was read before it and is
not delivered yet.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from asyncdata.errors import ResumeError
from asyncdata.plan import Node
from asyncdata.runtime.tickets import END, FRESH, Position, Start
from asyncdata.sources.files import brief

__all__ = ("Place", "account", "inspect_state", "load", "place_of", "save", "state_of")

VERSION: Final = 1

KINDS: Final = {"plan": list, "seeds": list, "epoch": int, "delivered": int}
"""What the parts of a state are."""


class Place(NamedTuple):
    """What a state says about a plan: the plan with the state's seeds, and where its run goes on."""

    plan: Node
    epoch: int
    delivered: int = 0
    start: Start = FRESH


def nodes_of(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan, sources first."""
    for node in plan.inputs:
        yield from nodes_of(node)
    yield plan


def account(plan: Node) -> list[str]:
    """Return a plan in words: what must not change between saving a state and going on with it."""
    return [words for node in nodes_of(plan) if (words := node.identity) is not None]


def seeds_of(plan: Node) -> list[int]:
    return [node.chance.seed for node in nodes_of(plan) if node.chance is not None]


def state_of(plan: Node, words: list[str], epoch: int, delivered: int, position: Position) -> dict[str, Any]:
    """Return the state of a run of `plan`, of which `words` is the account."""
    return {
        "version": VERSION,
        "plan": list(words),
        "seeds": seeds_of(plan),
        "epoch": epoch,
        "delivered": delivered,
        "position": position,
    }


def place_of(plan: Node, state: Mapping[str, Any]) -> Place:
    """Return where a run of `plan` goes on from `state`; `ResumeError` if the two do not fit."""
    told = checked(state)
    compare(told["plan"], plan)
    if len(told["seeds"]) != len(seeds_of(plan)):
        raise ResumeError(f"the state has {len(told['seeds'])} seeds, the pipeline {len(seeds_of(plan))}")
    position = told["position"]
    start = FRESH if position is None else plan.told(position, Start.of)
    return Place(with_seeds(plan, iter(told["seeds"])), told["epoch"], told["delivered"], start)


def checked(state: Any) -> Mapping[str, Any]:
    """Return a state if it has the parts of one; raise `ResumeError` otherwise."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise ResumeError(f"a state is what state_dict() returns, got {state!r:.80}")
    told = cast("Mapping[str, Any]", state)
    if told["version"] != VERSION:
        raise ResumeError(f"the state has version {told['version']!r}, this asyncdata reads version {VERSION}")
    for name, kind in KINDS.items():
        if not isinstance(told.get(name), kind) or isinstance(told.get(name), bool):
            raise ResumeError(f"the state's {name!r} should be {kind.__name__}, got {told.get(name)!r:.80}")
    for seed in told["seeds"]:
        if not isinstance(seed, int):
            raise ResumeError(f"the state's seeds should be integers, got {seed!r:.80}")
    if "position" not in told:
        raise ResumeError("the state has no position")
    return told


def compare(was: list[str], plan: Node) -> None:
    """Raise and name the first node that is another one now, and what in it differs where that is known."""
    now = [(words, node) for node in nodes_of(plan) if (words := node.identity) is not None]
    for place, (old, pair) in enumerate(zip_longest(was, now)):
        new, node = pair or (None, None)
        if old != new:
            told = node.difference(old) if node is not None and old is not None else ""
            raise ResumeError(
                f"the state is of another pipeline: step {place + 1} was {brief(old or 'nothing')} when it was saved, "
                f"and is {brief(new or 'nothing')} now; {told}build the same pipeline, or start without the state"
            )


def with_seeds(plan: Node, seeds: Iterator[int]) -> Node:
    """Return `plan` with the seeds of a state where nobody chose one; a chosen one must be the same."""
    plan = plan.with_inputs(*[with_seeds(node, seeds) for node in plan.inputs]) if plan.inputs else plan
    if plan.chance is None:
        return plan
    seed = next(seeds)
    if not plan.chance.drawn and seed != plan.chance.seed:
        raise ResumeError(
            f"{plan.label()}: the seed was {seed} when the state was saved, and is {plan.chance.seed} now"
        )
    return plan.with_seed(seed)


def save(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file: whole or not at all, also when the machine stops meanwhile.

    >>> import asyncdata as ad, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.json")
    >>> with ad.Dataset.range(10).iterate() as numbers:
    ...     _ = next(numbers), next(numbers)
    ...     save(path, numbers.state_dict())
    >>> next(ad.Dataset.range(10).iterate(state=load(path)))
    2
    """
    target = Path(path)
    text = json.dumps(state, separators=(",", ":"))
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(partial, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Have the disk know a file's new name, where folders can be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state that `save` wrote; `ResumeError` if the file holds none."""
    content = Path(path).read_bytes()
    try:
        state = json.loads(content)
    except ValueError as error:
        raise ResumeError(f"{os.fspath(path)}: no state, {len(content)} bytes that are no JSON") from error
    if not isinstance(state, dict) or "version" not in state:
        raise ResumeError(f"{os.fspath(path)}: no state: {state!r:.80}")
    return cast("dict[str, Any]", state)


def inspect_state(state: Mapping[str, Any]) -> str:
    """Return a readable account of a state.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(10).batch(2).iterate() as batches:
    ...     _ = next(batches)
    ...     print(inspect_state(batches.state_dict()))
    plan       range(10) → batch(2)
    epoch      0
    delivered  1
    position   [2]
    size       95 bytes
    """
    position = checked(state)["position"]
    shown = "at the beginning" if position is None else "at the end" if position == END else json.dumps(position)
    size = len(json.dumps(state, separators=(",", ":")))
    rows = {
        "plan": " → ".join(map(brief, state["plan"])),
        "epoch": state["epoch"],
        "delivered": state["delivered"],
        "position": shown,
        "size": f"{size} bytes",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())

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
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from asyncdata.errors import ResumeError
from asyncdata.plan import Node
from asyncdata.runtime.tickets import END, FRESH, Position, Start

__all__ = ("Account", "Place", "account", "inspect_state", "load", "place_of", "save", "state_of")

VERSION: Final = 1

FILES_DIFFER: Final = "a file was added, removed or renamed, or has another size; "

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


class Account(NamedTuple):
    """A plan in words, which must not change between saving a state and going on with it; and its seeds."""

    words: list[str]
    seeds: list[int]


def account(plan: Node) -> Account:
    """Return what a state says of a plan."""
    nodes = list(nodes_of(plan))
    words = [words for node in nodes if (words := node.identity) is not None]
    return Account(words, [node.chance.seed for node in nodes if node.chance is not None])


def state_of(plan: Account, epoch: int, delivered: int, position: Position) -> dict[str, Any]:
    """Return the state of a run of a plan."""
    return {
        "version": VERSION,
        "plan": plan.words.copy(),
        "seeds": plan.seeds.copy(),
        "epoch": epoch,
        "delivered": delivered,
        "position": position,
    }


def place_of(plan: Node, state: Mapping[str, Any]) -> Place:
    """Return where a run of `plan` goes on from `state`; `ResumeError` if the two do not fit."""
    told = checked(state)
    words, seeds = account(plan)
    compare(told["plan"], words)
    if len(told["seeds"]) != len(seeds):
        raise ResumeError(f"the state has {len(told['seeds'])} seeds, the pipeline {len(seeds)}")
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


def compare(was: list[str], now: list[str]) -> None:
    """Raise and name the first node that is another one now."""
    if was == now:
        return
    place = next((i for i, (old, new) in enumerate(zip(was, now, strict=False)) if old != new), min(len(was), len(now)))
    old, new = (plan[place] if place < len(plan) else "nothing" for plan in (was, now))
    raise ResumeError(
        f"the state is of another pipeline: step {place + 1} was {old} when it was saved, and is {new} now; "
        f"{FILES_DIFFER if ' files #' in old and ' files #' in new else ''}"
        "build the same pipeline, or start without the state"
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
        "plan": " → ".join(state["plan"]),
        "epoch": state["epoch"],
        "delivered": state["delivered"],
        "position": shown,
        "size": f"{size} bytes",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())

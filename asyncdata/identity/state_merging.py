"""Merges the states of all processes that read shares of a dataset into one; `states.resharded` resumes from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from asyncdata.errors import ResumeError
from asyncdata.runtime.resharding import Share
from asyncdata.system.checksum import with_checksum

__all__ = ("dealt_places", "has_nested_shares", "merged", "shares_of_all")

HINTS: Final = {
    "seeds": "; give every process the same seed",
    "mixtures": "; give every process the same datasets and weights, and call set_weights at the same step in all",
}


def merged(saved: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the states of all shares as one: see `checkpoint.merge_states`."""
    if not saved:
        raise ResumeError("merge_states needs the states of all shares, got none")
    if any("merged" in state for state in saved):
        raise ResumeError("merge_states needs the states of iterators, but one of these is merged already")
    same(saved, "plan")
    places, order = dealt_places(saved)
    check_others(shares_of_all(saved), places)
    for name in ("epoch", "seeds", "mixtures", "excluded"):  # of states that are all shares of one dataset
        same(saved, name)
    runs = sorted({one for state in saved for one in state.get("run", ())})
    return with_checksum(
        {
            **saved[0],
            **({"run": runs} if runs else {}),
            "merged": places if len(places) > 1 else places[0],
            "delivered": sum(state["delivered"] for state in saved),
            "each": [saved[number]["delivered"] for number in order],
            "position": [saved[number]["position"] for number in order],
        }
    )


def same(states: Sequence[Mapping[str, Any]], name: str) -> None:
    """Raise unless all states are equal in this."""
    for number, state in enumerate(states):
        first, other = states[0].get(name), state.get(name)
        if other != first:
            what, first, other = (name, first, other) if name != "mixtures" else weights_that_differ(first, other)
            raise ResumeError(
                f"the states cannot be merged: {what} is {first} in the first and {other} in number {number}"
                f"{HINTS.get(name, '')}"
            )


def weights_that_differ(first: Any, other: Any) -> tuple[str, Any, Any]:
    """Return what differs in what two states say of their mixtures, with both values: the weights given, if only these
    do."""
    with suppress(TypeError, IndexError, KeyError, AttributeError):  # a state may be damaged
        pairs = [(one[1], two[1]) for one, two in zip(first, other) if one != two]
        if pairs and all({**one, "set": 0} == {**two, "set": 0} for one, two in pairs):
            one, two = pairs[0]
            return "the last call of set_weights", one.get("set", "none"), two.get("set", "none")
    return "mixtures", first, other


def shares_of_all(states: Sequence[Mapping[str, Any]]) -> list[tuple[Share, ...]]:
    """Return for each `shard()` of the plan which share of it each state is of."""
    same_count = {len(state["shares"]) for state in states}
    if len(same_count) > 1:
        raise ResumeError(f"the states are not of one pipeline: they are of {sorted(same_count)} shares")
    return list(zip(*[map(Share._make, state["shares"]) for state in states], strict=True))


def has_nested_shares(columns: Sequence[tuple[Share, ...]]) -> bool:
    """Return whether there are all shares of each `shard()` that is not the same in all states, and in each of these
    shares all of the next one."""
    differing = [shares for shares in dict.fromkeys(columns) if len({*shares}) > 1]
    return has_all({*zip(*differing, strict=True)})


def has_all(rows: set[tuple[Share, ...]]) -> bool:
    """Return whether rows have all shares, first of one `shard()`, then within each share of the next one."""
    if () in rows:
        return True
    rest: dict[Share, set[tuple[Share, ...]]] = {}
    for share, *inner in rows:
        rest.setdefault(share, set()).add(tuple(inner))
    count = len(rest)
    return {*rest} == {Share(count, number) for number in range(count)} and all(map(has_all, rest.values()))


def dealt_places(states: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """Return the `shard()`s of the plan whose shares the states are, and the number of the state of each share."""
    columns = shares_of_all(states)
    for shares in reversed(columns):
        if sorted(shares) == [Share(len(states), index) for index in range(len(states))]:
            places = [place for place, others in enumerate(columns) if others == shares]
            return places, sorted(range(len(states)), key=lambda number: shares[number].number)
    found = "; ".join(dict.fromkeys(", ".join(map(str, shares)) for shares in columns)) or "no shard() at all"
    raise ResumeError(f"merge_states needs one state of each share of one shard(), got {found}")


def check_others(columns: Sequence[tuple[Share, ...]], places: Sequence[int]) -> None:
    """Raise unless the states that are merged over some `shard()`s are of one share of every other one."""
    for place, shares in enumerate(columns):
        if place not in places and len({*shares}) > 1:
            raise ResumeError(
                f"the states cannot be merged: they are of each {columns[places[-1]][0]}, and of several of another "
                f"shard(): {', '.join(map(str, shares))}"
            )

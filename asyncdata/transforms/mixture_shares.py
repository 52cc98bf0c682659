"""How the rest of a mixture of sharded datasets is divided among another number of shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from asyncdata.errors import ResumeError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.runtime.resharding import Resharding, Share
from asyncdata.runtime.tickets import END, Position, natural
from asyncdata.transforms.mixture_turns import TurnsPlace

__all__ = ("resharded_mixture",)


def resharded_mixture(
    label: str,
    inputs: Sequence[Node],
    names: Sequence[str],
    positions: Sequence[Position],
    resharding: Resharding,
    *,
    by_cost: bool,
) -> Position:
    """Return the position of one share: each dataset's rest is divided by its own shard().

    Each new share goes on at the step of the share that had come furthest. What each dataset has given, and its cost,
    are divided evenly, so that their sums over all shares stay the same.
    """
    places: list[Mapping[str, Any]] = [{} if at is None else at for at in positions if at != END]
    count, share = len(inputs), resharding.share
    for node, name in zip(inputs, names or map(str, range(count)), strict=True):
        check_sharded(label, node, name)
    rows = [[END] * count if at == END else columns(at or {}, "inputs", count) for at in positions]
    rest = [node.resharded(column, resharding) for node, column in zip(inputs, zip(*rows, strict=True), strict=True)]
    given = [columns(at, "given", count, 0) for at in places]
    return {
        "number": max(natural(at.get("number", 0)) for at in places),
        "ended": [number for number in range(count) if all(number in at.get("ended", ()) for at in places)],
        "given": [part_of(sum(map(natural, column)), share) for column in zip(*given, strict=True)],
        **(turns(places, count, share) if by_cost else {}),
        "inputs": rest,
    }


def columns(place: Mapping[str, Any], name: str, count: int, default: Any = None) -> list[Any]:
    """Return what a position says of each dataset; those that it does not know have not begun."""
    found: list[Any] = list(place.get(name, ()))
    if len(found) > count:
        raise ValueError(f"it does not fit {count} datasets")
    return found + [default] * (count - len(found))


def check_sharded(label: str, node: Node, name: str) -> None:
    """Raise unless a dataset has a shard() of its own."""
    if not any(one.share is not None for one in nodes_of(node)):
        raise ResumeError(
            f"{label}: every share reads all of its dataset {name!r}, which has no shard(), so the number of shares "
            "cannot change in the middle of an epoch: put shard() into each dataset, or after the mixture"
        )


def part_of(total: int, share: Share) -> int:
    """Return one share's part of a number."""
    return (total + share.num_shards - 1 - share.number) // share.num_shards


def turns(places: Sequence[Mapping[str, Any]], count: int, share: Share) -> dict[str, Any]:
    """Return the books of a mixture by cost. Datasets are ahead of the others by as much as in the mean."""
    found = [TurnsPlace.of(at or None, count) for at in places]
    by, now = max(found, key=lambda place: place.paid).by, max(place.now for place in found)
    alike = [place for place in found if place.by == by]
    ahead = [fsum(max(0.0, place.clock[number] - place.now) for place in alike) for number in range(count)]
    return {
        "cost": [fsum(column) / share.num_shards for column in zip(*[place.cost for place in found], strict=True)],
        "clock": [now + more / len(alike) for more in ahead],
        "now": now,
        "by": list(by or [0.0] * count),
        "paid": part_of(sum(place.paid for place in found), share),
    }

"""join: each element with the element of another dataset that has the same key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError, PlanError, ResumeError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, REPLACEABLE, Node, check_arguments, finite, regrouped
from asyncdata.graph.stages import Apply, Merge, Opener, yield_to_loop
from asyncdata.runtime.block import Block, Blocks, Demand, Failure, fail
from asyncdata.runtime.resharding import Resharding, listed
from asyncdata.runtime.tickets import END, FRESH, Position, ReplayedTickets, Start, Ticket, Tickets
from asyncdata.sources.key_index import KeyIndex, KeyIndexWriter, key_hash
from asyncdata.transforms.distinct import canonical
from asyncdata.transforms.fields import Field, check_fields, fields_of
from asyncdata.transforms.keyed import Labeller

__all__ = ("HOW", "How", "Join", "On")

How = Literal["inner", "left", "exact"]

HOW: Final[tuple[How, ...]] = ("inner", "left", "exact")

On = Field | Callable[..., Any]

KINDS: Final = {b"s": "text", b"b": "bytes", b"(": "a tuple", b"{": "a dict", b"a": "an array", b"t": "a tensor"}
"""What keys are, by the first of their bytes; those of other numbers begin in several ways."""

ARRAY: Final = re.compile(rb"a\('([^']*)', \(")
"""With what the bytes of an array begin, one of fields apart: its dtype, without which no other array is equal."""

NONE: Final = canonical(None)

READ: Final = 1024
"""How many elements are read at once for their keys."""


@final
class JoinKey(Labeller):
    """A function that returns a key; it makes pairs of keys, as bytes that only equal ones share, and elements."""

    __slots__ = ()

    def label_of(self, found: Any) -> bytes:
        return canonical(found)

    @staticmethod
    def of(on: Any, plan: Node) -> JoinKey:
        """Return the function for a field of elements of a plan, or for a function of them."""
        if callable(on):
            call = JoinKey("join", on)
            check_arguments(call, plan)
            return call
        (name,) = fields_of("join", "on", on)
        check_fields("join", "on", (name,), plan.signature)
        call = JoinKey("join", FieldOf(name), spread=False)
        call.name = call.shown = call.label = f"join({name!r})"
        return call


@final
@dataclass(frozen=True)
class FieldOf:
    """Returns a field of elements. Its error says which fields there are."""

    name: Field

    def __call__(self, element: Any) -> Any:
        try:
            return element[self.name]
        except (LookupError, TypeError) as error:
            fields: Any = type(element).__name__
            if isinstance(element, Mapping):
                fields = [*cast("Mapping[Any, Any]", element)]
            error.add_note(
                f"join(on=) names the field {self.name!r}, and the element is {fields!r:.300}: on=(this, other) gives "
                "each dataset a field, or a function that returns the key"
            )
            raise


def kind_of(key: bytes) -> str:
    """Return what kind of value a key is, in its form of bytes."""
    if found := ARRAY.match(key):
        return f"an array of dtype {found[1].decode()}"
    return KINDS.get(key[:1], "a number") if key != NONE else ""


class KeyIndexOf:
    """Holds the index of a dataset's keys, and their kinds, once it is made. It is made again where a plan is sent."""

    __slots__ = ("index", "kinds")

    def __init__(self) -> None:
        self.index: KeyIndex | None = None
        self.kinds = set[str]()

    def __reduce__(self) -> Any:
        return KeyIndexOf, ()


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Pairs of an element and the element of another dataset with the same key."""

    input: Node
    other: Node
    key: JoinKey = field(metadata=REPLACEABLE)
    other_key: JoinKey = field(metadata=REPLACEABLE)
    how: How = "inner"
    keys: KeyIndexOf = field(default_factory=KeyIndexOf, repr=False, metadata=PHYSICAL)

    @staticmethod
    def of(plan: Node, other: Node, on: Any, how: How) -> Join:
        """Return the node for the user's arguments."""
        if how not in HOW:
            raise PlanError(f"join(how=) must be one of {HOW}, got {how!r}")
        if not other.random_access or not finite(other.cardinality):
            raise PlanError(
                f"join() reads elements of the other dataset by number, which {other.label()} cannot give: open its "
                "files with index=True, and put filters and shuffles after the join"
            )
        pair = cast("tuple[Any, ...]", on) if type(on) is tuple else (on, on)
        if len(pair) != 2:
            raise PlanError(
                "join(on=) must be a field, a function that returns a key, or two of these, the second for the other "
                f"dataset, got {on!r:.80}"
            )
        return Join(plan, other, JoinKey.of(pair[0], plan), JoinKey.of(pair[1], other), how)

    def over(self, *inputs: Node) -> Join:
        return replace(self.with_inputs(*inputs), keys=KeyIndexOf())

    def stage(self) -> Merge:
        return Merge(self.blocks, waits=self.key.is_async or self.other_key.is_async)

    @property
    def cardinality(self) -> int:
        return regrouped(self.input.cardinality) if self.how == "inner" else self.input.cardinality

    @property
    def signature(self) -> Any:
        found = self.input.signature, self.other.signature
        return None if self.how == "left" or None in found else found

    @property
    def random_access(self) -> bool:
        return self.how != "inner" and self.input.random_access

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return [(ticket, None) for ticket in self.input.address(places)]  # the other half is known once it is looked up

    def seek(self, count: int) -> Position:
        return super().seek(count) if self.how == "inner" else [self.input.seek(count), None]

    def label(self) -> str:
        names = [self.key.name[5:-1], self.other_key.name[5:-1]]
        on = names[0] if names[0] == names[1] else f"({', '.join(names)})"
        return f"join({on}{'' if self.how == 'inner' else f', how={self.how}'})"

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        parts = [[at, None] if at in (None, END) else listed(at) for at in positions]
        digest = next((digest for _, digest in parts if digest is not None), None)
        return [self.input.resharded([inner for inner, _ in parts], resharding), digest]

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        index = await self.index_for(scope, position)
        begin = Start.of(None if position is None else position[0])
        async with aclosing(self.joined(scope, index, want, begin)) as source:
            async for block in source:
                yield block

    async def again(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Yield elements again, with the tickets of what matches them now: `address` does not know it."""
        await self.index_for(scope, start.position)
        known, done = [*start.back], 0
        async with aclosing(self.fetch(scope, want, start.back)) as source:
            async for block in source:
                stop = done + len(block)
                known[done:stop] = block.tickets
                yield block.ticketed(ReplayedTickets(known, done, stop, start.position))
                done = stop
        if done != len(known):
            raise self.lost(known[done])

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield elements again, whose other half is looked up again."""
        index = await self.index_for(scope, None)
        start = Start(END, [ticket for ticket, _ in tickets])
        async with aclosing(self.joined(scope, index, want, start)) as source:
            async for block in source:
                yield block

    async def index_for(self, scope: Scope, position: Position) -> KeyIndex:
        """Return the index of the other dataset's keys; `ResumeError` if it has others than when a state was saved."""
        index = self.keys.index
        if index is None:
            index = await self.make_index(scope)
            await self.check_unique(scope, index)
            self.keys.index = index
        digest = None if position in (None, END) else self.parse_position(position, lambda parts: parts[1])
        if digest not in (None, index.digest):
            raise ResumeError(
                f"{self.label()}: the other dataset has other keys, or in other rows, than when the state was saved"
            )
        return index

    async def make_index(self, scope: Scope) -> KeyIndex:
        """Read all keys of the other dataset."""
        writer = KeyIndexWriter(self.other.cardinality)
        try:
            async with aclosing(self.keyed_others(scope, Demand(READ), FRESH)) as source:
                async for block in source:
                    keys = [self.pair_of(item)[0] for item in block.items]
                    self.keys.kinds.update(map(kind_of, keys))
                    writer.add([*map(key_hash, keys)])
            return writer.finish()
        finally:
            writer.close()

    async def check_unique(self, scope: Scope, index: KeyIndex) -> None:
        """Raise `PlanError` if two elements of the other dataset have the same key."""
        for rows in index.alike():
            seen: dict[bytes, int] = {}
            for row, item in zip(rows.tolist(), await self.others_at(scope, rows.tolist()), strict=True):
                if (before := seen.setdefault(self.pair_of(item)[0], row)) != row:
                    raise PlanError(
                        f"{self.label()}: elements {before} and {row} of the other dataset have the same key, so that "
                        "it does not say which of them is meant; add to the key what tells them apart"
                    )

    def pair_of(self, item: Any) -> Any:
        """Return an element of the other dataset with its key, or raise what it failed with."""
        if type(item) is Failure:
            item.error.add_note(f"while {self.label()} read the keys of the other dataset")
            fail(item.error)
        return item

    def keyed_others(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        return Apply((self.other_key,)).open(scope, [self.other.open], want, start)

    async def others_at(self, scope: Scope, rows: Sequence[int]) -> list[Any]:
        """Return the elements of the other dataset in these rows, with their keys, and failures in their places."""
        found: list[Any] = []
        if rows:
            start = Start(END, self.other.address(rows))
            async with aclosing(self.keyed_others(scope, Demand(len(rows)), start)) as source:
                async for block in source:
                    found += block.items
        return found

    async def joined(self, scope: Scope, index: KeyIndex, want: Demand, start: Start) -> Blocks:
        """Read elements with their keys, and look up those of a block together."""
        async with aclosing(Apply((self.key,)).open(scope, [self.input.open], want, start)) as source:
            async for block in source:
                found = await self.matched(scope, index, block)
                scope.meter.excluded += len(block) - len(found)
                if len(found):
                    yield found
                else:
                    await yield_to_loop()

    async def matched(self, scope: Scope, index: KeyIndex, block: Block) -> Block:
        """Return the pairs of a block of elements with their keys."""
        places = block.good_places()
        rows, owners = index.find([key_hash(block.items[place][0]) for place in places])
        order: npt.NDArray[np.intp] = rows.argsort(kind="stable")  # near ones are read together
        numbers: list[int] = rows[order].tolist()
        matches: dict[int, tuple[int, Any]] = {}
        owned: list[int] = owners[order].tolist()
        for number, owner, other in zip(numbers, owned, await self.others_at(scope, numbers), strict=True):
            place = places[owner]
            if type(other) is Failure:  # which may have the key
                matches.setdefault(place, (number, other))
            elif other[0] == (key := block.items[place][0]):
                matches[place] = number, other
            elif key_hash(other[0]) != key_hash(key):  # not the same by chance
                error = DataLossError(
                    f"{self.label()}: element {number} of the other dataset has another key than before"
                )
                matches.setdefault(place, (number, Failure(error)))
        return self.paired(block, matches, index.digest)

    def paired(self, block: Block, matches: dict[int, tuple[int, Any]], digest: str) -> Block:
        """Return the pairs of a block, for the row and the element that match those at some places."""
        items, places = list[Any](), list[int]()
        for place, item in enumerate(block.items):
            found = item
            if place not in matches and type(item) is not Failure and self.is_unlike(item[0]):
                found = self.unlike(item[0], block.tickets[place])
            if place in matches or type(found) is Failure or self.how != "inner":
                _, other = matches.get(place, (None, None))
                items.append(self.result(found, other, block.tickets[place]))
                places.append(place)
        at = dict(zip(matches, self.other.address([row for row, _ in matches.values()]), strict=True))
        tickets = JoinTickets(block.tickets, places, [at.get(place) for place in places], digest)
        return Block(items, tickets, Failure in set(map(type, items)))

    def is_unlike(self, key: bytes) -> bool:
        """Return whether a key is of another kind than all keys of the other dataset."""
        kinds = self.keys.kinds - {""}
        return len(kinds) == 1 and key != NONE and kind_of(key) not in kinds

    def unlike(self, key: bytes, ticket: Ticket) -> Failure:
        """Return the failure of an element whose key equals none of the other dataset, whatever their values are."""
        (other,) = self.keys.kinds - {""}
        error = TypeError(
            f"the key is {kind_of(key)}, and in the other dataset each key is {other}, which is never equal: convert "
            "one, as by on=('id', lambda row: int(row['id']))"
        )
        return noted(error, self.label(), ticket)

    def result(self, item: Any, other: Any, ticket: Ticket) -> Any:
        """Return the pair of an element and what matches it, each with its key; or what failed."""
        if type(item) is Failure:
            return item
        if type(other) is Failure:
            return Failure(other.error)
        if other is None and self.how == "exact":
            error = KeyError(
                f"the other dataset has no element with the key {item[0][1:].decode(errors='replace'):.80}"
            )
            return noted(error, self.label(), ticket)
        return item[1], None if other is None else other[1]


@final
class JoinTickets(Tickets):
    """The tickets of pairs: of elements at some places of a block, and of what matches each, `None` if nothing does."""

    __slots__ = ("base", "digest", "others", "places")

    def __init__(self, base: Tickets, places: Sequence[int], others: Sequence[Ticket], digest: str) -> None:
        self.base = base
        self.places = places
        self.others = others
        self.digest = digest

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Ticket:
        return self.base[self.places[index]], self.others[index]

    def at(self, count: int) -> Position:
        read = len(self.base) if count == len(self) else self.places[count - 1] + 1 if count else 0
        return [self.base.at(read), self.digest]

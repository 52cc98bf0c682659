"""distinct: the first element of each key."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import zip_longest
from math import isnan
from typing import Any, ClassVar, Final, final

import numpy as np

from asyncdata.elements.array_content import array_content
from asyncdata.elements.tensors import is_tensor, tensor_content
from asyncdata.errors import StructureError
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import REPLACEABLE, Node, Unary, check_arguments, check_count
from asyncdata.graph.stages import Apply, Fold, Opener, Step
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, listed
from asyncdata.runtime.tickets import END, Position, SelectedTickets, Start, Ticket, Tickets
from asyncdata.transforms.keyed import Labeller

__all__ = ("Distinct", "canonical")

DIGEST: Final = 12
"""Bytes of a key that are remembered: among a billion keys two are taken for one with a chance of 1 in 10¹¹."""


def key_digest(key: Any) -> bytes:
    """Return a hash of a key, the same on every machine; keys that are equal have the same."""
    return blake2b(canonical(key), digest_size=DIGEST).digest()


def canonical(value: Any) -> bytes:
    """Return bytes that two values share only if they are equal."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if value is None:
        return b"none"
    if issubclass(kind, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if issubclass(kind, (bytes, bytearray)):
        return b"b" + value
    if issubclass(kind, (float, np.floating)):
        return canonical_float(value if kind is np.longdouble else float(value))
    if issubclass(kind, (int, np.bool_, np.integer)) and not issubclass(kind, np.timedelta64):  # NumPy calls that one
        return b"n%d" % int(value)
    return canonical_structure(value, kind)


def canonical_float(value: Any) -> bytes:
    if value.is_integer():
        return b"n%d" % int(value)
    number = float(value)
    return repr(number if number == value or isnan(number) else value).encode()  # a long double has more digits


def canonical_structure(value: Any, kind: type[Any]) -> bytes:
    """Return the bytes of a value with parts."""
    if is_tensor(value):
        return canonical(value.item()) if not value.ndim else b"t" + several(tensor_content(value))
    if issubclass(kind, np.ndarray):
        return canonical_array(value)
    if issubclass(kind, (tuple, list)):
        return b"(" + several(value)
    if issubclass(kind, dict):
        return b"{" + b"".join(sorted(map(several, value.items())))
    raise StructureError(
        f"a {kind.__name__} cannot be a key; give a key function that returns numbers, strings, bytes, arrays, or "
        "tuples and dicts of these"
    )


def canonical_array(value: Any) -> bytes:
    if not value.ndim and value.dtype.kind in "biufOSTU" and not np.ma.isMaskedArray(value):
        return canonical(value.item())
    dtype, content = array_content(value)
    joined = content if isinstance(content, bytes) else several(content)
    return b"a%s%s" % (repr((dtype, value.shape)).encode(), joined)


def several(values: Sequence[Any]) -> bytes:
    return b"".join([b"%d:%s" % (len(part), part) for part in map(canonical, values)])


def itself(*parts: Any) -> Any:
    return parts[0]


@final
class Digester(Labeller):
    """A user's function that returns a key; it makes pairs of digests of keys and elements."""

    __slots__ = ()

    def label_of(self, found: Any) -> bytes:
        return key_digest(found)


@dataclass(frozen=True, eq=False)
class Distinct(Unary):
    """The first element of each key; of more than `max_keys` the oldest are forgotten."""

    key: Digester = field(metadata=REPLACEABLE)
    max_keys: int | None = None

    @staticmethod
    def of(plan: Node, key: Callable[..., Any] | None, max_keys: Any) -> Distinct:
        """Return the node for the user's arguments."""
        most = None if max_keys is None else check_count("distinct", "max_keys", max_keys, 1)
        call = Digester("distinct", itself, spread=False) if key is None else Digester("distinct", key).prompt()
        check_arguments(call, plan)
        return Distinct(plan, call, most)

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        """Give each share the keys of all, with the last ones of each at the end."""
        positions_and_logs: list[list[Any]] = [[at, ""] if at in (None, END) else listed(at) for at in positions]
        logs = [reversed(digests_of(log)) for _, log in positions_and_logs]
        latest = dict.fromkeys(digest for turn in zip_longest(*logs) for digest in turn if digest is not None)
        return [
            self.input.resharded([inner for inner, _ in positions_and_logs], resharding),
            encoded_digests([*latest][::-1]),
        ]

    def stage(self) -> FirstElements:
        return FirstElements(self.key, self.max_keys)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield elements again; one without a key fails again."""
        pairs = Apply((self.key,)).open(scope, [self.input.open], want, Start(END, tickets))
        async with aclosing(pairs) as source:
            async for block in source:
                items = [pair if type(pair) is Failure else pair[1] for pair in block.items]
                yield Block(items, block.tickets, block.failed)

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    def label(self) -> str:
        key = "" if self.key.fn is itself else self.key.name[9:-1]
        most = "" if self.max_keys is None else f"max_keys={self.max_keys}"
        return f"distinct({', '.join(filter(None, (key, most)))})"


@dataclass(frozen=True)
class FirstElements:
    """Computes keys, then drops elements whose key has come before."""

    key: Digester
    max_keys: int | None
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return self.key.is_async

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        def keyed(inner: Scope, demand: Demand, begin: Start) -> Blocks:
            return Apply((self.key,)).open(inner, inputs, demand, begin)

        return Fold(lambda _: DistinctStep(self.max_keys)).open(scope, [keyed], want, start)


def digests_of(text: str) -> list[bytes]:
    joined = b64decode(text, validate=True)
    return [joined[at : at + DIGEST] for at in range(0, len(joined), DIGEST)]


def encoded_digests(digests: Sequence[bytes]) -> str:
    """Return digests as JSON."""
    return b64encode(b"".join(digests)).decode()


class DistinctStep(Step):
    """Remembers keys, in a log that only grows: a state is its length."""

    def __init__(self, max_keys: int | None) -> None:
        self.max_keys = max_keys
        self.log: list[bytes] = []
        self.known: set[bytes] = set()

    def resume(self, position: Position) -> Start:
        inner, text = position
        self.log = digests_of(text)[-(self.max_keys or 0) :]
        self.known = set(self.log)
        return Start.of(inner)

    def feed(self, block: Block) -> Block:
        if self.max_keys is not None and len(self.log) > 2 * self.max_keys:
            self.log = self.log[-self.max_keys :]
        before = len(self.log)
        kept: list[tuple[int, Any]] = []
        for place, pair in enumerate(block.items):
            if type(pair) is Failure:
                kept.append((place, pair))
            elif pair[0] not in self.known:
                self.remember(pair[0])
                kept.append((place, pair[1]))
        items = [item for _, item in kept]
        failures = [place for place, item in enumerate(items) if type(item) is Failure]
        tickets = FirstTickets(block.tickets, [place for place, _ in kept], self, before, failures)
        return Block(items, tickets, block.failed and Failure in set(map(type, items)))

    def remember(self, key: bytes) -> None:
        """Take note of a key, and forget the oldest one if there are too many."""
        self.known.add(key)
        self.log.append(key)
        if self.max_keys is not None and len(self.known) > self.max_keys:
            self.known.discard(self.log[-self.max_keys - 1])


@final
class FirstTickets(SelectedTickets):
    """The elements at some places of a block, and the stored keys: the log up to `before` and a key for each."""

    __slots__ = ("before", "failures", "log", "max_keys")

    def __init__(
        self, base: Tickets, places: Sequence[int], step: DistinctStep, before: int, failures: Sequence[int]
    ) -> None:
        super().__init__(base, places)
        self.log, self.max_keys = step.log, step.max_keys
        self.before = before
        self.failures = failures

    def at(self, count: int) -> Position:
        come = self.read(count)
        stop = self.before + count - sum(place < count for place in self.failures)
        begin = 0 if self.max_keys is None else max(0, stop - self.max_keys)
        return [self.base.at(come), encoded_digests(self.log[begin:stop])]

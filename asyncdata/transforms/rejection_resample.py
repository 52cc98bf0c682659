"""rejection_resample: classes in other proportions, by leaving out some elements of those that come too often.

Whether an element stays is a function of the seed, the epoch, its ticket, and the chance that its class has. Of classes
whose shares are known, that chance is always the same; else it follows from how often each class has come by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from asyncdata.errors import PlanError
from asyncdata.executors.element_rng import Chance, drawn_seed, epoch_key, scrambled
from asyncdata.executors.function_call import ENDLESS, Call, Deadline
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, REPLACEABLE, Node, Unary, check_arguments, check_integer, regrouped
from asyncdata.graph.stages import Apply, Fold, Step
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import FilteredTickets, Position, Start, Tickets, WrappedTickets, natural, plain
from asyncdata.transforms.keyed import Classifier
from asyncdata.transforms.map import Map

__all__ = ("Resample", "chances")

BEFORE: Final = 10
"""How often each class counts as seen before the first element, so that the first few do not decide alone."""

METHOD: Final = "rejection_resample"


@dataclass(frozen=True, eq=False)
class Resample(Unary):
    """Drops pairs (class, element) so that the shares of classes become `target`; the input's are `initial`, if
    known."""

    function: Classifier = field(metadata=REPLACEABLE)
    target: tuple[float, ...] = field(repr=False)
    initial: tuple[float, ...] | None = field(repr=False)
    seed: int = field(metadata=ELSEWHERE)
    salt: int = field(default=0, repr=False)
    drawn: bool = field(default=False, metadata=ELSEWHERE)

    @staticmethod
    def of(plan: Node, class_func: Callable[..., Any], target: Any, initial: Any, seed: int | None) -> Resample:
        """Return the node above one that pairs elements with their classes."""
        wanted = distribution("target_dist", target)
        found = None if initial is None else distribution("initial_dist", initial)
        if found is not None and len(found) != len(wanted):
            raise PlanError(
                f"{METHOD} needs as many numbers in initial_dist as in target_dist, got {len(found)} and {len(wanted)}"
            )
        if found is not None and not any(want and share for want, share in zip(wanted, found, strict=True)):
            raise PlanError(f"{METHOD}: initial_dist has none of the classes that target_dist asks for")
        call = Classifier(METHOD, class_func, len(wanted))
        check_arguments(call, plan)
        chosen = drawn_seed() if seed is None else check_integer(METHOD, "seed", seed)
        return Resample(Map(plan, (call,)), call, wanted, found, chosen, earlier(plan), seed is None)

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.drawn)

    def key(self, epoch: tuple[Any, ...]) -> int:
        """Return the key of the random numbers of an epoch; it differs between the resamplings of a pipeline."""
        return epoch_key(self.seed, (METHOD, self.salt, *epoch))

    def stage(self) -> Apply | Fold:
        if self.initial is None:
            return Fold(self.step)
        return Apply((Coin(self, odds(self.target, self.initial)),))

    def step(self, scope: Scope) -> Estimator:
        """Return the counter of classes in one epoch."""
        return Estimator(self.target, self.key(scope.epoch))

    @property
    def preserves_tickets(self) -> bool:
        return self.initial is not None

    @property
    def cardinality(self) -> int:
        found = self.input.cardinality
        return found if self.drops_none else regrouped(found)

    @property
    def drops_none(self) -> bool:
        """Whether each class is known to have its target share already."""
        return self.initial is not None and all(chance >= 1 for chance in odds(self.target, self.initial))

    def label(self) -> str:
        return f"{METHOD}({len(self.target)} classes{'' if self.initial is None else ', initial_dist'})"


def earlier(plan: Node) -> int:
    """Return how many resamplings a plan has."""
    return isinstance(plan, Resample) + sum(map(earlier, plan.inputs))


def distribution(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """Return the share of each class; `PlanError` if they are none."""
    argument = f"{METHOD}({name}=)"
    try:
        found = tuple([float(value) for value in values])
    except (TypeError, ValueError):
        raise PlanError(f"{argument} needs a number for each class, got {values!r:.80}") from None
    if not any(found) or not all(math.isfinite(share) and share >= 0 for share in found):
        raise PlanError(f"{argument} must be finite, not negative and not all zero, got {values!r:.80}")
    return found


def odds(target: Sequence[float], initial: Sequence[float]) -> list[float]:
    """Return for each class the chance of an element to stay: as large as possible, in the target proportions."""
    pairs = list(zip(target, initial, strict=True))
    most = max(want / share for want, share in pairs if share)
    return [want / share / most if share else float(want > 0) for want, share in pairs]


def chances(tickets: Tickets, key: int) -> list[float]:
    """Return a random number from 0 to below 1 for each element, a function of its ticket and the key."""
    numbers = list(tickets)
    if not all(issubclass(kind, int) for kind in set(map(type, numbers))):
        numbers = [ticket if isinstance(ticket, int) else digest(ticket) for ticket in numbers]
    hashes = scrambled(np.array(numbers, np.uint64), key) >> np.uint64(11)
    return (hashes * 2.0**-53).tolist()


def digest(ticket: Any) -> int:
    """Return 64 bits of a hash of a ticket that is no number."""
    return int.from_bytes(blake2b(repr(plain(ticket)).encode(), digest_size=8).digest(), "little")


class Coin(Call):
    """Decides for each pair (class, element) whether it stays, if the chance of each class is known."""

    __slots__ = ("key", "node", "odds")

    is_predicate = True

    def __init__(self, node: Resample, odds: list[float], key: int = 0) -> None:
        super().__init__(METHOD, node.function.fn)
        self.is_async = False
        self.node = node
        self.odds = odds
        self.key = key

    def at(self, epoch: tuple[Any, ...]) -> Coin:
        return Coin(self.node, self.odds, self.node.key(epoch))

    def run(self, block: Block, term: Deadline = ENDLESS) -> Block:
        odds, pairs = self.odds, zip(block.items, chances(block.tickets, self.key), strict=True)
        verdicts: list[Any] = [item if type(item) is Failure else chance < odds[item[0]] for item, chance in pairs]
        return Block(verdicts, block.tickets, block.failed)


class Estimator(Step):
    """Counts how often each class has come. A position has these counts, and the input's position."""

    def __init__(self, target: Sequence[float], key: int) -> None:
        self.target = target
        self.key = key
        self.count([BEFORE] * len(target))

    def count(self, counts: list[int]) -> None:
        """Take up how often each class has come."""
        if len(counts) != len(self.target):
            raise ValueError(f"it does not fit {len(self.target)} classes")
        self.counts = counts
        self.ratios = [want / count for want, count in zip(self.target, counts, strict=True)]
        self.most = max(self.ratios)

    def resume(self, position: Position) -> Start:
        counts, inner = position
        self.count([BEFORE + natural(count - BEFORE) for count in counts])
        return Start.of(inner)

    def feed(self, block: Block) -> Block:
        before, labels = list(self.counts), [-1 if type(item) is Failure else item[0] for item in block.items]
        pairs = zip(labels, chances(block.tickets, self.key), strict=True)
        places = [place for place, (label, chance) in enumerate(pairs) if label < 0 or self.stays(label, chance)]

        def position(count: int, inner: Position) -> Position:
            come = len(labels) if count == len(places) else places[count - 1] + 1 if count else 0
            seen = np.bincount([label + 1 for label in labels[:come]], minlength=len(before) + 1)[1:]
            return [(np.array(before) + seen).tolist(), inner]

        items = [block.items[place] for place in places]
        return Block(items, WrappedTickets(FilteredTickets(block.tickets, places), position), block.failed)

    def stays(self, label: int, chance: float) -> bool:
        """Count an element, and return whether it stays."""
        ratio = self.ratios[label]
        self.counts[label] += 1
        self.ratios[label] = self.target[label] / self.counts[label]
        if ratio == self.most:
            self.most = max(self.ratios)
        return chance * self.most < self.ratios[label]

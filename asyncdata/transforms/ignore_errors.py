"""ignore_errors: elements that failed are dropped, as many as a budget allows."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from asyncdata.errors import PlanError, annotate
from asyncdata.executors.function_call import Call, describe
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, PHYSICAL, Node, Unary, check_called, check_count
from asyncdata.graph.stages import Fold, Step
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.redaction import error_text, redacted
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.meter import Meter
from asyncdata.runtime.resharding import Resharding, listed
from asyncdata.runtime.tickets import END, Position, SelectedTickets, Start, Ticket, Tickets, natural, plain

__all__ = ("UNLIMITED", "ErrorBudget", "IgnoreErrors")

log = logging.getLogger("asyncdata")

FEW: Final = 1000
"""A share counts at least so many elements, as one bad element at the start proves nothing."""

RECALLED: Final = 5
"""How many dropped errors are listed on the error that exceeds the budget."""


SHOWN: Final = 20
"""How many dropped errors `stats` has."""


@dataclass(frozen=True)
class ErrorBudget:
    """How many elements may be dropped, and which share of those that were seen; `None` for any."""

    max_errors: int | None = None
    max_share: float | None = None

    @staticmethod
    def of(max_errors: Any, max_share: Any) -> ErrorBudget:
        """Return the budget for the user's arguments."""
        if max_errors is not None:
            check_count("ignore_errors", "max_errors", max_errors, 0)
        if max_share is not None and not (isinstance(max_share, (int, float)) and 0 <= max_share <= 1):
            raise PlanError(f"ignore_errors(max_share=) must be between 0 and 1, got {max_share!r}")
        return ErrorBudget(max_errors, max_share)

    def exceeded(self, dropped: int, seen: int) -> str | None:
        """Return the limit that forbids so many errors among so many elements, `None` if none does."""
        if self.max_errors is not None and dropped > self.max_errors:
            return f"max_errors={self.max_errors}"
        if self.max_share is not None and dropped > self.max_share * max(seen, FEW):
            return f"max_share={self.max_share}"
        return None


UNLIMITED: Final = ErrorBudget()


@dataclass(frozen=True, eq=False)
class IgnoreErrors(Unary):
    """The elements that did not fail; an error that exceeds the budget is raised in its place."""

    budget: ErrorBudget = field(default=UNLIMITED, metadata=ELSEWHERE)
    log_warning: bool = field(default=False, metadata=PHYSICAL)
    on_error: Call | None = field(default=None, metadata=PHYSICAL)

    @staticmethod
    def of(
        plan: Node, budget: ErrorBudget, log_warning: bool, on_error: Callable[[Any, Any], Any] | None
    ) -> IgnoreErrors:
        """Return the node for the user's arguments."""
        call = None if on_error is None else Call("ignore_errors", on_error)
        if call is not None and call.is_async:
            raise PlanError(
                f"{call.name} is a coroutine function, but on_error is not awaited: give a plain function that is quick"
            )
        if call is not None:
            check_called(call, "an error and a ticket", ("error", "ticket"))
        return IgnoreErrors(plan, budget, log_warning, call)

    @property
    def preserves_tickets(self) -> bool:
        return self.budget == UNLIMITED

    def stage(self) -> Fold:
        return Fold(lambda scope: Dropper(self, scope.meter))

    def run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        if not self.preserves_tickets:
            return super().run(scope, want, start)
        inner, meter = Demand(ahead=scope.reads_ahead), scope.meters.steps.get(self, scope.meter.within)
        return self.stage().run(Dropper(self, meter), self.input.open(scope, inner, start), inner, want, meter)

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        if self.preserves_tickets:
            return super().reshard(positions, resharding)
        places: list[list[Any]] = [[0, 0, at] if at in (None, END) else listed(at) for at in positions]
        seen, dropped = (sum(at[place] for at in places) // resharding.share.num_shards for place in (0, 1))
        return [seen, dropped, self.input.resharded([at[2] for at in places], resharding)]

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    @property
    def beside_states(self) -> Any:
        """The function for errors, if it has an attribute `beside_states` that is true, and a `label` as which it is
        shown."""
        fn = getattr(self.on_error, "fn", None)
        return fn if getattr(fn, "beside_states", False) else None

    @property
    def identity(self) -> str | None:
        """`on_error` and `log_warning` may change, and so may the budget: a run that has used it up can continue with
        more. A function that is `beside_states` leaves no trace in states."""
        if self.beside_states is not None:
            return None
        return "ignore_errors()" if self.preserves_tickets else "ignore_errors_within()"

    def label(self) -> str:
        if self.beside_states is not None:
            return self.beside_states.label
        shown = [f"{name}={value}" for name, value in vars(self.budget).items() if value is not None]
        return f"ignore_errors({', '.join(shown)})"


@dataclass
class ErrorCounts:
    """The numbers of elements seen and dropped so far, and the texts of the last errors."""

    seen: int = 0
    dropped: int = 0
    last: deque[str] = field(default_factory=lambda: deque[str](maxlen=RECALLED))


class Dropper(Step):
    """Drops failures, logs them, and passes one that exceeds the budget."""

    def __init__(self, node: IgnoreErrors, meter: Meter) -> None:
        self.node = node
        self.meter = meter
        self.account = ErrorCounts()

    def resume(self, position: Position) -> Start:
        if self.node.preserves_tickets:
            return Start.of(position)
        seen, dropped, inner = position
        self.account.seen, self.account.dropped = natural(seen), natural(dropped)
        return Start.of(inner)

    def feed(self, block: Block) -> Block:
        before = (self.account.seen, self.account.dropped)
        if not block.failed:
            self.account.seen += len(block)
            return (
                block if self.node.preserves_tickets else block.ticketed(SurvivorTickets(block.tickets, None, before))
            )
        kept: list[tuple[int, Any]] = []
        for place, item in enumerate(block.items):
            self.account.seen += 1
            left = self.drop(item, block.tickets[place]) if type(item) is Failure else item
            if left is not DROPPED:
                kept.append((place, left))
        items = [item for _, item in kept]
        tickets = SurvivorTickets(
            block.tickets, [place for place, _ in kept], None if self.node.preserves_tickets else before
        )
        return Block(items, tickets, Failure in set(map(type, items)))

    def drop(self, failure: Failure, ticket: Ticket) -> Any:
        """Return `DROPPED` for a failed element, or an error in its place, as when the budget is exceeded."""
        account, error = self.account, failure.error
        why = self.node.budget.exceeded(account.dropped + 1, account.seen)
        if why is not None:
            annotate(error, self.note(why))
            return failure
        words = f"{describe(ticket)}: {redacted(repr(error)):.200}"
        if self.node.budget != UNLIMITED:
            account.last.append(words)
        if self.node.log_warning:
            log.warning("%s dropped %s", self.node.label(), words)
        left = DROPPED if self.node.on_error is None else self.report(self.node.on_error, error, ticket)
        account.dropped += left is DROPPED
        if left is DROPPED:
            self.meter.dropped = (*self.meter.dropped[1 - SHOWN :], error_text(error))
        return left

    def note(self, why: str) -> str:
        """Return the note on an error that exceeds the budget."""
        account = self.account
        shown = f"; the last before it: {'; '.join(account.last)}" if account.last else ""
        return f"ignore_errors({why}) dropped {account.dropped} of {account.seen} elements, and no more{shown}"

    def report(self, call: Call, error: BaseException, ticket: Ticket) -> Any:
        """Pass an error to the user's function; an error in that function is raised in the element's place."""
        try:
            call.fn(error, plain(ticket))
        except Exception as other:
            return call.failure(other, ticket)
        return DROPPED


DROPPED: Final = object()


@final
class SurvivorTickets(SelectedTickets):
    """The elements at some places of a block, all if `None`; with how many were seen and dropped before it, if counted.

    Those between them were dropped for good.
    """

    __slots__ = ("before",)

    def __init__(self, base: Tickets, places: Sequence[int] | None, before: tuple[int, int] | None) -> None:
        super().__init__(base, range(len(base)) if places is None else places)
        self.before = before

    def run_from(self, ordinal: int) -> bool:
        return len(self.places) == len(self.base) and self.base.run_from(ordinal)

    def at(self, count: int) -> Position:
        come = self.read(count)
        if self.before is None:
            return self.base.at(come)
        seen, dropped = self.before
        return [seen + come, dropped + come - count, self.base.at(come)]

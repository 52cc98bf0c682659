"""EpochLog: what an epoch of a loader delivered, in the log of its run: the indices of each batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from asyncdata.persistence.run_id import run_id
from asyncdata.persistence.run_log import IN_ANY_ORDER, WITH_REPLACEMENT, Occasion, RunLog
from asyncdata.runtime.tickets import decode
from asyncdata.states import VERSION
from asyncdata.torch.sampler_attributes import samplers

__all__ = ("EpochLog",)


class EpochLog:
    """Collects the indices of the batches that are given, and appends them to the log of `record`."""

    def __init__(self, loader: Any, epoch: int, saved: Mapping[str, Any] | None) -> None:
        self.record = loader.record
        self.asked: dict[int, Any] = {}
        """The indices of the batches that were asked for and not given, by number."""
        self.shares = shares_of(loader)
        sampler, dataset = type(loader.index_sampler).__name__, loader.dataset
        count = f" of {len(dataset)}" if hasattr(dataset, "__len__") else ""
        self.draws = any(getattr(one, "replacement", False) is True for _, one in samplers(loader.index_sampler))
        """Whether a sampler draws with replacement, so that each draw is named, and not the record alone."""
        order = "" if loader.in_order else f", {IN_ANY_ORDER}"
        how = f", {WITH_REPLACEMENT}{order}" if self.draws else ""
        plan = [f"{type(dataset).__name__}{count}", f"DataLoader({sampler}, batch_size={loader.batch_size}{how})"]
        self.header = {"version": VERSION, "plan": plan, "seeds": list[Any](), "shares": self.shares, "epoch": epoch}
        self.ids = [run_id()] if saved is None else [*saved.get("run", ())]
        """Those of the run that it goes on with: none if that was not recorded."""
        self.header |= {"run": self.ids} if self.ids else {}
        self.length = len(loader) if count else None
        self.run: RunLog | None = None

    def begin(self, given: int) -> None:
        """Begin after so many batches."""
        self.run = RunLog(self.record, self.shares, given)

    def note(self, step: int, number: int, failed: bool = False) -> None:
        """Note a batch that is given as this step, by the number by which it was asked for."""
        ticket = ticket_of(self.asked.pop(number, None))
        if self.run is not None:
            if ticket is not None and self.draws:
                ticket = draws_of(number, ticket)
            if ticket is None or failed:
                self.run.add_encoded([ticket], failed)
            else:
                self.run.add_ticket(decode(ticket))
            if self.run.is_long():
                self.write("more")

    def write(self, why: Occasion) -> None:
        """Write what was noted."""
        if self.run is not None:
            if why in ("left", "state") and self.run.noted == self.length:
                why = "end"  # which a loop that counts does not ask for
            self.run.write(lambda: self.header, why)


def shares_of(loader: Any) -> list[list[int]]:
    """Return which share a sampler takes that divides the data between processes, as `DistributedSampler` does."""
    for sampler in (loader.index_sampler, getattr(loader.index_sampler, "sampler", None)):
        count, rank = getattr(sampler, "num_replicas", None), getattr(sampler, "rank", None)
        if type(count) is int and type(rank) is int:
            return [[count, rank]]
    return []


def draws_of(number: int, ticket: Any) -> Any:
    """Return the ticket of a batch with each index as a draw: number of the batch, its size, place in it, and index."""
    indices = cast("list[Any]", ticket["of"] if isinstance(ticket, dict) else [ticket])
    if any(type(index) is not int for index in indices):
        return None
    draws = [[number, len(indices), place, index] for place, index in enumerate(indices)]
    return {"of": draws} if isinstance(ticket, dict) else draws[0]


def ticket_of(index: Any) -> Any:
    """Return the indices of a batch as an origin has them; `None` if they are no numbers."""
    index = index.tolist() if hasattr(index, "tolist") else index
    if isinstance(index, (list, tuple)):
        members = [ticket_of(one) for one in cast("list[Any]", index)]
        return None if None in members else {"of": members}
    return index if type(index) is int else None

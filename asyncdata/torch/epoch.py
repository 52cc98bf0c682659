"""Epoch: one iteration over a loader: which batches are asked for, which were given, and the state between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import count as counting
from typing import Any, Final, Generic, Self, TypeVar

from asyncdata.dataset import Dataset
from asyncdata.errors import ResumeError
from asyncdata.executors.function_call import Call
from asyncdata.iterator import DatasetIterator
from asyncdata.options import Options
from asyncdata.torch.generators import states_from_json, states_to_json
from asyncdata.torch.index_batches import IndexBatches, is_within, unread
from asyncdata.torch.internals import is_iterable
from asyncdata.torch.pinned_workers import RequestQueue
from asyncdata.torch.worker_run import (
    ENDED,
    BatchReply,
    BatchRequest,
    RunSetup,
    WorkerPosition,
    digest_of,
    fetcher_of,
    read_again,
    stream_state,
)
from asyncdata.transforms.map import Map

__all__ = ("VERSION", "Epoch", "InlineEpoch", "WorkerEpoch", "position_from_json", "state_before_first")

T = TypeVar("T")

VERSION: Final = 1

ITERATIONS: Final = counting(1)


class Epoch(Generic[T]):
    """One epoch of a loader."""

    dataset: Dataset[Any] | None = None
    """The pipeline that makes the batches, if there are workers."""

    def __init__(self, loader: Any, number: int, saved: Mapping[str, Any] | None) -> None:
        self.loader = loader
        self.epoch = number
        self.given = 0
        self.ended = False
        self.indices = IndexBatches(loader, loader.kept_seed(saved), saved)
        self.begin(saved if saved is not None and is_within(saved) else None)

    def begin(self, saved: Mapping[str, Any] | None) -> None:
        """Begin to read, or continue where it was saved."""
        raise NotImplementedError

    def batch(self) -> Any:
        """Return the next batch, or raise `StopIteration`."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return how far it is, by the batches that were given."""
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> T:
        if self.ended:
            raise StopIteration
        try:
            return self.batch()
        except StopIteration:
            self.ended = True
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the batch that was given last."""
        own = {"begun": True, "ended": self.ended, "given": self.given, **self.state()}
        return {**header(self.loader, self.epoch), **own, **self.indices.state(self.ended)}

    def close(self) -> None:
        """End what makes the batches."""


def header(loader: Any, epoch: int) -> dict[str, Any]:
    """Return what all states of a loader share."""
    return {"version": VERSION, "kind": loader.kind, "num_workers": loader.num_workers, "epoch": epoch}


def state_before_first(loader: Any) -> dict[str, Any]:
    """Return the state of a loader that was not iterated yet."""
    return {**header(loader, 0), "begun": False, "ended": False, **unread(loader)}


class InlineEpoch(Epoch[T]):
    """An epoch whose batches are made where the loop runs, when it asks for them: `num_workers=0`."""

    def begin(self, saved: Mapping[str, Any] | None) -> None:
        loader, self.digest = self.loader, 0
        if loader.timeout:
            raise ValueError("timeout is the patience with workers: give num_workers, or leave timeout out")
        if saved is None:
            self.fetcher = fetcher_of(loader)
            return
        position = position_from_json(saved["positions"][0]) if saved["positions"] else WorkerPosition()
        self.fetcher = fetcher_of(loader, position.stream)
        self.given, self.digest = saved["given"], position.digest
        if is_iterable(loader.kind) and position.stream is None and position.turn:
            read_again(self.fetcher, next(iter(loader.index_sampler)), position)
        self.indices.take_again(saved, set())

    def batch(self) -> Any:
        index = next(self.indices)
        data = self.fetcher.fetch(index)
        self.given = self.indices.taken
        if is_iterable(self.loader.kind):
            self.digest = digest_of(data)
        return self.loader.finished(data)

    def state(self) -> dict[str, Any]:
        position = WorkerPosition(self.given, None, None, stream_state(self.fetcher), self.digest)
        return {"positions": [position_to_json(position)], "waiting": []}


class WorkerEpoch(Epoch[T]):
    """An epoch whose batches are made by worker processes: so many of them are asked for ahead of the loop."""

    def begin(self, saved: Mapping[str, Any] | None) -> None:
        loader = self.loader
        self.count: int = loader.num_workers
        self.most: int = loader.prefetch_factor * self.count
        self.active = [True] * self.count
        self.next_worker = 0
        self.asked = [0] * self.count
        """How many batches were asked of each worker."""
        self.waiting: dict[int, int] = {}
        """The batches that were asked for and not given, by number, with their workers."""
        self.setup: RunSetup | None = loader.setup(self.indices.seed)
        self.iteration = next(ITERATIONS)
        self.positions = loader.positions_of_workers()
        """How far each worker is, by the batches that were given."""
        self.made = list(self.positions)
        """The same by the batches that have arrived."""
        self.early = deque[BatchReply]()
        """What has arrived and the loop has not asked for."""
        self.failure: Exception | None = None
        self.queue = RequestQueue()
        self.dataset = pipeline(self.queue, self.setup, self.most, loader)
        if saved is not None:
            self.continue_from(saved)
        while len(self.waiting) < self.most and self.ask():
            pass
        self.batches: DatasetIterator[Any] = self.dataset.iterate()

    def continue_from(self, saved: Mapping[str, Any]) -> None:
        """Ask again for the batches that were not given."""
        same = saved["num_workers"] == self.count
        positions = [position_from_json(one) for one in saved["positions"]]
        if not same and (is_iterable(self.loader.kind) or any(one.states or one.stream for one in positions)):
            raise ResumeError(
                f"the state was saved with num_workers={saved['num_workers']}, and its position depends on each of "
                f"them: give the same number, not {self.count}"
            )
        waiting = dict[int, int](saved["waiting"])
        kept = self.indices.take_again(saved, set(waiting))
        self.given = saved["given"]
        if same:
            self.positions[:] = positions
            self.made[:] = positions
            self.asked = [one.turn for one in positions]
            self.active, self.next_worker = list(saved["active"]), saved["next_worker"]
        for number, worker in waiting.items():
            self.request(number, worker if same else number % self.count, kept[number])

    def ask(self) -> bool:
        """Ask for one more batch; return whether there is one, and a worker for it."""
        index = next(self.indices, ENDED)
        if index is ENDED:
            return False
        worker = self.free_worker()
        if worker is None:
            return False
        self.request(self.indices.taken - 1, worker, index)
        return True

    def free_worker(self) -> int | None:
        """Return the next worker in turn whose dataset has not ended; without order, the next that is not behind."""
        for _ in range(self.count):
            worker = self.next_worker
            self.next_worker = (worker + 1) % self.count
            behind = not self.loader.in_order and sum(
                one == worker for one in self.waiting.values()
            ) >= self.most // sum(self.active)
            if self.active[worker] and not behind:
                return worker
        return None

    def request(self, number: int, worker: int, index: Any) -> None:
        """Have a worker make a batch."""
        turn = self.asked[worker]
        self.asked[worker] += 1
        self.waiting[number] = worker
        self.queue.put(BatchRequest(number, worker, turn, self.iteration, index, self.made))

    def batch(self) -> Any:
        while self.waiting:
            reply = self.reply()
            self.positions[reply.worker] = reply.position
            del self.waiting[reply.number]
            if reply.ended:
                self.active[reply.worker] = False
            self.ask()
            if reply.error is not None:
                self.given += 1
                raise reply.error.with_cause()
            if not reply.ended:
                self.given += 1
                return self.loader.finished(reply.data)
        self.queue.end()
        self.close()
        raise StopIteration

    def reply(self) -> BatchReply:
        """Return what a worker sends next. An error that is not a batch's ends the epoch, and is raised again."""
        if self.failure is not None:
            raise self.failure
        return self.early.popleft() if self.early else self.reply_of_worker()

    def reply_of_worker(self) -> BatchReply:
        """Return what arrives next."""
        try:
            return next(self.batches)
        except Exception as error:
            self.failure = error
            self.close()
            raise

    def settle(self) -> None:
        """Wait for all that was asked for, and keep it: workers that stay draw their numbers in this order."""
        while len(self.early) < len(self.waiting) and self.failure is None:
            with suppress(Exception):  # it is raised to the loop, if that goes on
                self.early.append(self.reply_of_worker())

    def state(self) -> dict[str, Any]:
        return {
            "positions": [position_to_json(one) for one in self.positions],
            "waiting": [[number, worker] for number, worker in self.waiting.items()],
            "active": list(self.active),
            "next_worker": self.next_worker,
        }

    def close(self) -> None:
        self.setup = None  # its workers may drop it
        self.batches.close()


def pipeline(queue: RequestQueue, setup: Any, most: int, loader: Any) -> Dataset[Any]:
    """Return the dataset that makes the batches that are asked for in a queue."""
    requests = Dataset.from_async_iterable(queue).plan
    fetch = Call("map", setup, spread=False)
    made = Map(requests, (fetch,), workers=most, ordered=loader.in_order, executor=loader.executor())
    return Dataset(made, Options(deterministic=loader.in_order))


def position_to_json(position: WorkerPosition) -> list[Any]:
    """Return a position as JSON values."""
    states, start = [None if one is None else states_to_json(one) for one in (position.states, position.start)]
    return [position.turn, states, start, position.stream, position.digest]


def position_from_json(saved: list[Any]) -> WorkerPosition:
    """Return a position from JSON values."""
    turn, *both, stream, digest = saved
    states, start = [None if one is None else states_from_json(one) for one in both]
    return WorkerPosition(turn, states, start, stream, digest)

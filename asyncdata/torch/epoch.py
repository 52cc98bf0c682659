"""Epoch: one iteration over a loader: which batches are asked for, which were given, and the state between them."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from inspect import currentframe
from itertools import count as counting
from typing import Any, Final, Generic, Self, TypeVar, cast

from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.function_call import Call
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.imports import installed_modules
from asyncdata.executors.process.pool import SharedFunction
from asyncdata.executors.process.workers import held_by
from asyncdata.integrations.lightning import caller_of, reads_ahead
from asyncdata.persistence.run_log import Occasion
from asyncdata.statistics.statistics import Statistics
from asyncdata.torch.device_copies import DeviceCopies, DeviceCopy
from asyncdata.torch.epoch_log import EpochLog
from asyncdata.torch.epoch_meter import EpochMeter
from asyncdata.torch.generators import Snapshot, states_from_json, states_to_json
from asyncdata.torch.held_generators import HeldGenerators
from asyncdata.torch.held_state import MOST_STATE
from asyncdata.torch.index_batches import IndexBatches, unread
from asyncdata.torch.internals import is_iterable, profiled
from asyncdata.torch.sampler_attributes import samplers
from asyncdata.torch.sampler_state import is_within
from asyncdata.torch.worker_process import FUNCTIONS, LoaderWorker, wait_for_any
from asyncdata.torch.worker_run import (
    ENDED,
    BatchReply,
    BatchRequest,
    RunSetup,
    StandIn,
    WorkerPosition,
    begins_later,
    digest_of,
    fetcher_of,
    held_generators,
    read_again,
    stream_state,
)

__all__ = ("VERSION", "Epoch", "InlineEpoch", "WorkerEpoch", "position_from_json", "state_before_first")

T = TypeVar("T")

VERSION: Final = 1

ITERATIONS: Final = counting(1)


class Epoch(Generic[T]):
    """One epoch of a loader."""

    unread = False
    loaded: Epoch[T] | None = None
    """The epoch of a state that the loader got after this one had begun, and before anything of it was read."""

    def __init__(self, loader: Any, number: int, saved: Mapping[str, Any] | None, skipped: int) -> None:
        self.loader = loader
        self.epoch = number
        self.given = 0
        self.ended = False
        self.before = deque[dict[str, Any]](maxlen=1)
        """The states before the batches that were given last, as many as Lightning reads ahead until the last one."""
        ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self.meter = EpochMeter(type(loader.index_sampler).__name__, loader.num_workers, ahead)
        self.copies = None if loader.device is None else DeviceCopies(loader.device)
        self.indices = IndexBatches(loader, loader.kept_seed(saved), saved)
        within = saved if saved is not None and is_within(saved) else None
        if within is None and not is_iterable(loader.kind):
            self.given = sum(index is not ENDED for index in (next(self.indices, ENDED) for _ in range(skipped)))
            skipped = 0
        self.log = None if loader.record is None else EpochLog(loader, number, saved)
        self.begin(within)
        for _ in range(skipped + (within or {}).get("behind", 0)):
            next(self, None)
        self.unread = True
        if self.log is not None:
            self.log.begin(self.given)
            weakref.finalize(self, self.log.write, "left")

    def record(self, why: Occasion) -> None:
        """Write what was given to the log, if there is one."""
        if self.log is not None:
            self.log.write(why)

    def begin(self, saved: Mapping[str, Any] | None) -> None:
        """Begin to read, or continue where it was saved."""
        raise NotImplementedError

    def batch(self) -> Any:
        """Return the next batch, or raise `StopIteration`."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return how far it is, by the batches that were given."""
        raise NotImplementedError

    @property
    def not_given(self) -> Mapping[int, Any]:
        """The indices that were taken, and whose batches were not given, by number."""
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> T:
        if self.ended:
            raise StopIteration
        if self.unread:
            self.unread, self.loaded = False, self.loader.epoch_loaded_since(self)
        if self.loaded is not None:
            return next(self.loaded)
        self.keep_state(reads_ahead(caller_of(currentframe())))
        try:
            with self.meter.times, profiled(self):
                if self.copies is not None:
                    self.copies.return_credit()
                return self.batch()
        except StopIteration:
            self.ended = True
            self.check_sampler()
            self.record("end")
            self.meter.times.end()
            self.meter.clock.end()
            raise
        except Exception as error:
            self.meter.times.raises(error)
            raise

    def keep_state(self, ahead: int) -> None:
        """Keep the state before the next batch, if the loop reads so many ahead, which have no part in its states."""
        if ahead:
            if self.before.maxlen != ahead:
                self.before = deque(self.before, ahead)
            self.before.append(self.present_state())

    def check_sampler(self) -> None:
        """Raise if a sampler that is its own iterator is empty in a later epoch."""
        own: list[Any] = [one for _, one in samplers(self.indices.sampler) if isinstance(one, Iterator)]
        if self.epoch and not self.indices.taken and own:
            raise PlanError(
                f"epoch {self.epoch} has no batch: the sampler, a {type(own[0]).__name__}, is an iterator and has "
                "ended; let its __iter__ begin anew"
            )

    def finished(self, data: Any) -> Any:
        """Return a batch as the loop gets it: on the device, if there is one."""
        if self.copies is None:
            return self.loader.finished(data)
        copy: DeviceCopy = cast("DeviceCopy", data) if isinstance(data, Future) else self.copies.start(data)
        self.copy_ahead(self.copies)
        return self.copies.take(copy)

    def copy_ahead(self, copies: DeviceCopies) -> None:
        """Begin to copy those of the next batches that are there."""

    def stats(self) -> Statistics:
        """Return the statistics so far."""
        return self.meter.statistics(self.indices.taken, self.given, self.outstanding, self.ended)

    @property
    def outstanding(self) -> int:
        """How many batches are asked for and not given."""
        return 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the batch that was given last, without those that Lightning has read ahead."""
        if self.loaded is not None:
            return self.loaded.state_dict()
        self.record("state")
        return self.before[0] if self.before and not self.ended else self.present_state()

    def present_state(self) -> dict[str, Any]:
        """Return the position behind the batch that was given last."""
        own = {"begun": True, "ended": self.ended, "given": self.given, **self.state()}
        own |= {"run": self.log.ids} if self.log is not None and self.log.ids else {}
        return {**header(self.loader, self.epoch), **own, **self.indices.state(self.ended, self.not_given)}

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
        self.waiting = dict[int, Any]()
        """The indices that workers had been asked for, and had not given, when a state was saved, by number."""
        position = [*([] if saved is None else positions_of(saved, loader)), WorkerPosition()][0]
        if loader.held is None:
            loader.held = held_generators(loader)
        held: HeldGenerators | None = loader.held
        if saved is not None and held is not None and is_iterable(loader.kind):
            held.set(position.held)
        self.held_start = None if held is None else held.changed()
        self.fetcher = fetcher_of(loader, position.stream)
        self.begun_at = [position.stream] if begins_later(self.fetcher) else []
        """Where the dataset began, while nothing was read: its own state may still be that behind an earlier epoch."""
        if saved is None:
            return
        self.given, self.digest = saved["given"], position.digest
        if is_iterable(loader.kind) and position.stream is None and position.turn:
            read_again(self.fetcher, next(iter(loader.index_sampler)), position)
        self.waiting = self.indices.take_again(saved, {number for number, _ in saved["waiting"]})
        if held is not None and (position.stream is not None or not is_iterable(loader.kind)):
            held.set(position.held)

    def held_states(self, stream: str | ResumeError | None) -> Snapshot | None:
        """Return the states of the generators that the dataset holds, as a position has them."""
        held: HeldGenerators | None = self.loader.held
        if held is None or (is_iterable(self.loader.kind) and stream is None and not self.ended):
            return self.held_start
        held.find()
        return held.changed()

    def batch(self) -> Any:
        number = next(iter(self.waiting), self.indices.taken)
        index = self.waiting.pop(number) if self.waiting else next(self.indices)
        if self.log is not None:
            self.log.asked[number] = index
        self.begun_at.clear()
        try:
            with self.meter.fetched():
                data = self.fetcher.fetch(index)
        except StopIteration:
            self.check_epoch()
            raise
        except Exception:
            if self.log is not None:
                self.log.note(number, number, failed=True)
            raise
        if self.log is not None:
            self.log.note(number, number)
        self.given = self.indices.taken - len(self.waiting)
        if is_iterable(self.loader.kind):
            self.digest = digest_of(data)
        return self.finished(data)

    def check_epoch(self) -> None:
        """Raise if an iterable dataset that returns itself from `__iter__` is empty in a later epoch."""
        if self.epoch and not self.given and self.fetcher.dataset_iter is self.loader.dataset:
            raise PlanError(
                f"epoch {self.epoch} has no batch: the iterable dataset, a {type(self.loader.dataset).__name__}, "
                "returns itself from __iter__ and has ended; let __iter__ begin anew, or return an iterator"
            )

    def state(self) -> dict[str, Any]:
        stream = self.begun_at[0] if self.begun_at else stream_state(self.fetcher)
        position = WorkerPosition(self.given, None, None, stream, self.digest, self.held_states(stream))
        return {"positions": [position_to_json(position)], "waiting": [[number, 0] for number in self.waiting]}

    @property
    def not_given(self) -> Mapping[int, Any]:
        return self.waiting


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
        self.asked_indices: dict[int, Any] = {}
        self.arrived: dict[int, BatchReply | BaseException] = {}
        self.positions = loader.positions_of_workers()
        """How far each worker is, by the batches that were given."""
        self.latest = list(self.positions)
        """The same by the batches that have arrived."""
        self.failure: BaseException | None = None
        setup = loader.setup(self.indices.seed)
        self.setup: RunSetup | None = setup
        self.function, self.stand_in = prepared(setup, loader)
        self.copied = sum(one.segment.size for one in self.function.data)
        """Bytes that the dataset holds and that were copied for the workers."""
        self.held = deque[BatchRequest]()
        """What was asked for and waits until the workers have started."""
        self.iteration = next(ITERATIONS)
        self.workers: list[LoaderWorker] = loader.workers()
        if saved is not None:
            self.continue_from(saved)
        while len(self.waiting) < self.most and self.ask():
            pass

    def continue_from(self, saved: Mapping[str, Any]) -> None:
        """Ask again for the batches that were not given."""
        same = saved["num_workers"] == self.count
        positions = positions_of(saved, self.loader)
        waiting = dict[int, int](saved["waiting"])
        kept = self.indices.take_again(saved, set(waiting))
        self.given = saved["given"]
        if same:
            self.positions[:] = positions
            self.latest[:] = positions
            self.asked = [one.turn for one in positions]
            self.active, self.next_worker = list(saved["active"]), saved["next_worker"]
        for number, worker in waiting.items():
            self.request(number, worker if same else number % self.count, kept[number])

    def ask(self) -> bool:
        """Ask for one more batch; return whether there is one, and a worker for it."""
        begin = time.perf_counter()
        index = next(self.indices, ENDED)
        self.meter.sampling += time.perf_counter() - begin
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
        self.asked_indices[number] = index
        if self.log is not None:
            self.log.asked[number] = index
        request = BatchRequest(number, worker, turn, self.iteration, index, self.latest)
        if self.stand_in is None:
            self.workers[worker].ask(request, self.function, self)
        else:
            self.held.append(request)

    def batch(self) -> Any:
        while self.waiting:
            reply = self.reply()
            self.positions[reply.worker] = reply.position
            del self.waiting[reply.number], self.asked_indices[reply.number]
            if reply.ended:
                self.active[reply.worker] = False
            self.ask()
            if self.log is not None and not reply.ended:
                self.log.note(self.given, reply.number, reply.error is not None)
            if reply.error is not None:
                self.given += 1
                raise reply.error.with_cause()
            if not reply.ended:
                self.given += 1
                return self.finished(reply.data)
        self.setup = None  # its workers may drop it
        raise StopIteration

    def reply(self) -> BatchReply:
        """Return what a worker sends next. An error that is not a batch's is raised again each time."""
        if self.failure is not None:
            raise self.failure
        if self.stand_in is not None and all(worker.has_started() for worker in self.workers):
            self.hand_over()
        if self.stand_in is not None:
            with self.meter.fetched():
                reply = self.stand_in.fetch(self.held[0])
            if reply is not None:
                self.held.popleft()
                self.took(reply)
                return reply
            self.hand_over()
        found = self.arrived.pop(self.wait())
        if isinstance(found, BaseException):
            self.failure = found
            raise found
        return found

    def hand_over(self) -> None:
        """Have the workers continue where the batches were made here."""
        self.stand_in = None
        for request in self.held:
            self.workers[request.worker].ask(request, self.function, self)
        self.held.clear()

    def wait(self) -> int:
        """Wait for the next batch, without order for any; return its number."""
        number, worker = next(iter(self.waiting.items()))
        patience, until = self.loader.timeout, None
        if patience:
            self.workers[worker].wait_for_start()
            until = time.monotonic() + patience
        if self.loader.in_order:
            came = self.workers[worker].receive(self, number, until)
        else:
            came = True
            while came and not self.arrived:
                came = wait_for_any(self.workers, self, until)
            number = next(iter(self.arrived), number)
        if not came:
            raise RuntimeError(f"DataLoader timed out after {patience} seconds")
        return number

    def copy_ahead(self, copies: DeviceCopies) -> None:
        if self.stand_in is not None:
            return
        numbers = [*self.waiting] if self.loader.in_order else [*self.arrived]
        for number in numbers:
            if not copies.credits or not self.workers[self.waiting[number]].receive(self, number, 0.0):
                return
            reply = self.arrived[number]
            if isinstance(reply, BatchReply) and reply.has_batch and not isinstance(reply.data, Future):
                reply.data = copies.start(reply.data)

    def took(self, reply: BatchReply) -> None:
        """Take note of a reply, from whichever thread received it."""
        self.latest[reply.worker] = reply.position
        self.meter.fetching += reply.seconds

    @property
    def outstanding(self) -> int:
        return len(self.waiting)

    def settle(self) -> None:
        """Wait for all that was asked for, and keep it: workers that stay draw their numbers in this order."""
        if self.stand_in is not None:
            self.hand_over()
        for number, worker in self.waiting.items():
            self.workers[worker].receive(self, number)

    def state(self) -> dict[str, Any]:
        return {
            "positions": [position_to_json(one) for one in self.positions],
            "waiting": [[number, worker] for number, worker in self.waiting.items()],
            "active": list(self.active),
            "next_worker": self.next_worker,
        }

    @property
    def not_given(self) -> Mapping[int, Any]:
        return self.asked_indices


def prepared(setup: RunSetup, loader: Any) -> tuple[SharedFunction, StandIn | None]:
    """Return what workers need as they get it; and who makes the first batches here if the workers must start first.

    An iterable dataset would have to be read again, `worker_init_fn` is for other processes than this one, what is done
    here has no timeout, and whether a dataset has changed is compared for each batch.
    """
    workers: list[LoaderWorker] = loader.workers()
    if setup.function is None:
        work = GroupWork((Call("map", setup, spread=False),))
        try:
            held = held_by(work, private=True)
        except PlanError as error:
            raise PlanError(
                f"the dataset, a {type(setup.dataset).__name__}, or a function of the loader cannot be sent to a "
                f"worker process: {error.__cause__}; open files, connections and locks at the first call of "
                "__getitem__, or leave num_workers out"
            ) from error.__cause__
        setup.function = FUNCTIONS.function(work, held)
        installed = installed_modules(held.head)
        for worker in workers:
            worker.start(installed)
        quick = setup.function.function.length < MOST_STATE
        here = quick and not is_iterable(setup.kind) and setup.worker_init_fn is None and not loader.timeout
        if here and not all(worker.has_started() for worker in workers):
            return setup.function, StandIn(setup.function.function, setup.number or 0)
    return setup.function, None


def positions_of(saved: Mapping[str, Any], loader: Any) -> list[WorkerPosition]:
    """Return the positions of the workers in a state; `ResumeError` if they are of no use to another number of them."""
    positions = [position_from_json(one) for one in saved["positions"]]
    count, bound = loader.num_workers, any(one.states or one.stream or one.held for one in positions)
    if saved["num_workers"] != count and (is_iterable(loader.kind) or bound):
        raise ResumeError(
            f"the state was saved with num_workers={saved['num_workers']}, and its position depends on each of them: "
            f"give the same number, not {count}"
        )
    return positions


def position_to_json(position: WorkerPosition) -> list[Any]:
    """Return a position as JSON values."""
    if isinstance(position.stream, ResumeError):
        raise position.stream
    states, start = [None if one is None else states_to_json(one) for one in (position.states, position.start)]
    return [position.turn, states, start, position.stream, position.digest, position.held]


def position_from_json(saved: list[Any]) -> WorkerPosition:
    """Return a position from JSON values."""
    turn, states, start, stream, digest, *held = saved
    both = [None if one is None else states_from_json(one) for one in (states, start)]
    return WorkerPosition(turn, both[0], both[1], stream, digest, *held)

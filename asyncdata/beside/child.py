"""The pipeline's side: a process that runs one plan, as often as it is told, and sends what comes out of it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from asyncdata.beside.apart import apart, certain, ignoring, sendable, transfer_of
from asyncdata.beside.letters import (
    Again,
    Ask,
    Begin,
    Cargo,
    Carry,
    Chosen,
    End,
    Ended,
    Forget,
    Opened,
    Order,
    Over,
    Ready,
    Stop,
    Taken,
    Told,
    Where,
    receive,
    send,
)
from asyncdata.columns import Columns
from asyncdata.errors import StageError
from asyncdata.optimize import optimize
from asyncdata.plan import Node
from asyncdata.processes.arena import Attached, Parcel, Slots, dumps, pack
from asyncdata.processes.crew import end_crews
from asyncdata.processes.errand import Carried
from asyncdata.processes.raised import words_of
from asyncdata.processes.worker import attend
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.bridge import Run
from asyncdata.runtime.executors import noted
from asyncdata.runtime.interrupts import Interrupts
from asyncdata.runtime.threads import thread_engine
from asyncdata.runtime.tickets import Start, Ticket, Tickets
from asyncdata.stats import stats_of

__all__ = ("serve",)

PATIENCE: Final = 0.8

SHORT: Final = 400
"""Characters of an error's text that always go through the pipe."""

HELD: Final = 2
"""How many of the blocks that a consumer has given out it may still ask about: the last one and that before it."""


class Office:
    """Where letters are written: the threads of this process take turns."""

    def __init__(self, replies: Connection, most_bytes: int) -> None:
        self.replies = replies
        self.slots = Slots(most_bytes)
        self.lock = threading.Lock()

    def send(self, letter: object) -> None:
        """Write a letter. Where nobody reads it any more, this process is about to end."""
        try:
            send(self.replies, letter)
        except OSError:
            return

    def parcel(self, value: Any) -> Parcel:
        """Return a value as it travels."""
        with self.lock:
            return pack(value, self.slots)

    def failure(self, error: BaseException) -> Parcel:
        """Return an error as it travels; its text alone where there is no shared memory to be had for it."""
        try:
            return self.parcel(Carried.of(error))
        except (OSError, MemoryError) as lack:
            text = f"{type(error).__name__}: {words_of(error)[:SHORT]} (told in short, because of {str(lack)[:SHORT]})"
            return dumps(Carried(StageError(text), ""), None)


class Passage:
    """A run of the plan, whose blocks a thread sends on as they come."""

    def __init__(self, number: int, run: Run, office: Office, label: str) -> None:
        self.number = number
        self.plan = run.whole
        self.label = label
        self.budget = run.budget
        self.office = office
        self.tickets: dict[int, Tickets] = {}
        self.held: dict[int, Block] = {}  # until the consumer has unpickled them
        self.forgotten = 0
        self.engine = thread_engine(run, None)
        self.engine.start()
        self.queue = self.engine.queue
        self.thread = threading.Thread(target=self.main, name="asyncdata-send", daemon=True)
        self.thread.start()

    def main(self) -> None:
        """The thread: send every block, then what ended the run, then that it is over."""
        try:
            self.send_blocks()
            error = self.queue.failure()
        except BaseException as failure:  # no memory to send in: reaches the consumer
            error = failure
            self.engine.stop()
        self.office.send(Ended(self.number, None if error is None else self.office.failure(error)))
        self.engine.thread.join()
        self.office.send(Over(self.number))

    def send_blocks(self) -> None:
        count, interrupts = 0, Interrupts()
        while True:
            self.engine.wait(self.queue.may_read, interrupts)
            block = self.queue.pass_on()
            if block is None or self.queue.stopped:
                return
            self.tickets[count] = block.tickets
            self.office.send(Carry(self.number, count, self.parcel(count, block), self.queue.depth.items))
            count += 1

    def parcel(self, number: int, block: Block) -> Parcel:
        """Return a block as it travels; elements that cannot be pickled become failures."""
        try:
            return self.packed(number, block)
        except MemoryError:
            raise
        except Exception:
            items = [fitting(item, block.tickets[place], self.label) for place, item in enumerate(block.items)]
            return self.packed(number, Block(items, block.tickets, True))

    def packed(self, number: int, block: Block) -> Parcel:
        """Return a block as it travels, and hold it if it may be asked for again."""
        cargo = cargo_of(block)
        if cargo.held:
            self.held[number] = block
        return self.office.parcel(cargo)

    def taken(self, letter: Taken) -> None:
        """Take note of what the consumer has taken."""
        self.queue.account(letter.items, letter.hungry)
        while self.forgotten < letter.blocks - HELD:
            del self.tickets[self.forgotten]
            self.forgotten += 1

    def answer(self, question: Where | Again | Chosen) -> Parcel:
        """Return the answer to a question."""
        try:
            if isinstance(question, Chosen):
                return self.office.parcel(stats_of(self.plan, self.budget))
            if isinstance(question, Again):
                return self.office.parcel(Cargo(apart(travelling(self.held.pop(question.block))), (), True))
            return self.office.parcel(self.tickets[question.block].at(question.delivered))
        except BaseException as error:  # a state that cannot be told: for whoever asks
            return self.office.failure(error)


def cargo_of(block: Block) -> Cargo:
    """Return a block for its way."""
    if block.columns and all(part.complete for part in block.columns):
        return Cargo([], block.columns, False)
    if not block.failed:
        columns = Columns.bundle(block.items)
        if columns is not None:
            return Cargo([], (columns,), False)
    items = travelling(block)
    return Cargo(items, (), block.failed, not certain(items))


def travelling(block: Block) -> list[Any]:
    """Return the items of a block, failures as they travel."""
    if not block.failed:
        return block.items
    return [Carried.of(item.error) if type(item) is Failure else item for item in block.items]


def fitting(item: Any, ticket: Ticket, label: str) -> Any:
    """Return an item, or the failure in the place of one that cannot be pickled."""
    if type(item) is Failure:
        return item
    try:
        return sendable(item)
    except TypeError as error:
        return noted(error, label, ticket)


class Service:
    """The process: its plan, and the runs of it."""

    def __init__(self, plan: Node, attached: Attached, office: Office) -> None:
        self.plan = plan
        self.attached = attached
        self.office = office
        self.passages: dict[int, Passage] = {}

    def run(self, commands: Connection) -> None:
        """Do what letters say until the last one."""
        while True:
            try:
                letter = receive(commands)
            except (EOFError, OSError):
                return
            if isinstance(letter, End):
                return
            self.follow(letter)

    def follow(self, letter: Any) -> None:
        """Do what a letter says."""
        if isinstance(letter, Begin):
            self.begin(letter)
            return
        passage = self.passages.get(letter.run)
        match letter:
            case Taken() if passage is not None:
                passage.taken(letter)
            case Opened() if passage is not None:
                passage.held.pop(letter.block, None)
            case Ask():
                self.office.send(Told(letter.token, passage and passage.answer(letter.question)))
            case Stop() if passage is not None:
                passage.engine.stop()
            case Forget() if passage is not None:
                passage.engine.stop()
                del self.passages[letter.run]
            case _:
                return

    def begin(self, letter: Begin) -> None:
        """Start a run."""
        try:
            order: Order = self.attached.open(letter.parcel, copied=True)
            plan = ignoring(optimize(self.plan, order.options).plan)
            run = Run.of(plan, order.epoch, Start.of(order.start), order.options.ram_budget)
            self.passages[letter.run] = Passage(letter.run, run, self.office, transfer_of(self.plan))
        except Exception as error:
            self.office.send(Ended(letter.run, self.office.failure(error)))
            self.office.send(Over(letter.run))

    def end(self) -> None:
        """End all runs, and wait a moment for them."""
        deadline = time.monotonic() + PATIENCE
        for passage in self.passages.values():
            passage.engine.stop()
        for passage in self.passages.values():
            passage.thread.join(max(0.0, deadline - time.monotonic()))
        end_crews()


def serve(commands: Connection, replies: Connection, plan: Parcel, most_bytes: int) -> None:
    """Run in a process that was started for it, until told to end or its parent ends."""
    attend()
    office = Office(replies, most_bytes)
    attached = Attached()
    try:
        service = Service(attached.open(plan), attached, office)
    except BaseException as error:
        office.send(Ready(office.failure(error)))
        wait_for_end(commands)
    else:
        office.send(Ready(None))
        service.run(commands)
        service.end()
    leave()


def wait_for_end(commands: Connection) -> None:
    """Wait until what was sent has been read."""
    try:
        while not isinstance(receive(commands), End):
            continue
    except (EOFError, OSError):
        return


def leave() -> None:
    """End the process at once: threads that do not return are left behind with it."""
    flush: Callable[[], object]
    for flush in (sys.stdout.flush, sys.stderr.flush):
        try:
            flush()
        except (OSError, ValueError):
            continue
    os._exit(0)

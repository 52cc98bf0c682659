"""The pipeline's process: runs one plan, as often as it is asked to, and sends the elements."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.engines.base import RunSpec
from asyncdata.engines.stall import Patience
from asyncdata.engines.stall_report import stall_report
from asyncdata.engines.stats import stats_of
from asyncdata.engines.thread import thread_engine
from asyncdata.errors import StageError
from asyncdata.executors.function_call import noted
from asyncdata.executors.global_random import key_of, seed_generators
from asyncdata.executors.process.exceptions import words_of
from asyncdata.executors.process.pool import end_pools
from asyncdata.executors.process.shm_arena import Message, SlotReader, Slots, dumps, pack
from asyncdata.executors.process.task import RemoteError
from asyncdata.executors.process.worker import attend
from asyncdata.graph.node import Node
from asyncdata.planning.optimizer import optimize
from asyncdata.process_engine import protocol
from asyncdata.process_engine.guarded_elements import guarded, ignoring, is_certainly_readable, sendable, transfer_of
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import Start, Ticket, Tickets
from asyncdata.system.sigint import DeferredInterrupts

__all__ = ("serve",)

END_TIMEOUT: Final = 0.8

SHORT: Final = 400
"""Characters of an error's text that always go through the pipe."""

HELD: Final = 2
"""How many of the blocks that a consumer has given out it may still ask about: the last one and that before it."""


log = logging.getLogger("asyncdata")


class MessageSender:
    """Where messages are written: the threads of this process take turns."""

    def __init__(self, replies: Connection, most_bytes: int) -> None:
        self.replies = replies
        self.slots = Slots(most_bytes)
        self.lock = threading.Lock()

    def send(self, message: object) -> None:
        """Write a message. If its reader is gone, this process is about to end."""
        try:
            protocol.send(self.replies, message)
        except OSError:
            return

    def payload(self, value: Any) -> Message:
        with self.lock:
            return pack(value, self.slots)

    def failure(self, error: BaseException) -> Message:
        """Return an error in the form that is sent; its text alone if there is no shared memory for it."""
        try:
            return self.payload(RemoteError.of(error))
        except (OSError, MemoryError) as lack:
            text = f"{type(error).__name__}: {words_of(error)[:SHORT]} (shortened, because of {str(lack)[:SHORT]})"
            return dumps(RemoteError(StageError(text), ""), None)


class RemoteRun:
    """A run of the plan, whose blocks a thread sends on as they come."""

    def __init__(self, number: int, run: RunSpec, sender: MessageSender, label: str, seconds: float | None) -> None:
        self.number = number
        self.seconds = seconds
        self.run = run
        self.label = label
        self.sender = sender
        self.tickets: dict[int, Tickets] = {}
        self.held: dict[int, Block] = {}  # until the consumer has unpickled them
        self.forgotten = 0
        self.engine = thread_engine(run, None)
        self.engine.start()
        self.queue = self.engine.queue
        self.thread = threading.Thread(target=self.main, name="asyncdata-send", daemon=True)
        self.thread.start()

    def main(self) -> None:
        """The thread: send every block, then the error that ended the run, then the end."""
        try:
            self.send_blocks()
            error = self.queue.failure()
        except BaseException as failure:  # no memory to send in: reaches the consumer
            error = failure
            self.engine.stop()
        self.sender.send(protocol.RunEnded(self.number, None if error is None else self.sender.failure(error)))
        self.engine.thread.join()
        self.sender.send(protocol.ThreadsEnded(self.number))

    def send_blocks(self) -> None:
        count, interrupts, patience = 0, DeferredInterrupts(), Patience(self.seconds, self.report)
        while True:
            self.engine.wait(self.queue.may_read, interrupts, patience)
            block = self.queue.pass_on()
            if block is None or self.queue.stopped:
                return
            self.tickets[count] = block.tickets
            self.sender.send(
                protocol.BlockMessage(self.number, count, self.payload(count, block), self.queue.depth.items)
            )
            count += 1

    def report(self) -> bool:
        """Log where a stalled pipeline waits, unless its consumer has not asked for elements."""
        if not self.queue.may_write():
            return False
        steps = stats_of(self.run.full_plan, self.run.meters, self.run.budget).steps
        log.warning("%s", stall_report(self.seconds or 0.0, steps, *self.engine.at_work()))
        return True

    def payload(self, number: int, block: Block) -> Message:
        """Return a block in the form that is sent; elements that cannot be pickled become failures."""
        try:
            return self.packed(number, block)
        except MemoryError:
            raise
        except Exception:
            items = [fitting(item, block.tickets[place], self.label) for place, item in enumerate(block.items)]
            return self.packed(number, Block(items, block.tickets, True))

    def packed(self, number: int, block: Block) -> Message:
        """Return a block in the form that is sent, and hold it if it may be requested again."""
        data = data_of(block)
        if data.held:
            self.held[number] = block
        return self.sender.payload(data)

    def taken(self, message: protocol.Acknowledgement) -> None:
        """Record what the consumer has taken."""
        self.queue.acknowledge(message.items, message.reader_waits)
        while self.forgotten < message.blocks - HELD:
            del self.tickets[self.forgotten]
            self.forgotten += 1

    def answer(self, question: protocol.Question) -> Message:
        try:
            if isinstance(question, protocol.StatisticsQuery):
                return self.sender.payload(stats_of(self.run.full_plan, self.run.meters, self.run.budget))
            if isinstance(question, protocol.ResendBlock):
                return self.sender.payload(
                    protocol.BlockData(guarded(travelling(self.held.pop(question.block))), (), True)
                )
            tickets = self.tickets[question.block]
            if isinstance(question, protocol.OriginQuery):
                return self.sender.payload(tickets.encoded(question.start, question.stop))
            return self.sender.payload(tickets.at(question.delivered))
        except BaseException as error:  # an error of the state: for the caller that asked
            return self.sender.failure(error)


def data_of(block: Block) -> protocol.BlockData:
    """Return a block for its way."""
    if block.columns and all(part.complete for part in block.columns):
        return protocol.BlockData([], block.columns, False)
    if not block.failed:
        columns = ColumnBatch.bundle(block.items)
        if columns is not None:
            return protocol.BlockData([], (columns,), False)
    items = travelling(block)
    return protocol.BlockData(items, (), block.failed, not is_certainly_readable(items))


def travelling(block: Block) -> list[Any]:
    """Return the items of a block, failures as they travel."""
    if not block.failed:
        return block.items
    return [RemoteError.of(item.error) if type(item) is Failure else item for item in block.items]


def fitting(item: Any, ticket: Ticket, label: str) -> Any:
    """Return an item, or the failure in the place of one that cannot be pickled."""
    if type(item) is Failure:
        return item
    try:
        return sendable(item)
    except TypeError as error:
        return noted(error, label, ticket)


class PipelineServer:
    """The process: its plan, and the runs of it."""

    def __init__(self, plan: Node, attached: SlotReader, sender: MessageSender) -> None:
        self.plan = plan
        self.attached = attached
        self.sender = sender
        self.remote_runs: dict[int, RemoteRun] = {}

    def run(self, commands: Connection) -> None:
        """Handle messages until the last one."""
        while True:
            try:
                message = protocol.receive(commands)
            except (EOFError, OSError):
                return
            if isinstance(message, protocol.EndProcess):
                return
            self.follow(message)

    def follow(self, message: Any) -> None:
        if isinstance(message, protocol.BeginRun):
            self.begin(message)
            return
        remote_run = self.remote_runs.get(message.run)
        match message:
            case protocol.Acknowledgement() if remote_run is not None:
                remote_run.taken(message)
            case protocol.BlockReadable() if remote_run is not None:
                remote_run.held.pop(message.block, None)
            case protocol.Query():
                self.sender.send(protocol.Answer(message.token, remote_run and remote_run.answer(message.question)))
            case protocol.StopRun() if remote_run is not None:
                remote_run.engine.stop()
            case protocol.ForgetRun() if remote_run is not None:
                remote_run.engine.stop()
                del self.remote_runs[message.run]
            case _:
                return

    def begin(self, message: protocol.BeginRun) -> None:
        """Start a run."""
        try:
            order: protocol.RunRequest = self.attached.open(message.payload, copied=True)
            os.chdir(order.folder)
            plan = ignoring(optimize(self.plan, order.options).plan)
            run = RunSpec.of(plan, order.epoch, Start.of(order.start), order.options.ram_budget, order.options.seed)
            if run.seed is not None:
                seed_generators(key_of(run.seed, run.epoch))
            label, seconds = transfer_of(self.plan), order.options.patience
            self.remote_runs[message.run] = RemoteRun(message.run, run, self.sender, label, seconds)
        except Exception as error:
            self.sender.send(protocol.RunEnded(message.run, self.sender.failure(error)))
            self.sender.send(protocol.ThreadsEnded(message.run))

    def end(self) -> None:
        """End all runs, and wait a moment for them."""
        deadline = time.monotonic() + END_TIMEOUT
        for remote_run in self.remote_runs.values():
            remote_run.engine.stop()
        for remote_run in self.remote_runs.values():
            remote_run.thread.join(max(0.0, deadline - time.monotonic()))
        end_pools()


def serve(commands: Connection, replies: Connection, plan: Message, most_bytes: int) -> None:
    """Run in a process that was started for it, until asked to end or its parent ends."""
    attend()
    sender = MessageSender(replies, most_bytes)
    attached = SlotReader()
    try:
        service = PipelineServer(attached.open(plan), attached, sender)
    except BaseException as error:
        sender.send(protocol.Ready(sender.failure(error)))
        wait_for_end(commands)
    else:
        sender.send(protocol.Ready(None))
        service.run(commands)
        service.end()
    leave()


def wait_for_end(commands: Connection) -> None:
    """Wait until the sent messages have been read."""
    try:
        while not isinstance(protocol.receive(commands), protocol.EndProcess):
            continue
    except (EOFError, OSError):
        return


def leave() -> None:
    """End the process at once, with any threads that do not return."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or there is none
            stream.flush()
    os._exit(0)

"""PipelineClient: the process that runs a plan, as its consumers see it, and the thread that reads what it sends."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any, Final

from asyncdata.errors import AsyncDataError, PlanError, StageError, unstarted
from asyncdata.executors.process.exceptions import copied_error
from asyncdata.executors.process.held_data import HeldDataPickler
from asyncdata.executors.process.imports import WithImports
from asyncdata.executors.process.pool import ending, most_slots
from asyncdata.executors.process.shm_arena import (
    INLINE,
    Message,
    SlotReader,
    SlotReference,
    Slots,
    is_passing,
    pack,
    pickled_by_value,
)
from asyncdata.executors.process.spawn import WorkerProcess, at_exit, preload
from asyncdata.executors.process.task import RemoteError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.process_engine import protocol
from asyncdata.process_engine.remote_queue import GoneError, RemoteBlockQueue
from asyncdata.process_engine.server import serve
from asyncdata.runtime.queue import AT_EXIT
from asyncdata.system import forks
from asyncdata.system.signal_handlers import start_thread
from asyncdata.transforms.cache import Cache

__all__ = ("client_of",)

END_TIMEOUT: Final = 2.0
ADVICE: Final = (
    "a function is sent with its globals and its closure: open files, locks and connections inside the function"
)
ELSEWHERE: Final = "or run the pipeline in this process, with Options(placement='thread')"


class PipelineProcess:
    """The process, and all that is known of it. Its thread starts it, reads its messages, and ends it."""

    def __init__(self) -> None:
        theirs, self.commands = Pipe(duplex=False)
        self.replies, replies = Pipe(duplex=False)
        self.theirs = [theirs, replies]
        self.end_reader, self.end_writer = Pipe(duplex=False)
        self.numbers = itertools.count()
        self.queues: dict[int, RemoteBlockQueue] = {}
        self.questions: dict[int, SimpleQueue[Message | None]] = {}
        self.waiting: deque[object] = deque()  # messages that have been read, and not followed yet
        self.plan_slots = Slots(most_slots())
        self.slots = Slots(most_slots())
        self.attached = SlotReader()
        self.process: WorkerProcess | None = None
        self.error: BaseException | None = None
        self.packing = threading.Lock()
        self.over = False
        self.thread: threading.Thread | None = None
        forks.register(self)

    # consumers' messages, from any thread; dropped runs from finalizers too

    def send(self, message: object) -> None:
        try:
            protocol.send(self.commands, message)
        except OSError as error:  # a signal handler's error may be an OSError too: `TimeoutError` is
            if not (isinstance(error, ConnectionError) or self.commands.closed):
                raise

    def disown(self) -> None:
        """Leave the process to the parent: a forked child must not send it anything."""
        self.over = True
        for connection in (self.commands, self.replies, self.end_reader, self.end_writer, *self.theirs):
            connection.close()
        PROCESSES.discard(self)
        forks.never_finalize(self)

    def begin(self, queue: RemoteBlockQueue, order: protocol.RunRequest) -> None:
        run = queue.reference.run
        self.queues[run] = queue
        with self.packing:
            payload = pack(order, self.slots)
        self.send(protocol.BeginRun(run, payload))
        if self.over:
            self.queues.pop(run, None)
            self.lose(queue)

    def ask(self, run: int, question: protocol.PositionQuery | protocol.OriginQuery | protocol.StatisticsQuery) -> Any:
        token, answer = next(self.numbers), SimpleQueue[Message | None]()
        self.questions[token] = answer
        self.send(protocol.Query(run, question, token))
        if self.over:
            answer.put(None)
        payload = answer.get()
        if payload is None:
            raise GoneError
        try:
            return self.attached.open(payload, copied=True)
        except OSError as error:
            raise GoneError from error

    def forget(self, run: int) -> None:
        """Release a run."""
        self.queues.pop(run, None)
        self.send(protocol.ForgetRun(run))

    def ring(self) -> None:
        """Have the thread end the process."""
        with suppress(OSError):
            self.end_writer.send_bytes(b"end")

    # the thread

    def main(self, plans: list[Node]) -> None:
        """Start the process with a plan, which is not held here, and read until it has ended."""
        try:
            self.start(sendable(plans.pop(), self.plan_slots))
            self.read()
        except Exception as error:
            self.error = without_frames(
                error if isinstance(error, AsyncDataError) else unstarted("the process for the pipeline", error)
            )
        finally:
            self.close()

    def start(self, plan: Message) -> None:
        preload(set())
        self.process = WorkerProcess(target=serve, args=(*self.theirs, plan, most_slots()), name="asyncdata-pipeline")
        self.process.start()
        for connection in self.theirs:
            connection.close()

    def read(self) -> None:
        """Read messages until the process should end, or has."""
        assert self.process is not None
        sources = [self.replies, self.process.sentinel, self.end_reader]
        while True:
            ready = wait(sources)
            if self.replies in ready:
                try:
                    self.waiting.append(protocol.receive(self.replies))
                    while self.waiting:
                        self.follow(self.waiting.popleft())
                except (EOFError, OSError):  # it has ended, and its last messages may be lost
                    return
            elif ready:
                return

    def follow(self, message: Any) -> None:
        match message:
            case protocol.BlockMessage():
                self.carry(message)
            case protocol.Answer():
                self.questions.pop(message.token).put(message.payload)
            case protocol.RunEnded():
                if (queue := self.queues.get(message.run)) is not None:
                    queue.finish_complete() if message.error is None else queue.finish(self.unpack_error(message.error))
            case protocol.ThreadsEnded():
                if (queue := self.queues.pop(message.run, None)) is not None:
                    queue.end()
            case protocol.Ready():
                self.plan_slots.close()
                if message.refusal is not None:
                    raise unloaded(self.unpack_error(message.refusal))
            case _:
                return

    def carry(self, message: protocol.BlockMessage) -> None:
        """Hand a block to its reader."""
        queue = self.queues.get(message.run)
        if queue is None or queue.stopped:
            self.attached.discard(message.payload)
            return
        if isinstance(message.payload, SlotReference):
            self.attached.map_of(message.payload)  # what fails here has died
        try:
            data: protocol.BlockData = self.attached.open(message.payload)
        except BaseException as error:  # whatever an element's own method raises
            again = self.again(message)
            if not isinstance(again, protocol.BlockData):
                refusal = StageError(f"elements from the pipeline's process cannot be unpickled here: {error!r}")
                refusal.__cause__ = error
                queue.finish(refusal)
                self.forget(message.run)
                queue.end()
                return
            data = again
        if data.held:
            self.send(protocol.BlockReadable(message.run, message.block))
        queue.receive(data.apart() if is_passing(message.payload) else data, message.depth)

    def again(self, message: protocol.BlockMessage) -> Any:
        """Return a block that could not be unpickled, with its elements pickled apart; something else if there is none.

        Messages that come meanwhile wait.
        """
        token = next(self.numbers)
        self.send(protocol.Query(message.run, protocol.ResendBlock(message.block), token))
        while True:
            answer = protocol.receive(self.replies)
            if not isinstance(answer, protocol.Answer) or answer.token != token:
                self.waiting.append(answer)
                continue
            return None if answer.payload is None else self.attached.open(answer.payload)

    def unpack_error(self, payload: Message) -> BaseException:
        carried: RemoteError = self.attached.open(payload, copied=True)
        return carried.failure(None).error

    def close(self) -> None:
        """End the process if it has not ended, and fail all that wait for it."""
        self.over = True
        ending = self.ended()
        for queue in list(self.queues.values()):
            self.lose(queue, ending)
        self.queues.clear()
        while self.questions:
            self.questions.popitem()[1].put(None)
        self.attached.maps.clear()
        self.slots.close()
        self.plan_slots.close()

    def ended(self) -> StageError | None:
        """Wait until the process has ended, and return the error that this is."""
        process = self.process
        if process is None or process.pid is None:
            return None
        self.send(protocol.EndProcess())
        process.join(END_TIMEOUT)
        if process.exitcode is None:
            process.kill()
            process.join()
        code = process.exitcode or 0
        process.close()
        return StageError(
            f"the process that ran the pipeline ended {ending(code)}; start again, or resume from a state"
        )

    def lose(self, queue: RemoteBlockQueue, ending: BaseException | None = None) -> None:
        """Tell a run that no more elements come; by an error of its own, as one that is raised holds frames."""
        error = None if self.error is None else copied_error(self.error)
        queue.end(error or ending or StageError("the process that ran the pipeline has ended"))


def without_frames(error: BaseException) -> BaseException:
    """Return an error without tracebacks, also of those behind it, whose frames hold the plan."""
    part: BaseException | None = error
    while part is not None and part.__traceback__ is not None:
        part.__traceback__ = None
        part = part.__cause__ or part.__context__
    return error


def sendable(plan: Node, slots: Slots) -> Message:
    """Return a plan as it travels; `PlanError` that names the first step that cannot."""
    for node in nodes_of(plan):
        if node.process_bound_reason is not None:
            raise PlanError(f"{node.label()} cannot run in another process: {node.process_bound_reason}, {ELSEWHERE}")
    try:
        held = HeldDataPickler(functions=False).pickled(WithImports(plan))
    except Exception as error:
        raise PlanError(f"{culprit(plan)} cannot be sent to another process: {error}; {ADVICE}, {ELSEWHERE}") from error
    raw = [memoryview(span.block()).cast("B") for span in held.spans]
    return slots.send(held.head, raw) if raw or len(held.head) > INLINE else held.head


def culprit(plan: Node) -> str:
    """Return the label of the first step that cannot be pickled."""
    for node in nodes_of(plan):
        try:
            pickled_by_value(node)
        except Exception:  # the one we look for
            return node.label()
    return plan.label()


def unloaded(error: BaseException) -> PlanError:
    """Return the error for a plan that has arrived in no good state."""
    refusal = PlanError(f"the pipeline cannot be unpickled in the process that should run it: {error!r}; {ELSEWHERE}")
    refusal.__cause__ = error
    return refusal


class PipelineClient:
    """A reference to the process of a plan, which ends with its last reference."""

    def __init__(self, plan: Node) -> None:
        self.process = PipelineProcess()
        PROCESSES.add(self.process)
        at_exit(end_clients, os.getpid())
        self.process.thread = threading.Thread(
            target=self.process.main, args=([plan],), name="asyncdata-pipeline-process", daemon=True
        )
        weakref.finalize(self, self.process.ring).atexit = False
        start_thread(self.process.thread)  # only now: a signal handler may raise in it


PROCESSES: Final[weakref.WeakSet[PipelineProcess]] = weakref.WeakSet()
CLIENTS: Final[weakref.WeakKeyDictionary[Node, PipelineClient]] = weakref.WeakKeyDictionary()
ONE_EACH: Final = forks.lock()

MAX_IDLE: Final = 4
"""How many processes of plans stay between iterations, for their next epochs."""


def client_of(plan: Node) -> PipelineClient:
    """Return the process of a plan: all its iterators share it, one epoch after the other or at once.

    If more than `MAX_IDLE` processes are idle and have no cache in memory, those used least recently end.
    """
    with ONE_EACH:
        found = CLIENTS.pop(plan, None)
        if found is None or found.process.over:
            found = PipelineClient(plan)
        idle = [other for other, client in CLIENTS.items() if not (client.process.queues or remembers(other))]
        for other in idle[: max(0, len(idle) - MAX_IDLE)]:
            del CLIENTS[other]  # it ends once no iterator that is about to begin holds it
        CLIENTS[plan] = found
        return found


def remembers(plan: Node) -> bool:
    """Return whether the process of a plan has something for its next epochs."""
    return any(isinstance(node, Cache) for node in nodes_of(plan))


@atexit.register
def end_clients() -> None:
    """End all processes when the interpreter exits, before multiprocessing waits for them."""
    processes = list(PROCESSES)
    for one in processes:
        for queue in list(one.queues.values()):
            queue.stop(AT_EXIT)
        one.ring()
    deadline = time.monotonic() + 2 * END_TIMEOUT
    for one in processes:
        if one.thread is not None:
            one.thread.join(max(0.0, deadline - time.monotonic()))

"""RunActor: pipelines that run on a worker of the cluster, each on a thread, and are read in chunks."""

from __future__ import annotations

import dataclasses
import threading
from functools import partial
from pickle import dumps as plainly
from typing import Final

from asyncdata.cluster.actor import CallReply, not_loaded
from asyncdata.cluster.chunk import Chunk, chunk_of, isolated
from asyncdata.cluster.parcel import Parcel
from asyncdata.cluster.remote_run import RunOrder
from asyncdata.engines.base import RunSpec
from asyncdata.engines.stall import PATIENT
from asyncdata.engines.thread import thread_engine
from asyncdata.errors import annotate
from asyncdata.executors.function_call import ElementNote
from asyncdata.executors.process.pool import pool_of
from asyncdata.executors.process.task import RemoteError
from asyncdata.graph.node import Node
from asyncdata.options import AUTOTUNE
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Start
from asyncdata.system.sigint import DeferredInterrupts
from asyncdata.transforms.filter import Filter
from asyncdata.transforms.map import Map
from asyncdata.transforms.prefetch import Prefetch

__all__ = ("RunActor",)

BUDGET: Final = 256 << 20
"""Bytes that a run may read ahead."""

HEAVY: Final = 4096
"""A position of more bytes is sent with only one chunk of several."""

SEVERAL: Final = 16


class RunActor:
    """Runs, by number. Several are read at once; each by one call at a time."""

    def __init__(self, copied: bool) -> None:
        self.copied = copied
        self.runs: dict[int, Run] = {}
        self.changing = threading.Lock()

    def read(self, number: int, order: Parcel | None, most_bytes: int) -> CallReply:
        """Return the next elements of a run, about so many bytes; a request with an order starts the run."""
        try:
            run = self.begun(number, order)
            return CallReply(None if run is None else run.packed(most_bytes))
        except BaseException as error:  # noqa: BLE001 - the caller gets the error of a run that cannot start
            return CallReply(Parcel.of(Chunk([], [], [], [], ended=True, error=RemoteError.of(error))))

    def begun(self, number: int, order: Parcel | None) -> Run | None:
        """Return a run; nothing if it is not known and no order was sent."""
        if order is None:
            return self.runs.get(number)
        try:
            run = Run(order.open(self.copied))
        except (ImportError, AttributeError) as error:
            raise not_loaded(error) from error
        with self.changing:
            self.runs[number] = run
        run.engine.start()
        return run

    def end(self, number: int) -> None:
        """End a run that is no longer read."""
        with self.changing:
            run = self.runs.pop(number, None)
        if run is not None:
            run.engine.stop()


class Run:
    """One pipeline on its way."""

    def __init__(self, order: RunOrder) -> None:
        plan = with_processes(order.plan) if order.careful else order.plan
        start = Start.of(order.position)
        run = RunSpec.of(Prefetch(plan, AUTOTUNE), 0, start, BUDGET)._replace(epoch=order.epoch)
        self.order = order
        self.engine = thread_engine(run, None)
        self.queue = self.engine.queue
        self.rest: Block | None = None
        self.chunks = 0
        self.heavy = False

    def packed(self, most_bytes: int) -> Parcel:
        """Return the next chunk as it travels; elements that cannot be pickled have failed."""
        block = self.next(most_bytes)
        if block is None:
            error = self.queue.failure()
            return Parcel.of(Chunk([], [], [], [], ended=True, error=None if error is None else RemoteError.of(error)))
        self.chunks += 1
        chunk = chunk_of(block, not self.heavy or self.chunks % SEVERAL == 0)
        if chunk.places:
            self.heavy = len(plainly(chunk.places[-1].position)) > HEAVY
        try:
            if not self.order.apart:
                return Parcel.of(chunk)
        except Exception:  # noqa: BLE001 - which of them it is, is found out
            return Parcel.of(isolated(chunk, partial(refused, self.order.label), self.order.apart))
        return Parcel.of(isolated(chunk, partial(refused, self.order.label), True))

    def next(self, most_bytes: int) -> Block | None:
        """Wait for elements, and return all that are ready, up to so many bytes; nothing at the end."""
        parts: list[Block] = []
        left = most_bytes
        while left > 0:
            block = self.rest or self.queue.take()
            self.rest = None
            if block is None:
                if parts or self.over():
                    break
                continue
            if parts and bool(parts[0].columns) != bool(block.columns):
                self.rest = block
                break
            count = max(1, left // max(1, block.weight))
            if count < len(block):
                block, self.rest = block.slice(0, count), block.slice(count, len(block))
            parts.append(block)
            left -= block.weight * len(block)
        return Block.join(parts) if parts else None

    def over(self) -> bool:
        """Wait until there is something; return whether that is the end."""
        self.queue.request_more()
        self.engine.wait(self.queue.may_read, DeferredInterrupts(), PATIENT)
        return not self.queue.blocks


def refused(label: str, error: TypeError) -> RemoteError:
    """Return the failure of an element that cannot travel."""
    annotate(error, ElementNote(f"in {label}"))
    return RemoteError.of(error)


def with_processes(node: Node) -> Node:
    """Return a plan whose functions are called in a process of their own, which may end without ending this one."""
    inputs = [with_processes(part) for part in node.inputs]
    if inputs:
        node = node.with_inputs(*inputs)
    if isinstance(node, (Map, Filter)) and not any(call.is_async for call in node.functions):
        return dataclasses.replace(node, workers=1, ordered=True, executor=pool_of(1))
    return node

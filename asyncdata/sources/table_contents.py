"""TableContents: the bytes of a file of row groups, which are requested ahead from an object store."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypeAlias

from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.runtime.retry_count import retries_counted
from asyncdata.storage import BLOCK_BYTES, Ahead, Entry, ObjectStore, Store

__all__ = ("TableContents",)

LARGEST_BLOCK: Final = 8 << 20

PIECE: Final = 2 << 20
"""Bytes of a request: a row group is read by many requests at once, as connections differ in speed."""

AHEAD: Final = 2
"""How many row groups are requested ahead."""

MOST_AHEAD: Final = 64 << 20
"""The most bytes that are requested ahead."""

Span: TypeAlias = tuple[int, int]
Parts: TypeAlias = list[tuple[int, bytes | bytearray]]


class TableContents:
    """The bytes of a file that is read in parts: its end, and the needed bytes of its row groups."""

    compressed = False

    def __init__(self, scope: Scope, store: Store, path: str) -> None:
        self.scope = scope
        self.store = store
        self.path = path
        self.entry = Entry("")
        self._groups: Sequence[int] = ()
        self._spans: Callable[[int], list[Span]] | None = None
        self._at_once = isinstance(store, ObjectStore) and not store.web
        self._share = scope.budget.share()
        self._ahead: dict[int, Ahead[Parts]] = {}

    async def begin(self) -> Entry:
        """Return the entry of the file."""
        with retries_counted(self.scope.meter.retried):
            self.entry = await self.scope.in_thread(partial(self.store.head, self.path))
        return self.entry

    async def read(self, start: int, length: int) -> bytes:
        """Return some bytes of the file that was opened; `DataLossError` if it was replaced."""
        return bytes(await self.read_counted(start, length))

    async def read_counted(self, start: int, length: int) -> bytearray:
        """Return some bytes of the file, and count them as read."""
        with retries_counted(self.scope.meter.retried):
            found = await self.read_exactly(start, length)
        self.scope.meter.read += len(found)
        return found

    async def read_exactly(self, start: int, length: int) -> bytearray:
        """Return exactly these bytes; `DataLossError` if the file ends before."""
        found = bytearray()
        runner = self.scope if length > BLOCK_BYTES else None  # small reads request nothing ahead
        async with aclosing(self.store.stream(self.path, max(1, min(length, LARGEST_BLOCK)), start, runner)) as stream:
            entry = await stream.begin()
            if entry[1:] != self.entry[1:]:
                raise DataLossError("the file was replaced by another one while it was read")
            while len(found) < length and len(block := await anext(stream, b"")):
                found += block
        if len(found) < length:
            raise DataLossError(f"it ends within bytes {start} to {start + length}")
        del found[length:]
        return found

    def set_groups(self, groups: Sequence[int], spans: Callable[[int], list[Span]]) -> None:
        """Set which row groups are read, in order, and a function that returns which bytes of one are needed."""
        self._groups, self._spans = groups, spans

    async def group(self, number: int) -> Parts:
        """Return the parts of a row group, each with its offset; call `set_groups` first."""
        assert self._spans is not None
        if not self._at_once:
            return [(start, await self.read_counted(start, size)) for start, size in self._spans(number)]
        pending = self._ahead.pop(number, None)
        place = bisect_right(self._groups, number)
        self._request(self._groups[place : place + AHEAD], self._spans)
        return await (self._pieces(self._spans(number)) if pending is None else pending.ready)

    def _request(self, numbers: Sequence[int], spans: Callable[[int], list[Span]]) -> None:
        """Request row groups ahead, as far as memory allows."""
        total = 0
        for number in numbers:
            needed = spans(number)
            total += sum(size for _, size in needed)
            if number in self._ahead:
                continue
            if total > MOST_AHEAD or self._share.claim(total) < total:
                return
            self._ahead[number] = Ahead(partial(self._pieces, needed), self.scope)

    async def _pieces(self, spans: Sequence[Span]) -> Parts:
        """Read some parts, by several requests at once if they are large."""
        try:
            with retries_counted(self.scope.meter.retried):
                async with asyncio.TaskGroup() as group:
                    parts = [
                        [
                            group.create_task(self._piece(at, min(at + PIECE, start + size)))
                            for at in range(start, start + size, PIECE)
                        ]
                        for start, size in spans
                    ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        self.scope.meter.read += sum(size for _, size in spans)
        return [(start, b"".join([piece.result() for piece in pieces])) for (start, _), pieces in zip(spans, parts)]

    async def _piece(self, start: int, stop: int) -> memoryview:
        """Return some bytes by one request."""
        assert isinstance(self.store, ObjectStore)
        part = await self.store.read_part(self.path, start, stop, self.entry)
        if len(part.data) < stop - start:
            raise DataLossError(f"it ends within bytes {start} to {stop}")
        return part.data

    async def aclose(self) -> None:
        """End the requests that are under way, without waiting."""
        for pending in self._ahead.values():
            pending.cancel.cancel()
        self._ahead.clear()

"""The producers of a durable channel, who wait until its readers, in any process, have come far enough."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import final

from asyncdata.runtime.queue import LoopSignal
from asyncdata.web.channel import limit_of
from asyncdata.web.folder import ChannelFolder, LogReader, WakeFile
from asyncdata.web.lag import Admission, LagLimit, Staleness
from asyncdata.web.reading import NewestVersion, ReadingFile
from asyncdata.web.record import Kind, Record

__all__ = ("Producers",)


@final
class Producers:
    """Which records are not read yet, and who may make more. Its methods are called under the channel's guard."""

    def __init__(self, folder: ChannelFolder, max_lag: int | None) -> None:
        self.folder = folder
        self.reading = ReadingFile(folder)
        self.newest = NewestVersion(folder)
        self.version = self.newest.read()
        self.limit = None if max_lag is None else LagLimit(max_lag)
        self.unread: deque[tuple[int, Admission | None]] = deque()
        """The records behind what was read: where each ends."""
        if max_lag is not None:
            folder.create_pipes("admitting")
            self.count_unread()

    def count_unread(self) -> None:
        """Count the records that an earlier writer stored, and that are not read."""
        starts, offset = self.folder.segments(), self.reading.read().offset
        if not starts:
            return
        begin = offset if starts[0] <= offset <= self.folder.end() else None
        reader = LogReader(self.folder, begin)
        try:
            while frames := reader.read():
                for frame in frames:
                    if not isinstance(frame.record, Record) or frame.record.kind == Kind.DATA:
                        self.sent(frame.end, None, None)
        finally:
            reader.close()

    def checked(self, version: object) -> LagLimit:
        """Return the limit for work of a version; `PlanError` if there is none."""
        return limit_of(self.limit, version)

    def tell(self, version: int | None) -> None:
        """Let readers know of a newer version."""
        if version is not None and (self.version is None or version > self.version):
            self.version = version
            self.newest.write(version)

    def sent(self, end: int, admission: Admission | None, version: int | None) -> None:
        """Count a record that is on the disk."""
        self.tell(version)
        if self.limit is not None:
            self.unread.append((end, self.limit.sent(admission)))

    def follow(self) -> None:
        """Count what was read meanwhile, if anyone waits for that."""
        if self.limit is None or not self.limit.waiting:
            return
        offset = self.reading.read().offset
        while self.unread and self.unread[0][0] <= offset:
            self.limit.count_read(self.unread.popleft()[1])

    def release(self, admission: Admission) -> None:
        """End an admission with which nothing was sent."""
        if self.limit is not None:
            self.limit.release(admission)

    def wake_all(self) -> None:
        """Wake all who wait, as the channel is closed."""
        if self.limit is not None:
            for signal in self.limit.waiting:
                signal.notify()

    @property
    def working(self) -> int:
        """How many admissions wait for what they send."""
        return 0 if self.limit is None else self.limit.working

    @asynccontextmanager
    async def woken(self) -> AsyncGenerator[LoopSignal]:
        """Give a signal that readers of the channel notify, in the block."""
        loop = asyncio.get_running_loop()
        signal, wake = LoopSignal(loop, threadsafe=True), WakeFile(self.folder, "admitting")

        def notify() -> None:
            wake.clear()
            signal.notify()

        try:
            loop.add_reader(wake.descriptor, notify)
            yield signal
        finally:
            loop.remove_reader(wake.descriptor)
            wake.close()

    def stats(self, dropped: int) -> dict[str, float]:
        """Return how many items were read, and how stale they were."""
        _, items, versioned, behind, most = self.reading.read()
        return {"read": items, **Staleness(None, versioned, behind, most).stats(items, dropped)}

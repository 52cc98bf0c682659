"""Lag: how far a trainer is ahead of the producers, and who may begin to work so that no work is wasted."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import final

from asyncdata.errors import PlanError
from asyncdata.runtime.queue import LoopSignal

__all__ = ("Admission", "AdmissionEndedError", "Admitting", "LagLimit", "Staleness")


class AdmissionEndedError(PlanError):
    """An admission was used or released, or is of another channel."""


@final
class Admission:
    """Leave to begin work, from `channel.admit(version)`. It ends when `send(admission=)` has sent what was made.

    `release()` ends it without that, as leaving `async with` does.
    """

    __slots__ = ("_release", "used", "version")

    def __init__(self, version: int, release: Callable[[Admission], None]) -> None:
        self.version = version
        """Of the model or policy that the work is done with."""
        self.used = False
        """Whether something was sent with it."""
        self._release = release

    def release(self) -> None:
        """End it, if nothing was sent with it."""
        if not self.used:
            self._release(self)

    def __repr__(self) -> str:
        return f"<Admission of version {self.version}{', used' if self.used else ''}>"


@final
class Admitting:
    """What `channel.admit(version)` returns: awaited, or entered by `async with`, it gives an `Admission`."""

    __slots__ = ("_admission", "_begin")

    def __init__(self, begin: Callable[[], Awaitable[Admission]]) -> None:
        self._begin = begin
        self._admission: Admission | None = None

    def __await__(self) -> Generator[object, None, Admission]:
        return self._begin().__await__()

    async def __aenter__(self) -> Admission:
        self._admission = await self._begin()
        return self._admission

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._admission is not None:
            self._admission.release()


@final
class Staleness:
    """How many versions the items that were read were behind the newest one."""

    __slots__ = ("count", "most", "newest", "total")

    def __init__(self, newest: int | None = None, count: int = 0, total: int = 0, most: int = 0) -> None:
        self.newest = newest
        """The newest version that anyone has told."""
        self.count = count
        """How many items had a version."""
        self.total = total
        self.most = most

    def tell(self, version: int | None) -> None:
        """Take note of a version."""
        if version is not None and (self.newest is None or version > self.newest):
            self.newest = version

    def add(self, version: int | None, items: int) -> None:
        """Count items that are read."""
        if version is None:
            return
        self.tell(version)
        lag = (self.newest or 0) - version
        self.count += items
        self.total += lag * items
        self.most = max(self.most, lag)

    def stats(self, taken: int, dropped: int) -> dict[str, float]:
        """Return the mean and the largest, and the share of waste: of items dropped among those read and dropped."""
        return {
            "staleness": self.total / self.count if self.count else 0.0,
            "max_staleness": self.most,
            "waste": dropped / (taken + dropped) if taken + dropped else 0.0,
        }


@final
class LagLimit:
    """Admits work so that at most `max_lag` sends of others are read between an admission and what it sends.

    Every send that is admitted, or is in the channel, may be read before that of the oldest admission. So from the time
    of that admission on, at most `max_lag` other sends are read, in the channel or admitted, taken together.

    The methods are called under the channel's lock.
    """

    def __init__(self, max_lag: int) -> None:
        self.max_lag = max_lag
        self.read = 0
        """How many sends were read."""
        self.pending = 0
        """How many sends are admitted or in the channel, and not yet read."""
        self.open: dict[Admission, int] = {}
        """Admissions whose sends were not read yet, the oldest first, and how many sends had been read then."""
        self.waiting: deque[LoopSignal] = deque()

    @property
    def working(self) -> int:
        """How many admissions wait for what they send."""
        return sum(not admission.used for admission in self.open)

    def has_room(self) -> bool:
        """Return whether one more may be admitted."""
        return self.read + self.pending - next(iter(self.open.values()), self.read) <= self.max_lag

    def try_admit(self, admission: Admission, signal: LoopSignal | None = None) -> bool:
        """Admit it, unless there is no room, or another one has waited for longer."""
        if not self.has_room() or (self.waiting and self.waiting[0] is not signal):
            return False
        if signal is not None:
            self.waiting.popleft()
        self.pending += 1
        self.open[admission] = self.read
        self.wake()
        return True

    def leave(self, signal: LoopSignal) -> None:
        """Wait no more."""
        if signal in self.waiting:
            self.waiting.remove(signal)
            self.wake()

    def check(self, admission: Admission) -> None:
        """Raise unless something may be sent with an admission."""
        if admission.used or admission not in self.open:
            raise AdmissionEndedError(f"send(admission=): {admission!r} was used or released, or is of another channel")

    def sent(self, admission: Admission | None) -> Admission | None:
        """Count a send; return its admission, unless that was used or released meanwhile."""
        if admission is None or admission.used or admission not in self.open:
            self.pending += 1
            return None
        admission.used = True
        return admission

    def count_read(self, admission: Admission | None) -> None:
        """Count a send that was read, or dropped as stale."""
        self.read += 1
        self.release(admission)

    def release(self, admission: Admission | None) -> None:
        """Count a send that does not come any more."""
        if admission is None or self.open.pop(admission, None) is not None:
            self.pending -= 1
            self.wake()

    def wake(self) -> None:
        """Wake who has waited longest, if there is room."""
        if self.waiting and self.has_room():
            self.waiting[0].notify()

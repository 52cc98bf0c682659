"""A clock that jumps."""

from __future__ import annotations

import asyncio
import selectors

__all__ = ("JumpingLoop", "virtual_time")


class JumpingSelector(selectors.DefaultSelector):
    """Never wait for a timer: when nothing is ready, the clock of this event loop, in seconds, jumps to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; block only if no timer would ever end the waiting."""
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None:
            self.now += max(timeout, 0.0)
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of its selector."""

    def __init__(self) -> None:
        self.clock = JumpingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        """Return the virtual time in seconds; it starts at 0."""
        return self.clock.now

    @property
    def jumped(self) -> float:
        """The seconds that took no time, which the engine counts as work all the same."""
        return self.clock.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio has it
        """Wait for the executor's threads, which take real time: a virtual `timeout` would be over at once."""
        await super().shutdown_default_executor()


def virtual_time() -> asyncio.AbstractEventLoop:
    """Return a new event loop whose clock jumps to the next timer when nothing else is ready.

    Hours of `asyncio.sleep` pass in milliseconds and in exact order. For pipelines with `Options(placement="current")`;
    threads are not waited for, so use coroutine functions.

    >>> import asyncio
    >>> with asyncio.Runner(loop_factory=virtual_time) as runner:
    ...     runner.run(asyncio.sleep(3600))
    ...     runner.get_loop().time()
    3600.0
    """
    return JumpingLoop()

"""Begun: a coroutine that has run up to where it waits."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast, final

__all__ = ("Begun",)

T = TypeVar("T")


@final
class Begun(Generic[T]):
    """Runs a coroutine until it waits, so that one can tell whether it has to; then await this object, once, at once.

    >>> import asyncio
    >>> async def run():
    ...     quick, slow = Begun(asyncio.sleep(0, "quick")), Begun(asyncio.sleep(0.01, "slow"))
    ...     return quick.done, slow.done, await slow
    >>> asyncio.run(run())
    (False, False, 'slow')
    """

    __slots__ = ("done", "steps", "value", "waiting")

    def __init__(self, coroutine: Awaitable[T]) -> None:
        self.steps: Any = coroutine.__await__()
        self.value: T | None = None
        self.waiting: Any = None
        """What the event loop gets when the coroutine waits."""
        self.done = False
        self.step(partial(next, self.steps))

    def step(self, resume: partial[Any]) -> None:
        """Run it until it waits again."""
        try:
            self.waiting = resume()
        except StopIteration as ended:
            self.done, self.value = True, ended.value

    def __await__(self) -> Generator[Any, Any, T]:
        while not self.done:
            try:
                sent = yield self.waiting
            except BaseException as error:  # noqa: BLE001  for the coroutine to handle
                self.step(partial(self.steps.throw, error))
            else:
                self.step(partial(next, self.steps) if sent is None else partial(self.steps.send, sent))
        return cast("T", self.value)

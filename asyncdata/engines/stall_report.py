"""The report on a stalled pipeline, which gives no element on request: which step waits for what, and its stack."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import AsyncGeneratorType, FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncdata.runtime.meter import Meter

if TYPE_CHECKING:
    from asyncdata.statistics.statistics import StepStatistics

__all__ = ("stall_report",)

PACKAGE: Final = str(Path(__file__).parents[1])
MACHINERY: Final = tuple(
    str(Path(module.__file__ or "").parent if package else module.__file__)
    for module, package in ((asyncio, True), (threading, False))
)
DEEPEST: Final = 12
"""Lines of a stack that are shown: the innermost ones."""


class ThreadStack(NamedTuple):
    """The current place of a thread or a task of a pipeline."""

    name: str
    step: str
    """The step that it works for; empty if unknown."""
    lines: list[str]
    """Its stack from where it leaves this package on; empty if it does not."""
    blocks: bool = False
    """Whether it is a loop's thread and blocks that loop."""


def stall_report(
    seconds: float, steps: Iterable[StepStatistics], threads: Iterable[threading.Thread], tasks: Iterable[Any]
) -> str:
    """Return which step waits for what after so many seconds, and the stacks of the user's code in threads and
    tasks."""
    from asyncdata.statistics.table import time_of

    places = [*places_of_threads(threads)]
    blocked = [place for place in places if place.blocks]
    if blocked:
        what = f"the event loop is blocked by {blocked[0].step or 'code outside the pipeline'}"
    else:
        places += places_of_tasks(tasks)
        what = culprit([*steps], places)
    report = [f"nothing has come for {time_of(seconds)}, though it was asked for: {what}"]
    for place in places:
        if place.lines:
            report.append(f"{place.name}{f', for {place.step}' if place.step else ''}:")
            report += place.lines
    return "\n".join(report)


def culprit(steps: list[StepStatistics], places: list[ThreadStack]) -> str:
    """Return as text which step waits for what: the last one that has work, else the source it reads."""
    from asyncdata.statistics.statistics import counted

    inside = next((place.step for place in places if place.step and place.lines), "")
    at = len(steps) - 1
    while at >= 0:
        step = steps[at]
        if step.kind == "function" and step.queued:
            within = f" in {counted(step)}" if step.workers else ""
            return f"{step.step} works on {step.queued} elements{within}, and has no result yet"
        if step.step == inside:
            return f"{step.step} has not returned"
        if not step.inputs:
            return f"{step.step} is waited for" if step.kind == "source" else "the pipeline has not begun"
        at = max(step.inputs, key=lambda place: steps[place].queued or 0)
    return "the pipeline has not begun"


def places_of_threads(threads: Iterable[threading.Thread]) -> Iterator[ThreadStack]:
    for thread in threads:
        frame = frame_of(thread)
        if frame is not None:
            stack = [each for each, _ in traceback.walk_stack(frame)][::-1]
            ours = next((at for at, each in enumerate(stack) if is_ours(each)), 0)
            blocks = not thread.name.startswith("asyncdata")  # the others are the pipeline's own
            place = place_of(f"thread {thread.name}", stack[ours:])
            yield place._replace(
                blocks=blocks, name=f"{place.name}, which runs the event loop" if blocks else place.name
            )


def frame_of(thread: threading.Thread) -> FrameType | None:
    """Return the innermost frame of a thread. The frames of others are not held: they lead to all of a pipeline."""
    return sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def places_of_tasks(tasks: Iterable[Any]) -> Iterator[ThreadStack]:
    """Yield the places of waiting tasks."""
    for task in tasks:
        yield place_of("a task", [*frames_of(task.get_coro())])


def frames_of(waiting: Any) -> Iterator[FrameType]:
    """Yield the frames of a waiting coroutine, and of all that it awaits in turn, the outermost first."""
    while waiting is not None:
        frame: FrameType | None = None
        inner: Any = None
        for kind in ("cr", "ag", "gi"):
            frame = getattr(waiting, f"{kind}_frame", frame)
            inner = getattr(waiting, f"{kind}_{'yieldfrom' if kind == 'gi' else 'await'}", inner)
        if frame is None:
            inner = next(filter(is_generator_step, gc.get_referents(waiting)), None)
        elif inner is None:
            inner = handed_on(frame)
        if frame is not None:
            yield frame
        waiting = inner


def is_generator_step(found: object) -> bool:
    """Return whether something is, or waits for, an asynchronous generator: an object that awaits its next item shows
    no more."""
    return isinstance(found, AsyncGeneratorType) or type(found).__name__ == "async_generator_asend"


def handed_on(frame: FrameType) -> Any:
    """Return the coroutine that a generator of this package drives by itself; `None` if there is none."""
    if not is_ours(frame):
        return None
    return frame.f_locals.get("pull") or getattr(frame.f_locals.get("self"), "coroutine", None)


def place_of(name: str, stack: list[FrameType]) -> ThreadStack:
    """Return what a stack shows; its frames are the outermost first."""
    meters = [meter for frame in stack for meter in meters_in(frame)]
    step: Any = meters[-1].step if meters else ""
    outside = next((place for place, frame in enumerate(stack) if is_users(frame)), len(stack))
    shown = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in stack[outside:][-DEEPEST:])
    return ThreadStack(
        name, step.label() if hasattr(step, "label") else str(step), [line.rstrip() for line in shown.format()]
    )


def meters_in(frame: FrameType) -> Iterator[Meter]:
    """Yield the meter of the step that a frame of this package works for."""
    if is_ours(frame):
        found = frame.f_locals.get("meter") or getattr(frame.f_locals.get("self"), "meter", None)
        if isinstance(found, Meter):
            yield found


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame is this package's."""
    return frame.f_code.co_filename.startswith(PACKAGE)


def is_users(frame: FrameType) -> bool:
    """Return whether a frame is the user's: not this package's, nor of the code that runs it."""
    file = frame.f_code.co_filename
    return not file.startswith((PACKAGE, *MACHINERY, "<frozen")) and "anyio" not in file

"""Progress: an iterator that shows how far it is, where somebody watches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Self, TypeVar

from asyncdata.iterator import DatasetIterator
from asyncdata.observe.statistics import Statistics
from asyncdata.runtime.closing import Closable
from asyncdata.runtime.optional_packages import require

__all__ = ("Progress", "progress_of")

T = TypeVar("T")


class Progress(Closable, Generic[T]):
    """One pass over a dataset, with a bar of tqdm's: elements, pace, time left, and how much of it is waiting.

    An element that failed counts as one, and is raised as by the iterator.
    """

    def __init__(self, elements: DatasetIterator[T], bar: Any) -> None:
        self.elements = elements
        """The iterator itself: `stats`, `state_dict` and all else."""
        self._bar = bar

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            element = next(self.elements)
        except StopIteration:
            self._end()
            raise
        except Exception:
            self._show()
            raise
        self._show()
        return element

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            element = await anext(self.elements)
        except StopAsyncIteration:
            self._end()
            raise
        except Exception:
            self._show()
            raise
        self._show()
        return element

    def monitor(self) -> Callable[[], Statistics]:
        """Return a function that tells what the pipeline does: see `DatasetIterator.monitor`."""
        return self.elements.monitor()

    def _show(self) -> None:
        """Count an element; now and then tqdm shows it, and then what was measured is told too."""
        if self._bar.update():
            self._bar.set_postfix_str(self._told(), refresh=False)

    def _told(self) -> str:
        return f"waiting {self.elements.stats().waiting:.0%}"

    def _end(self) -> None:
        self._bar.set_postfix_str(self._told(), refresh=False)
        self._bar.close()

    def close(self) -> None:
        """End the pipeline and the bar."""
        self._end()
        self.elements.close()

    async def aclose(self) -> None:
        """End the pipeline and the bar without blocking the event loop."""
        self._end()
        await self.elements.aclose()


def progress_of(iterate: Callable[[], DatasetIterator[T]], cardinality: int, description: str) -> Progress[T]:
    """Return the next epoch of a dataset with a bar, which is shown on terminals and in notebooks alone."""
    bars = require("tqdm.auto", "progress()", "'asyncdata[observe]'")
    elements = iterate()
    bar: Any = partial(bars.tqdm, total=cardinality if cardinality >= 0 else None, unit=" elements")
    in_notebook = "notebook" in bars.tqdm.__module__ or any("notebook" in base.__module__ for base in bars.tqdm.__mro__)
    title = description or f"epoch {elements.epoch}"
    return Progress(elements, bar(desc=title, disable=False if in_notebook else None))

"""Progress: an iterator that shows a bar on terminals and in notebooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Self, TypeVar

from asyncdata.errors import PlanError
from asyncdata.iterator import DatasetIterator
from asyncdata.statistics.statistics import Statistics, decimal
from asyncdata.system.closing import Closable
from asyncdata.system.optional_packages import require

__all__ = ("Progress", "progress_of")

T = TypeVar("T")


class Progress(Closable, Generic[T]):
    """One pass over a dataset, with a bar of tqdm: elements, pace, time left, and the share of the time spent waiting.

    A failed element counts, and its error is raised as by the iterator.
    """

    def __init__(self, elements: DatasetIterator[T], bar: Any) -> None:
        self.elements = elements
        """The iterator itself, with `stats`, `state_dict` and all other methods."""
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
        """Return a function that returns the statistics: see `DatasetIterator.monitor`."""
        return self.elements.monitor()

    def _show(self) -> None:
        """Count an element; when tqdm redraws the bar, show samples a second and the share of waiting too."""
        if self._bar.update():
            self._bar.set_postfix_str(self._told(), refresh=False)

    def _told(self) -> str:
        stats = self.elements.stats()
        samples = f"{decimal(stats.sample_pace)} samples/s, " if stats.batched > 1 else ""
        return f"{samples}waiting {stats.waiting:.0%}"

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
    """Return the next epoch of a dataset with a bar, which is shown only on terminals and in notebooks."""
    if not isinstance(description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"progress() takes the text before the bar, got {description!r:.80}")
    bars = require("tqdm.auto", "progress()", "'asyncdata[observe]'")
    elements = iterate()
    bar: Any = partial(bars.tqdm, total=cardinality if cardinality >= 0 else None, unit=" elements")
    in_notebook = "notebook" in bars.tqdm.__module__ or any("notebook" in base.__module__ for base in bars.tqdm.__mro__)
    title = description or f"epoch {elements.epoch}"
    return Progress(elements, bar(desc=title, disable=False if in_notebook else None))

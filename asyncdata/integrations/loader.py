"""Loader: a dataset as training loops and trainers take one, which knows its place in the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import currentframe
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from asyncdata.graph.node import check_count
from asyncdata.integrations.gather_state import gathered_state, own_state
from asyncdata.integrations.lightning import batches_ahead, epoch_to_begin, was_last_batch
from asyncdata.iterator import DatasetIterator, state_before_latest
from asyncdata.runtime.closing import Closable
from asyncdata.runtime.tickets import END

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset

__all__ = ("Loader", "LoaderIterator")

T = TypeVar("T")

NONE_LEFT: Final = object()


class LoaderIterator(Generic[T]):
    """One epoch of a loader, by `for` or `async for`."""

    def __init__(
        self, dataset: Dataset[Any], batches: DatasetIterator[Any], convert: Callable[[Any], T], resumed: bool = False
    ) -> None:
        self._dataset, self._batches, self._convert = dataset, batches, convert
        self.resumed = resumed
        """Whether it continues from a state, and no batch has been asked for since."""
        self.begun = self.ended = False

    @property
    def epoch(self) -> int:
        """The number of this epoch."""
        return self._batches.epoch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        resumed = self.begin()
        batch = next(self._batches, NONE_LEFT)
        if batch is NONE_LEFT and resumed:
            self._batches = self._dataset.iterate()
            batch = next(self._batches, NONE_LEFT)
        if batch is NONE_LEFT:
            self.ended = True
            raise StopIteration
        return self._convert(batch)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        resumed = self.begin()
        batch = await anext(self._batches, NONE_LEFT)
        if batch is NONE_LEFT and resumed:
            self._batches = self._dataset.iterate()
            batch = await anext(self._batches, NONE_LEFT)
        if batch is NONE_LEFT:
            self.ended = True
            raise StopAsyncIteration
        return self._convert(batch)

    def begin(self) -> bool:
        """Take note that a batch is asked for; return whether it is the first after a state, which may be of the end.

        Then the next epoch is to begin.
        """
        resumed, self.begun, self.resumed = self.resumed, True, False
        return resumed

    def state_dict(self, ahead: int = 0) -> dict[str, Any]:
        """Return what has been delivered, as `DatasetIterator.state_dict` does; without the latest batch if `ahead`."""
        return state_before_latest(self._batches) if ahead else self._batches.state_dict()

    def close(self) -> None:
        """End the pipeline and wait until it has ended; a state can still be asked for."""
        self._batches.close()

    async def aclose(self) -> None:
        """End the pipeline and wait until it has ended, without blocking the event loop."""
        await self._batches.aclose()


class Loader(Closable, Generic[T]):
    """What `Dataset.loader` returns: batches for a training loop, an epoch for each `for`, and the place in training.

    Its state is that of the epoch that is being read: how many batches the loop has been given, not how many have been
    read ahead. A loader that loads it, in another process, gives the rest of that epoch first and then the epochs after
    it. A state that was saved at the end of an epoch continues with the next one.

    >>> import asyncdata as ad
    >>> from asyncdata.integrations.loader import Loader
    >>> def loader():
    ...     return Loader(ad.Dataset.range(8).shuffle(seed=1).batch(2))
    >>> never_stopped = loader()
    >>> epochs = [[batch.tolist() for batch in never_stopped] for _ in range(2)]
    >>> stopped = loader()
    >>> for batch in stopped:
    ...     break
    >>> state = stopped.state_dict()
    >>> went_on = loader()
    >>> went_on.load_state_dict(state)
    >>> [batch.tolist() for batch in went_on] == epochs[0][1:]
    True
    >>> [batch.tolist() for batch in went_on] == epochs[1]
    True
    """

    def __init__(self, dataset: Dataset[Any], convert: Callable[[Any], T] = lambda batch: batch) -> None:
        self.dataset = dataset
        self._convert = convert
        self._latest: LoaderIterator[T] | None = None

    @property
    def _current(self) -> LoaderIterator[T]:
        """The epoch that was handed out last, or the one that will be handed out next."""
        return self._latest or self._begin(self.dataset.iterate())

    def _begin(self, batches: DatasetIterator[Any], resumed: bool = False) -> LoaderIterator[T]:
        self._latest = LoaderIterator(self.dataset, batches, self._convert, resumed)
        return self._latest

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, also where one goes on in its middle."""
        return len(self.dataset)

    def __bool__(self) -> bool:
        return True

    @property
    def epoch(self) -> int:
        """The number of the epoch that is being read; once it has been read to its end, of the next one.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> loader = Loader(ad.Dataset.range(8).batch(2))
        >>> first = loader.epoch
        >>> for batch in loader:
        ...     pass
        >>> first, loader.epoch
        (0, 1)
        """
        return self._current.epoch + self._current.ended

    def __iter__(self) -> LoaderIterator[T]:
        """Return the next epoch, or one that was handed out already if nothing of it was read."""
        latest, caller = self._latest, caller_of(currentframe())
        if latest is None:
            return self._begin(self.dataset.iterate(epoch=epoch_to_begin(caller)))
        if latest.begun or (latest.resumed and latest.state_dict()["delivered"] and was_last_batch(caller)):
            return self._begin(self.dataset.iterate())
        return latest

    def __aiter__(self) -> LoaderIterator[T]:
        return iter(self)

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be number `epoch`: from its beginning, or if a state of it was loaded, from there.

        If that was the state of its end, the iteration is empty, as nothing of the epoch is left.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> loader = Loader(ad.Dataset.range(8).shuffle(seed=1).batch(2))
        >>> for epoch in range(loader.epoch, 3):
        ...     loader.set_epoch(epoch)
        ...     for batch in loader:
        ...         pass
        """
        check_count("set_epoch", "epoch", epoch, 0)
        if self._current.begun or self._current.epoch != epoch:
            self._begin(self.dataset.iterate(epoch=epoch))
        self._current.resumed = False

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the training, as JSON knows it: between any two batches, also after `close`.

        It is what `DatasetIterator.state_dict` returns, and `Dataset.iterate(state=)` continues from it too. Where
        Lightning or accelerate asks in several processes, which save what the first returns, it has the states of all.
        `torch.distributed.checkpoint` is given the same as one text.
        """
        caller = caller_of(currentframe())
        return gathered_state(self._current.state_dict(batches_ahead(caller)), caller)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the next iteration where the loader stood that gave `state`; `ResumeError` if it read another
        pipeline."""
        batches = self.dataset.iterate(state=own_state(state))
        if is_end(batches.state_dict(), self.dataset.cardinality()):
            batches = self.dataset.iterate()
        self._begin(batches, resumed=True)

    def close(self) -> None:
        """End what reads ahead for the epoch that was begun, and wait until it has ended."""
        self._current.close()

    async def aclose(self) -> None:
        """End what reads ahead for the epoch that was begun, without blocking the event loop."""
        await self._current.aclose()

    def __repr__(self) -> str:
        return f"<Loader of {self.dataset.plan}, epoch {self.epoch}>"


def caller_of(frame: FrameType | None) -> FrameType | None:
    return None if frame is None else frame.f_back


def is_end(state: Mapping[str, Any], cardinality: int) -> bool:
    """Return whether a state says that nothing of its epoch is left."""
    return state["position"] == END or (not state.get("dealt") and state["delivered"] == cardinality)

"""Loader: a dataset for training loops and trainers, which knows its position in the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import currentframe
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

from asyncdata.graph.node import check_count
from asyncdata.integrations.even_steps import EvenSteps, agreed_epoch
from asyncdata.integrations.gather_state import gathered_state, own_state
from asyncdata.integrations.lightning import (
    batches_ahead,
    caller_of,
    epoch_to_begin,
    is_within_epoch,
    reloaded_epoch,
    was_last_batch,
)
from asyncdata.integrations.tensors import to_tensors
from asyncdata.iterator import DatasetIterator, state_before_latest
from asyncdata.runtime.tickets import END
from asyncdata.statistics.bottleneck import Bottleneck
from asyncdata.statistics.statistics import Statistics
from asyncdata.system.closing import Closable
from asyncdata.system.optional_packages import require

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset

__all__ = ("Loader", "LoaderIterator", "loader_for")

T = TypeVar("T")
F = TypeVar("F")

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
        """Record that a batch is requested; return whether it is the first one after a state was loaded.

        If that state was taken at the end of an epoch, the next epoch must begin.
        """
        resumed, self.begun, self.resumed = self.resumed, True, False
        return resumed

    def state_dict(self, ahead: int = 0) -> dict[str, Any]:
        """Return what has been delivered, as `DatasetIterator.state_dict` does; without the latest batch if `ahead`."""
        return state_before_latest(self._batches) if ahead else self._batches.state_dict()

    def skip(self, count: int) -> None:
        """Leave out the next batches: see `DatasetIterator.skip`."""
        self._batches.skip(count)

    def set_weights(self, weights: Mapping[str, float] | Sequence[float]) -> None:
        """Change the weights of a mixture from the next batch on: see `DatasetIterator.set_weights`."""
        self._batches.set_weights(weights)

    def skip_steps(self, steps: range) -> None:
        """Leave out steps by their numbers: see `DatasetIterator.skip_steps`."""
        self._batches.skip_steps(steps)

    def stats(self) -> Statistics:
        """Return the statistics of this epoch so far: see `DatasetIterator.stats`."""
        return self._batches.stats()

    def monitor(self) -> Callable[[], Statistics]:
        """Return a function that returns the statistics, for observers: see `DatasetIterator.monitor`."""
        return self._batches.monitor()

    def bottleneck(self) -> Bottleneck:
        """Return which step limits the pipeline, and what to do: see `DatasetIterator.bottleneck`."""
        return self._batches.bottleneck()

    def close(self) -> None:
        """End the pipeline and wait until it has ended; a state can still be asked for."""
        self._batches.close()

    async def aclose(self) -> None:
        """End the pipeline and wait until it has ended, without blocking the event loop."""
        await self._batches.aclose()


class Loader(Closable, Generic[T]):
    """Batches for a training loop, one epoch for each `for`, and the position in the training: see `Dataset.loader`.

    The state is that of the current epoch. It counts the batches that the loop received, not those that were read
    ahead. A loader that loads it, in another process, first gives the rest of that epoch, and then the later epochs.
    A state that was saved at the end of an epoch resumes with the next one.

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
        self._ended: LoaderIterator[T] | None = None  # at the loaded state, if that is the end of its epoch

    @property
    def _current(self) -> LoaderIterator[T]:
        """The epoch that was returned last, or the one that will be returned next."""
        return self._latest or self._begin(self.dataset.iterate())

    def _begin(self, batches: DatasetIterator[Any], resumed: bool = False) -> LoaderIterator[T]:
        self._latest, self._ended = LoaderIterator(self.dataset, batches, self._convert, resumed), None
        return self._latest

    def __len__(self) -> int:
        """Return the number of batches of a complete epoch, even if the current one resumes in the middle."""
        return len(self.dataset)

    def __bool__(self) -> bool:
        return True

    @property
    def epoch(self) -> int:
        """The number of the current epoch; after its end, the number of the next one.

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
        """Return the next epoch, or the one that was returned before if nothing of it was read."""
        latest, caller = self._latest, caller_of(currentframe())
        if self._ended is not None and not self._ended.begun and is_within_epoch(caller):
            return self._ended  # the other loaders of that epoch have not ended
        if latest is None:
            return self._begin(self.dataset.iterate(epoch=epoch_to_begin(caller)))
        if latest.begun and not latest.ended and reloaded_epoch(caller) == latest.epoch:
            return self._begin(self.dataset.iterate(epoch=latest.epoch))
        if latest.begun or (latest.resumed and latest.state_dict()["delivered"] and was_last_batch(caller)):
            return self._begin(self.dataset.iterate())
        return latest

    def __aiter__(self) -> LoaderIterator[T]:
        return iter(self)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next iteration. It begins at its start, or at a loaded state of that epoch.

        If that state was taken at the end of the epoch, the iteration is empty, because nothing of the epoch is left.

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
        self._current.resumed, self._ended = False, None

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the training as JSON values: between any two batches, also after `close`.

        It is a state of `DatasetIterator.state_dict`, and `Dataset.iterate(state=)` resumes from it too. Lightning and
        accelerate save what the first of several processes returns: for them it has the states of all processes.
        `torch.distributed.checkpoint` gets the same as one text.
        """
        caller = caller_of(currentframe())
        current = self._current
        if self._ended is not None and not current.begun:  # the other ranks may not have ended that epoch
            current = self._ended
        return gathered_state(current.state_dict(batches_ahead(caller)), caller)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state` in the next iteration; `ResumeError` if it is of another pipeline."""
        batches = self.dataset.iterate(state=own_state(state))
        ended = None
        if is_end(batches.state_dict(), self.dataset.cardinality()):
            ended = LoaderIterator(self.dataset, batches, self._convert)
            batches = self.dataset.iterate()
        self._begin(batches, resumed=True)
        self._ended = ended

    def state_before(self, step: int, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the state before a step of an epoch, from the log of `Options(record=)`: see `Dataset.state_before`.

        Load it to go back there. It is that of this process alone.

        >>> import pathlib, tempfile
        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> log = pathlib.Path(tempfile.mkdtemp(), "run.jsonl")
        >>> loader = Loader(ad.Dataset.range(8).batch(2).with_options(ad.Options(record=log)))
        >>> for batch in loader:
        ...     pass
        >>> loader.load_state_dict(loader.state_before(2))
        >>> [batch.tolist() for batch in loader]
        [[4, 5], [6, 7]]
        """
        return self.dataset.state_before(step, epoch=epoch)

    def skip(self, count: int) -> None:
        """Leave out the next `count` batches of the current epoch: see `DatasetIterator.skip`; the state counts them.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> loader = Loader(ad.Dataset.range(8).batch(2))
        >>> loader.skip(3)
        >>> [batch.tolist() for batch in loader]
        [[6, 7]]
        """
        self._current.skip(count)

    def set_weights(self, weights: Mapping[str, float] | Sequence[float]) -> None:
        """Change the weights of a mixture from the next batch of the current epoch on: see
        `DatasetIterator.set_weights`.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> parts = {"web": ad.Dataset.range(4), "code": ad.Dataset.range(90, 94)}
        >>> loader = Loader(ad.Dataset.sample_from_datasets(parts, {"web": 1, "code": 0}).batch(2))
        >>> loader.set_weights({"web": 0, "code": 1})
        >>> [batch.tolist() for batch in loader]
        [[90, 91], [92, 93]]
        """
        self._current.set_weights(weights)

    def skip_steps(self, steps: range) -> None:
        """Leave out the batches of the current epoch with these numbers, from 0: see `DatasetIterator.skip_steps`.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> loader = Loader(ad.Dataset.range(8).batch(2))
        >>> loader.skip_steps(range(1, 3))
        >>> [batch.tolist() for batch in loader]
        [[0, 1], [6, 7]]
        """
        self._current.skip_steps(steps)

    @overload
    def even_steps(self, fill: None = None, group: Any = None) -> EvenSteps[T | None]: ...
    @overload
    def even_steps(self, fill: F, group: Any = None) -> EvenSteps[T | F]: ...

    def even_steps(self, fill: Any = None, group: Any = None) -> EvenSteps[Any]:
        """Return the next epoch in as many steps on all ranks: one without a batch gets `fill` until none has any.

        So no rank waits in an all-reduce for one that has ended, and every batch is given. As `fill` give a batch that
        adds nothing to the loss (all labels -100, a mask of zeros), which takes part in each step's collectives. Before
        each step all ranks of `group` (PyTorch's, the default one) reduce one number, 0.1 ms with Gloo: all must read
        all steps, or stop at the same one. Without `torch.distributed`, and with one process, it is the loader itself.
        Ranks that resume from states of one checkpoint agree on the epoch; `PlanError` where these differ.

        >>> import torch  # doctest: +SKIP
        >>> import asyncdata as ad
        >>> batches = ad.Dataset.range(6).batch(4).loader()  # doctest: +SKIP
        >>> for batch in batches.even_steps(fill=torch.tensor([-100])):  # doctest: +SKIP
        ...     print(batch)
        tensor([0, 1, 2, 3])
        tensor([4, 5])
        """
        batches = iter(self)
        ended = self._ended if self._ended is not None and not self._ended.begun else None
        first = agreed_epoch(batches.epoch, None if ended is None else ended.epoch, group)
        if ended is not None and batches.epoch != first:  # others have not ended that epoch
            batches = ended
        batches.resumed = False  # one that has nothing left of it begins no other epoch
        return EvenSteps(batches, fill, group)

    def stats(self) -> Statistics:
        """Return the statistics of the current epoch so far, until the next one begins: print them.

        See `DatasetIterator.stats`.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> loader = Loader(ad.Dataset.range(8).batch(2))
        >>> for batch in loader:
        ...     pass
        >>> loader.stats().elements
        4
        """
        return self._current.stats()

    def monitor(self) -> Callable[[], Statistics]:
        """Return a function that returns the statistics of the current epoch, for observers such as the dashboard.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> loader = Loader(ad.Dataset.range(8).batch(2))
        >>> stats = loader.monitor()
        >>> for batch in loader:
        ...     pass
        >>> stats().elements
        4
        """
        return self._current.monitor()

    def bottleneck(self) -> Bottleneck:
        """Return which step limits the pipeline in the current epoch, and what to do: print it.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> print(Loader(ad.Dataset.range(8).batch(2)).bottleneck())
        nothing was read yet: read some elements first.
        """
        return self._current.bottleneck()

    def close(self) -> None:
        """End the pipeline of the current epoch, and wait until it has ended.

        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> loader = Loader(ad.Dataset.range(8).batch(2))
        >>> for batch in loader:
        ...     break
        >>> loader.close()
        >>> loader.state_dict()["delivered"]
        1
        """
        self._current.close()

    async def aclose(self) -> None:
        """End the pipeline of the current epoch, without blocking the event loop.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> from asyncdata.integrations.loader import Loader
        >>> async def main():
        ...     async with Loader(ad.Dataset.range(8).batch(2)) as batches:  # calls `aclose` at its end
        ...         async for batch in batches:
        ...             return batch.tolist()
        >>> asyncio.run(main())
        [0, 1]
        """
        await self._current.aclose()

    def __repr__(self) -> str:
        return f"<Loader of {self.dataset.plan}, epoch {self.epoch}>"


INSTEAD: Final = {
    "batch_size": ".batch(n).loader(), or padded_batch, ragged_batch",
    "shuffle": ".shuffle().batch(n).loader()",
    "sampler": ".shuffle(), or the dataset of its numbers: see docs/pytorch.md",
    "batch_sampler": ".bucket_by_sequence_length(...) or .group_by_window(...)",
    "num_workers": ".map(fn, num_parallel_calls=n) for threads, with executor='process' for processes",
    "collate_fn": ".list_batch(n).map(fn), or .padded_batch(n), .ragged_batch(n)",
    "pin_memory": ".loader(device='cuda'), which copies from pinned memory",
    "pin_memory_device": ".loader(device='cuda'), which copies from pinned memory",
    "drop_last": ".batch(n, drop_remainder=True)",
    "timeout": "asyncdata.with_timeout(fn, seconds) around the function of a map",
    "worker_init_fn": "nothing: set up in the function that needs it",
    "multiprocessing_context": "nothing: workers are never forked",
    "generator": "seed= of shuffle and of map(rng=True)",
    "prefetch_factor": ".prefetch(n), or nothing: a pipeline reads ahead by itself",
    "persistent_workers": "nothing: workers stay",
    "in_order": ".map(fn, num_parallel_calls=n, deterministic=False)",
}
"""What a pipeline has in place of each argument of DataLoader."""


def loader_for(dataset: Dataset[Any], device: Any, of_torch: Mapping[str, object]) -> Loader[Any]:
    """Return the loader of a dataset: of tensors, or of what is copied to a device."""
    refuse_of_torch(of_torch)
    if device is not None:
        return Loader(dataset.prefetch_to_device(device))
    require("torch", "loader()")
    return Loader(dataset, to_tensors)


def refuse_of_torch(arguments: Mapping[str, object]) -> None:
    """Raise for arguments that only PyTorch's DataLoader has, and say what to write instead."""
    for name in arguments:
        instead = INSTEAD.get(name)
        if instead is None:
            raise TypeError(f"loader() has no argument {name!r}: it takes only device=")
        raise TypeError(
            f"loader({name}=) is DataLoader's; a pipeline has {instead}. Or keep your dataset and its arguments, with "
            "from asyncdata.torch import DataLoader"
        )


def is_end(state: Mapping[str, Any], cardinality: int) -> bool:
    return state["position"] == END or (not state.get("dealt") and state["delivered"] == cardinality)

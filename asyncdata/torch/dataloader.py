"""DataLoader: the arguments of PyTorch's, on worker processes of this package, and a state that resumes exactly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import index
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, cast

from asyncdata.devices.choice import kind_of
from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.process.pool import ONCE
from asyncdata.graph.node import check_count
from asyncdata.observe.explanation import Explanation
from asyncdata.observe.plan_picture import Box, boxes_of
from asyncdata.options import Options
from asyncdata.statistics.bottleneck import Bottleneck
from asyncdata.statistics.statistics import Statistics
from asyncdata.statistics.table import memory
from asyncdata.torch.epoch import VERSION, Epoch, InlineEpoch, WorkerEpoch, position_from_json, state_before_first
from asyncdata.torch.epoch_meter import EpochMeter
from asyncdata.torch.held_generators import HeldGenerators
from asyncdata.torch.index_batches import BatchSampler
from asyncdata.torch.internals import Base, base_fields, check_supported, pinned, pins
from asyncdata.torch.sampler_state import SamplerState, attributes_of, is_within
from asyncdata.torch.torchdata_states import is_of_torchdata, state_of_torchdata
from asyncdata.torch.worker_process import LoaderWorker, workers_of
from asyncdata.torch.worker_run import RunSetup, WorkerPosition, held_generators

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers have it; typing's takes a default from Python 3.13 on

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ("DataLoader",)


class DataLoader(Base, Generic[T]):
    """PyTorch's DataLoader: the same arguments and batches; and its position can be saved between any two of them.

    With `num_workers=0` batches are made where the loop runs, when it asks for them. Else each worker is a process that
    makes every n-th batch, and draws the random numbers that a worker of PyTorch's would draw. With a `device`, such as
    `"cuda"`, batches come on it; those of workers are copied ahead. With `record`, the file or object of
    `Options(record=)`, each epoch logs the indices of its batches. See docs/pytorch.md.

    >>> from asyncdata.torch import DataLoader  # doctest: +SKIP
    >>> loader = DataLoader(range(6), batch_size=2, shuffle=True)  # doctest: +SKIP
    >>> for batch in loader:  # doctest: +SKIP
    ...     state = loader.state_dict()
    """

    batch_size: Any
    batch_sampler: Any
    sampler: Any

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], T] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: Any = None,
        record: str | PathLike[str] | None = None,
    ) -> None:
        cast("Any", super()).__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            index(num_workers),
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if batch_sampler is None and self.batch_sampler is not None:
            self.__dict__["batch_sampler"] = BatchSampler(self.sampler, self.batch_size, self.drop_last)
        if device is not None and kind_of(device) == "jax":
            raise TypeError(
                f"device= must be PyTorch's, got {device!r:.80}; Dataset.loader(device=) takes those of JAX"
            )
        self.device = device
        self.record = Options(record=record).record or None
        check_supported(self)
        self._workers: tuple[tuple[int, bool], list[LoaderWorker]] | None = None
        self._setup: RunSetup | None = None  # of workers that stay
        self._latest: Epoch[T] | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._skipped = 0
        self.held: HeldGenerators | None = None
        """The generators that the dataset holds, without workers."""
        self.loaded_sampler: SamplerState | None = None
        """The sampler, if a state between epochs was loaded."""
        self.sampler_attributes = attributes_of(self.index_sampler, dataset)

    def __iter__(self) -> Epoch[T]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin the next epoch, or continue in that of a loaded state."""
        return self._get_iterator()

    def _get_iterator(self) -> Any:
        """Return the next epoch; a loader that derives from PyTorch's may put something around it here."""
        return self._next_epoch()

    def _next_epoch(self) -> Epoch[T]:
        """Return the next epoch."""
        check_supported(self)  # a program may have set another value since
        number, loaded = self.epoch, self._loaded
        if self._latest is not None:
            self._latest.record("left")
        self._pins = self.device is None and pins(self)
        self._check_again(number)
        if self.persistent_workers and isinstance(self._latest, WorkerEpoch):
            self._latest.settle()
        if loaded is not None:
            self._setup = None
        latest: Epoch[T] = (WorkerEpoch if self.num_workers else InlineEpoch)(self, number, loaded, self._skipped)
        self._latest, self._loaded, self.loaded_sampler, self._skipped = latest, None, None, 0
        return latest

    def epoch_loaded_since(self, epoch: Epoch[T]) -> Epoch[T] | None:
        """Return the epoch of the state that was loaded after the latest one had begun, `None` if none was."""
        return self._next_epoch() if self._loaded is not None and epoch is self._latest else None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, such as one in a worker whose `collate_fn` is a method of the loader: no epoch."""
        here = ("_workers", "_setup", "_latest", "loaded_sampler", "held")
        return {**self.__dict__, **dict.fromkeys(here)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.sampler_attributes = attributes_of(self.index_sampler, self.dataset)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next iteration begins, or in which a loaded state continues."""
        if self._loaded is not None:
            return self._loaded["epoch"] + self._loaded["ended"]
        return 0 if self._latest is None else self._latest.epoch + 1

    def state_dict(self) -> dict[str, Any]:
        """Return the position as JSON values. The batch that the loop received last counts as trained, but for one that
        Lightning has read ahead."""
        if self._loaded is not None:
            return dict(self._loaded)
        return state_before_first(self) if self._latest is None else self._latest.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | None) -> None:
        """Continue from a state with the next iteration, or with the latest iterator if nothing was read from it.

        One of torchdata's `StatefulDataLoader` is taken, too, with the same dataset and arguments; it counts no epochs.
        An empty one, or none, changes nothing, with a warning. `ResumeError` if it is another's, or not enough.
        """
        if not state_dict:
            warnings.warn(
                "load_state_dict got no state, so nothing is resumed: leave the call out where there is no state",
                stacklevel=2,
            )
            return
        if is_of_torchdata(state_dict):
            loaded = state_of_torchdata(self, state_dict)
        elif state_dict.get("version") == VERSION:
            loaded = dict(state_dict)
        else:
            raise ResumeError(f"load_state_dict needs what state_dict of a DataLoader returned, got {state_dict!r:.80}")
        self._loaded, self.loaded_sampler = loaded, None
        if not is_within(loaded) and not loaded["lost"]:
            self.loaded_sampler = SamplerState(self)
            self.loaded_sampler.load_between(loaded)
            self._load_held(loaded)

    def _load_held(self, loaded: Mapping[str, Any]) -> None:
        """Set the generators that the dataset holds to a state between epochs."""
        if self.num_workers or loaded["num_workers"] or "positions" not in loaded:
            return
        self.held = self.held or held_generators(self)
        if self.held is not None:
            self.held.set(position_from_json(loaded["positions"][0]).held)

    def explain(self) -> Explanation:
        """Return the steps of the loader, a text and a picture with the measurements of the latest epoch.

        Notebooks show it as a picture, and `explain().plot("loader.svg")` writes that.
        """
        if self._latest is None:
            sampler, fetch = EpochMeter(type(self.index_sampler).__name__, self.num_workers, 0).labels
            boxes = [Box(sampler), Box(fetch, inputs=(0,))]
        else:
            stats = self.stats()
            boxes = boxes_of(stats, self.bottleneck().step)
        text = f"{' → '.join([box.label for box in boxes])} of {type(self.dataset).__name__}"
        text += f"; {copied}" if (copied := self.copied()) else ""
        return Explanation(text, (("loader", boxes),))

    def copied(self) -> str:
        """Return how much of what the dataset holds the latest epoch has copied for its workers, and how to have it in
        memory once; empty if that is nothing."""
        size = self._latest.copied if isinstance(self._latest, WorkerEpoch) else 0
        return f"{memory(size)} of the dataset are in shared memory, once for all workers, {ONCE}" if size else ""

    def stats(self) -> Statistics:
        """Return the statistics of the latest epoch so far: print them.

        They are those of a pipeline with two steps: the sampler, and a map whose function reads and collates a batch.
        """
        return self._measured().stats()

    def bottleneck(self) -> Bottleneck:
        """Return what limits the latest epoch, and what to do: print it."""
        return EpochMeter.bottleneck(self._measured().stats())

    def _measured(self) -> Epoch[T]:
        """Return the latest epoch."""
        if self._latest is None:
            raise PlanError("nothing was read yet: read some batches first")
        return self._latest

    def skip(self, count: int) -> None:
        """Leave out the next `count` batches: the next iteration begins behind them, and its state counts them.

        Of a map-style dataset only their indices are drawn; of an iterable one, and of an epoch that a loaded state
        continues, they are made and dropped.
        """
        self._skipped += check_count("skip", "count", count, 0)

    # for epochs

    @property
    def kind(self) -> int:
        """PyTorch's number for map-style or iterable datasets."""
        return base_fields(self)[0]

    def kept_seed(self, saved: Mapping[str, Any] | None) -> int | None:
        """Return the seed of workers that stay, `None` if the next epoch draws one."""
        if saved is None:
            return None if self._setup is None or not self.persistent_workers else self._setup.base_seed
        if is_within(saved):
            return None if saved["drew"] else saved["seed"]
        return saved["seed"] if self.persistent_workers and saved["begun"] else None

    @property
    def index_sampler(self) -> Any:
        """What gives the indices that are read at a time."""
        return base_fields(self)[1]

    @property
    def auto_collation(self) -> bool:
        """Whether a batch is made of several elements."""
        return self.batch_sampler is not None

    def setup(self, seed: int) -> RunSetup:
        """Return what workers need: the same one for all epochs if they are persistent."""
        if not self.persistent_workers:
            return RunSetup(self, seed)
        if self._setup is None:
            self._setup = RunSetup(self, seed)
        return self._setup

    def positions_of_workers(self) -> list[WorkerPosition]:
        """Return the positions of the workers at the start of an epoch: those that stay go on drawing numbers."""
        before, saved = self._latest, self._loaded
        if not self.persistent_workers:
            return [WorkerPosition()] * self.num_workers
        if saved is None:
            ended = before.latest if isinstance(before, WorkerEpoch) else []
        else:
            ended = [position_from_json(one) for one in saved["positions"]] if saved["ended"] else []
        return [WorkerPosition(0, one.states, held=one.held) for one in ended] or [WorkerPosition()] * self.num_workers

    def workers(self) -> list[LoaderWorker]:
        """Return the worker processes, which stay; other loaders use the same ones, unless the user sets these up, or
        limits the time that a batch may take, in which batches of others would count."""
        own = self.persistent_workers or self.worker_init_fn is not None or self.timeout > 0
        wanted = self.num_workers, own
        if self._workers is None or wanted != self._workers[0]:
            self._workers = wanted, workers_of(*wanted)
        return self._workers[1]

    def finished(self, data: Any) -> Any:
        """Return a batch as the loop gets it."""
        return pinned(data) if self._pins else data

    def _check_again(self, number: int) -> None:
        """Raise if a second epoch is to begin of a sampler that can be iterated only once, such as a generator."""
        samplers = [self.index_sampler, getattr(self.index_sampler, "sampler", None)]
        once = any(isinstance(one, Iterator) and not hasattr(cast("Any", one), "__dict__") for one in samplers)
        if number and self._latest is not None and once:
            raise PlanError(
                f"epoch {number} cannot begin: the sampler is an iterator, which can be read only once; give an "
                "iterable that starts again, such as a list or a Sampler"
            )

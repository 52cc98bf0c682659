"""Transformations: one short method per transformation, with tf.data's names, arguments and defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from asyncdata.errors import PlanError
from asyncdata.options import AUTOTUNE, Options
from asyncdata.plan import Node, check_arguments, check_count, check_integer, check_parallel
from asyncdata.runtime.executors import Call
from asyncdata.structure import same_structure
from asyncdata.transforms.batch import Batch, Unbatch
from asyncdata.transforms.cache import Cache
from asyncdata.transforms.cardinality import AssertCardinality, PadToCardinality
from asyncdata.transforms.distinct import Distinct
from asyncdata.transforms.filter import Filter, Predicate
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.ignore_errors import Budget, IgnoreErrors
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.map import Map, call_for
from asyncdata.transforms.map_batches import MapBatches
from asyncdata.transforms.pack_sequences import PackSequences
from asyncdata.transforms.permute import shuffled
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.rate_limit import RateLimit
from asyncdata.transforms.repeat import Concatenate, Repeat
from asyncdata.transforms.select import Skip, Take
from asyncdata.transforms.shard import Shard
from asyncdata.transforms.zip import Enumerate

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset

__all__ = ("Transformations", "dataset_for")

T = TypeVar("T")
U = TypeVar("U")
Executor = Literal["inline", "thread"]


class Transformations(Generic[T]):
    """What a dataset can be made into. Each method returns a new dataset and starts nothing."""

    _plan: Node
    _options: Options

    def _next(self, plan: Node, options: Options | None = None) -> Dataset[Any]:
        """Return the dataset with another plan."""
        raise NotImplementedError

    @overload
    def map(
        self,
        map_func: Callable[..., Awaitable[U]],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        executor: Executor | int | None = None,
        rng: bool = False,
        seed: int | None = None,
        batch: int | None = None,
    ) -> Dataset[U]: ...

    @overload
    def map(
        self,
        map_func: Callable[..., U],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        executor: Executor | int | None = None,
        rng: bool = False,
        seed: int | None = None,
        batch: int | None = None,
    ) -> Dataset[U]: ...

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        executor: Executor | int | None = None,
        rng: bool = False,
        seed: int | None = None,
        batch: int | None = None,
    ) -> Dataset[Any]:
        """Call a function on each element; a tuple is unpacked into arguments.

        A plain function is called in order on the engine's thread, or with `num_parallel_calls` by that many threads.
        A coroutine function is awaited on the engine's loop, with `num_parallel_calls` that many at once; what it
        uses must not belong to another loop (`Options(placement="current")` runs everything on yours).
        Order is kept unless `deterministic=False`. An exception is raised in the element's place.

        With `rng=True` the function is also given `rng=`, a `numpy.random.Generator` of the element's own: the same
        for the same `seed`, element and epoch, whatever the parallelism, the order or how often the run was resumed.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).map(lambda x: x + 1, num_parallel_calls=2))
        [1, 2, 3]
        >>> list(ad.Dataset.range(3).map(lambda x, rng: x + rng.integers(10), rng=True, seed=1))
        [np.int64(6), np.int64(2), np.int64(9)]

        With `batch=n` the function is given batches of up to `n` elements, stacked as by `Dataset.batch`, and returns
        as many results, along the first axis of arrays or as a list; elements come out as they went in, in order. A
        row's result may not depend on the other rows: where the function fails, elements are tried one by one, and
        those that fail alone are raised in their places.

        >>> list(ad.Dataset.range(3).map(lambda x: x / 2, batch=256))
        [np.float64(0.0), np.float64(0.5), np.float64(1.0)]
        """
        if batch is not None:
            return self._next(
                MapBatches.of(self._plan, batched_for(map_func, rng, seed), batch, num_parallel_calls, executor)
            )
        call = call_for(self._plan, map_func, rng, seed)
        return self._next(Map.of(self._plan, call, num_parallel_calls, deterministic, executor))

    def filter(
        self,
        predicate: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset[T]:
        """Keep the elements for which `predicate` is true. It is called, or awaited, as the function of `map` is.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(6).filter(lambda x: x % 2))
        [1, 3, 5]
        """
        return self._next(Filter.of(self._plan, Predicate(predicate), num_parallel_calls, deterministic))

    def distinct(self, key: Callable[..., Any] | None = None, max_keys: int | None = None) -> Dataset[T]:
        """Keep the first element of each key: what `key(element)` returns, else the element itself.

        Keys are numbers, strings, bytes, arrays, `None`, tuples and dicts of these; what is equal is the same key. Of
        each one 12 bytes are remembered, and told by a state. With `max_keys` the oldest keys are forgotten, for
        streams whose repetitions are not far apart.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable(["a", "b", "A", "a"]).distinct(key=str.lower))
        ['a', 'b']
        """
        return self._next(Distinct.of(self._plan, key, max_keys))

    def enumerate(self, start: int = 0) -> Dataset[tuple[int, T]]:
        """Pair each element with its number, counted from `start`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable("ab").enumerate())
        [(0, 'a'), (1, 'b')]
        """
        return self._next(Enumerate(self._plan, check_integer("enumerate", "start", start)))

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset[Any]:
        """The elements of the dataset that `map_func` returns for each element, one dataset after the other.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).flat_map(lambda n: ad.Dataset.range(n)))
        [0, 0, 1]
        """
        return self._next(FlatMap(self._plan, inner_call("flat_map", map_func, self._plan)))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset[Any]:
        """`block_length` elements in turn from each of `cycle_length` datasets that `map_func` returns.

        With `num_parallel_calls` the open datasets are read at once, each by its own task, and the order is the same;
        `deterministic=False` gives elements as they come. `cycle_length` is 16 unless given, on every machine.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(1, 4).interleave(lambda x: ad.Dataset.from_tensors(x).repeat(2), cycle_length=2)
        >>> [int(x) for x in ds]
        [1, 2, 1, 2, 3, 3]
        """
        call = inner_call("interleave", map_func, self._plan)
        return self._next(
            Interleave.of(self._plan, call, cycle_length, block_length, num_parallel_calls, deterministic)
        )

    def concatenate(self, dataset: Dataset[Any]) -> Dataset[Any]:
        """All elements of this dataset, then all of the other.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(2).concatenate(ad.Dataset.range(1)))
        [0, 1, 0]
        """
        other = dataset_for("concatenate", dataset)
        check_structures(self._plan.signature, other.plan.signature)
        return self._next(Concatenate(self._plan, other.plan), self._options.merge(other.options()))

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset[Any]:
        """Stack every `batch_size` consecutive elements into one, leaves along a new first axis.

        Arrays and numbers become arrays of NumPy's dtype, anything else an object array. The last batch may be shorter,
        or is dropped with `drop_remainder`. A failed element is raised before the batch it would have been in.
        Batches are stacked in order whatever `num_parallel_calls` and `deterministic` say.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(5).batch(2, drop_remainder=True))
        [array([0, 1]), array([2, 3])]
        """
        check_parallel("batch", num_parallel_calls)
        return self._next(Batch(self._plan, check_count("batch", "batch_size", batch_size, 1), drop_remainder))

    def unbatch(self) -> Dataset[Any]:
        """Split each element along the first axis of its leaves.

        >>> import asyncdata as ad
        >>> import numpy as np
        >>> [int(x) for x in ad.Dataset.from_tensors(np.arange(3)).unbatch()]
        [0, 1, 2]
        """
        return self._next(Unbatch(self._plan))

    def pack_sequences(
        self,
        length: int,
        *,
        strategy: Literal["first_fit", "concat"] = "first_fit",
        overlong: Literal["error", "truncate", "split"] = "error",
        num_packing_bins: int = 64,
        pad_value: Any = 0,
        drop_remainder: bool = False,
    ) -> Dataset[dict[str, Any]]:
        """Put sequences of tokens side by side into rows of `length`, so that little of a batch is padding.

        An element is a 1-D array or list of tokens, or a dict of several that are equally long. A row is a dict:
        `tokens`, or the names of the element's parts; `segment_ids`, which tells by 1, 2, ... whose each token is, 0
        where it is padding; and `positions`, each token's place in its sequence. With these an attention mask keeps
        sequences from seeing each other, and packing changes nothing but speed (Krell et al. 2021, arXiv:2107.02027).

        "first_fit" puts a sequence whole into the first of `num_packing_bins` open rows that has room. A row goes out
        when it is full, or as the oldest when another one must be opened. What is longer than a row is an error in its
        place, truncated, or split. "concat" fills one row after the other to its end, and splits a sequence there.
        Empty sequences are left out. The last rows may have more padding, or are dropped with `drop_remainder`.

        >>> import asyncdata as ad
        >>> for row in ad.Dataset.from_iterable([[5, 6, 7], [8, 9, 10], [11]]).pack_sequences(4):
        ...     print(row["tokens"], row["segment_ids"], row["positions"])
        [ 5  6  7 11] [1 1 1 2] [0 1 2 0]
        [ 8  9 10  0] [1 1 1 0] [0 1 2 0]
        """
        packed = PackSequences(self._plan, length, strategy, overlong, num_packing_bins, pad_value, drop_remainder)
        return self._next(packed.checked())

    def shuffle(
        self, buffer_size: int | None = None, seed: int | None = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset[T]:
        """Give elements in random order, each chosen from a buffer of `buffer_size`; without one, from all of them.

        The same seed gives the same orders, another one each epoch unless `reshuffle_each_iteration=False`. Without a
        buffer nothing is held in memory and any place is as quick as the first, but the elements must be such as can
        be had in any order: a range, slices, a list, `from_source`, `TFRecordDataset(index=True)`, and what maps, takes
        or zips those; else `PlanError`. For other inputs a buffer as large as the dataset, or `UNKNOWN_CARDINALITY`,
        shuffles everything.

        >>> import asyncdata as ad
        >>> sorted(ad.Dataset.range(5).shuffle(3, seed=1))
        [0, 1, 2, 3, 4]
        >>> list(ad.Dataset.range(10**9).shuffle(seed=1).take(3))
        [37354210, 465257133, 36768346]
        """
        return self._next(shuffled(self._plan, buffer_size, seed, reshuffle_each_iteration))

    def repeat(self, count: int | None = None) -> Dataset[T]:
        """Run the dataset `count` times, for ever if `None` or -1.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(2).repeat(2))
        [0, 1, 0, 1]
        """
        times = -1 if count is None else check_count("repeat", "count", count, 0, (-1,))
        return self._next(Repeat(self._plan, times))

    def take(self, count: int) -> Dataset[T]:
        """Give the first `count` elements, all if -1.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.counter().take(2))
        [0, 1]
        """
        return self._next(Take(self._plan, check_count("take", "count", count, 0, (-1,))))

    def skip(self, count: int) -> Dataset[T]:
        """Leave out the first `count` elements, all if -1.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(4).skip(2))
        [2, 3]
        """
        return self._next(Skip(self._plan, check_count("skip", "count", count, 0, (-1,))))

    def shard(
        self,
        num_shards: int | None = None,
        index: int | None = None,
        *,
        drop_remainder: bool = False,
        pad_remainder: bool = False,
    ) -> Dataset[Any]:
        """Give every `num_shards`-th element, beginning with number `index`.

        Without arguments, this process's share: number and rank come from torch.distributed or JAX where they are set
        up, else from the variables of launchers (`WORLD_SIZE` and `RANK`, SLURM's, MPI's); `PlanError` if none knows.

        Some shares have one element more than others. With `drop_remainder` they are equal, and the last elements are
        left out; with `pad_remainder` they are made equal: each element is then a pair of itself and True, or of a copy
        of another one and False. Then no process waits for others at the end, if as much is made of each element: put
        `filter` and `flat_map` before `shard`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(7).shard(3, 1))
        [1, 4]
        >>> [list(ad.Dataset.range(3).shard(2, index, pad_remainder=True)) for index in range(2)]
        [[(0, True), (2, True)], [(1, True), (2, False)]]
        """
        return self._next(Shard.of(self._plan, num_shards, index, drop_remainder, pad_remainder))

    def cache(self) -> Dataset[T]:
        """Keep the elements of the first epoch in memory for the following ones; their arrays become read-only.

        What was read is kept when an epoch is left early, and the next one reads on from there. Put random
        augmentation and `shuffle` after it.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(3).map(print).cache()
        >>> for epoch in range(2):
        ...     _ = list(ds)
        0
        1
        2
        """
        return self._next(Cache(self._plan))

    def ignore_errors(
        self,
        log_warning: bool = False,
        *,
        max_errors: int | None = None,
        max_share: float | None = None,
        on_error: Callable[[Exception, Any], Any] | None = None,
    ) -> Dataset[T]:
        """Drop elements that failed, as many as `max_errors` and `max_share` of those seen allow; without them, all.

        An error that exceeds the budget is raised in its place, with a note that tells what was dropped; the next ones
        are too. The share is of 1,000 elements while fewer were seen. `on_error(error, ticket)` is called where an
        element is dropped; its ticket is its number in its source, or a path of such. With `log_warning` the logger
        `asyncdata` tells of each one. What a state does again is told again.

        >>> import asyncdata as ad
        >>> halves = ad.Dataset.range(3).map(lambda x: 1 // x)
        >>> list(halves.ignore_errors(on_error=lambda error, ticket: print(ticket, error)))
        0 integer division or modulo by zero
        [1, 0]
        """
        return self._next(IgnoreErrors.of(self._plan, Budget.of(max_errors, max_share), log_warning, on_error))

    def assert_cardinality(self, expected_cardinality: int) -> Dataset[T]:
        """Say how many elements there are, where the plan cannot tell; a `StageError` if there are more or fewer.

        It comes after the last of fewer elements, and instead of the first of those that are too many; where the plan
        knows better it is a `PlanError` right here. Failed elements count.

        >>> import asyncdata as ad
        >>> len(ad.Dataset.range(10).filter(lambda x: x % 2).assert_cardinality(5))
        5
        """
        return self._next(AssertCardinality.of(self._plan, expected_cardinality))

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Dataset[Any]:
        """Add elements of zeros until there are `cardinality`, and to each element whether it is a real one.

        A dict gets the mask under `mask_key`, anything else becomes a pair of itself and the mask. Zeros have shapes
        and types of the last element that did not fail. A `StageError` if there are more elements than that.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_tensor_slices({"x": [7, 8]}).pad_to_cardinality(3))
        [{'x': np.int64(7), 'valid': True}, {'x': np.int64(8), 'valid': True}, {'x': np.int64(0), 'valid': False}]
        """
        return self._next(PadToCardinality.of(self._plan, cardinality, mask_key))

    def prefetch(self, buffer_size: int | None = None) -> Dataset[T]:
        """Read up to `buffer_size` elements ahead while the consumer works; AUTOTUNE (or `None`) finds how many.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).prefetch(ad.AUTOTUNE))
        [0, 1, 2]
        """
        size = AUTOTUNE if buffer_size is None else buffer_size
        return self._next(Prefetch(self._plan, check_count("prefetch", "buffer_size", size, 0, (AUTOTUNE,))))

    def rate_limit(self, per_second: float, burst: int = 1) -> Dataset[T]:
        """Read at most `per_second` elements a second, evenly, or up to `burst` at once after a pause.

        Put it before what it is to spare: the requests of a `map` after it are as many. The first `burst` elements of
        each iteration come at once, also of one that goes on from a state.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).rate_limit(1000))
        [0, 1, 2]
        """
        return self._next(RateLimit.of(self._plan, per_second, burst))

    def apply(self, transformation_func: Callable[[Dataset[T]], Dataset[U]]) -> Dataset[U]:
        """Return `transformation_func(self)`, so that transformations of your own can stand in the chain.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(4).apply(lambda ds: ds.filter(lambda x: x > 1)))
        [2, 3]
        """
        return dataset_for("apply", transformation_func(self._next(self._plan)))

    def __or__(self, transformation_func: Callable[[Dataset[T]], Dataset[U]]) -> Dataset[U]:
        """Return `transformation_func(self)`, as `apply` does: `ds | augment | batches`."""
        return self.apply(transformation_func)

    def with_options(self, options: Options) -> Dataset[T]:
        """Return the dataset with `options` set; what is set later wins.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(3).with_options(ad.Options(deterministic=False)).options().deterministic
        False
        """
        return self._next(self._plan, self._options.merge(options_for(options)))

    def options(self) -> Options:
        """Return a copy of the options that are set."""
        return Options().merge(self._options)


def check_structures(first: Any, second: Any) -> None:
    """Raise `PlanError` if two datasets are known to have elements of different structures."""
    if first is None or second is None or same_structure(first, second):
        return
    raise PlanError(
        f"concatenate: elements of the first are {first}, of the second {second}; map one to the structure of the other"
    )


def inner_call(method: str, fn: Callable[..., Any], plan: Node) -> Call:
    """Return how a function that makes a dataset of an element is called."""
    call = Call(method, fn).prompt()
    check_arguments(call, plan)
    return call


def batched_for(fn: T, rng: bool, seed: int | None) -> T:
    """Return a function of batches, or raise `PlanError` for one that is to have random numbers of its element."""
    if rng or seed is not None:
        raise PlanError("map(batch=) hands the function no generator: rng= and seed= are for functions of one element")
    return fn


def dataset_for(method: str, value: Any) -> Dataset[Any]:
    """Return a dataset, or raise `PlanError` if it is none."""
    if not isinstance(value, Transformations):
        raise PlanError(f"{method} needs a Dataset, got {type(value).__name__}: {value!r:.60}")
    return cast("Dataset[Any]", value)


def options_for(value: Any) -> Options:
    if not isinstance(value, Options):
        raise PlanError(f"with_options needs an asyncdata.Options, got {value!r}")
    return value

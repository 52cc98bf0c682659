"""Transformations: one short method per transformation, with tf.data's names, arguments and defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from asyncdata.errors import PlanError
from asyncdata.options import AUTOTUNE, Options
from asyncdata.plan import Node, check_count, check_integer, check_parallel
from asyncdata.runtime.executors import Call
from asyncdata.transforms.batch import Batch, Unbatch
from asyncdata.transforms.cache import Cache
from asyncdata.transforms.filter import Filter, Predicate
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.map import Map, call_for
from asyncdata.transforms.pack import PackSequences
from asyncdata.transforms.padded import PaddedBatch, Padding
from asyncdata.transforms.permute import shuffled
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.repeat import Concatenate, Repeat
from asyncdata.transforms.scan import Scan
from asyncdata.transforms.select import Skip, Take
from asyncdata.transforms.shard import Shard
from asyncdata.transforms.take_while import TakeWhile
from asyncdata.transforms.token_count import BucketByTokenCount
from asyncdata.transforms.unique import Unique
from asyncdata.transforms.window import Window
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
        """
        call = call_for(self._plan, map_func, rng, seed)
        return self._next(Map.of(self._plan, call, num_parallel_calls, deterministic, executor))

    def filter(self, predicate: Callable[..., Any]) -> Dataset[T]:
        """Keep the elements for which `predicate` is true.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(6).filter(lambda x: x % 2))
        [1, 3, 5]
        """
        return self._next(Filter(self._plan, Predicate(predicate)))

    def scan(self, initial_state: Any, scan_func: Callable[[Any, T], Any]) -> Dataset[Any]:
        """Call `scan_func(state, element)`, which returns the next state and what is given in the element's place.

        A coroutine function is awaited. An element that failed, or that the function fails on, leaves the state as it
        is. A run goes on from a state of numbers, strings, bytes, arrays, and tuples, lists and dicts of these; of any
        other kind it is worked out again from the beginning.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(5).scan(0, lambda total, x: (total + x, total + x)))
        [0, 1, 3, 6, 10]
        """
        return self._next(Scan(self._plan, Call("scan", scan_func), initial_state))

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
        return self._next(FlatMap(self._plan, Call("flat_map", map_func)))

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
        call = Call("interleave", map_func)
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

    def padded_batch(
        self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False
    ) -> Dataset[Any]:
        """Stack every `batch_size` consecutive elements into one, arrays of different shapes filled up at their ends.

        `padded_shapes` is a structure like an element's with a shape for each leaf; where a size is `None`, and without
        shapes everywhere, it is that of the largest in the batch. A leaf that is larger is a `StructureError` in the
        batch's place. `padding_values` is one value for all leaves or such a structure; a value must be one of the
        leaf's dtype. `None` is zero, False, or the empty string.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable([[1], [2, 3, 4], [5, 6]]).padded_batch(2, padding_values=-1))
        [array([[ 1, -1, -1],
               [ 2,  3,  4]]), array([[5, 6]])]
        >>> list(ad.Dataset.from_iterable([[1], [2, 3]]).padded_batch(2, [4]))
        [array([[1, 0, 0, 0],
               [2, 3, 0, 0]])]
        """
        size = check_count("padded_batch", "batch_size", batch_size, 1)
        padding = Padding.of("padded_batch", padded_shapes, padding_values)
        return self._next(PaddedBatch.of(self._plan, size, drop_remainder, padding))

    def unbatch(self) -> Dataset[Any]:
        """Split each element along the first axis of its leaves.

        >>> import asyncdata as ad
        >>> import numpy as np
        >>> [int(x) for x in ad.Dataset.from_tensors(np.arange(3)).unbatch()]
        [0, 1, 2]
        """
        return self._next(Unbatch(self._plan))

    def window(
        self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> Dataset[Any]:
        """Give every `size` elements as a dataset of their own; the next one begins `shift` elements later.

        `shift` is `size` unless given; `stride` is the distance between members. The last windows may have fewer, or
        are left out with `drop_remainder`. Of elements with parts (tuples, dicts) a window is a structure of datasets,
        one for each part. An element that failed is one, and is raised by each window that has it.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(5).window(3, shift=1, drop_remainder=True).flat_map(lambda window: window.batch(3)))
        [array([0, 1, 2]), array([1, 2, 3]), array([2, 3, 4])]
        >>> [list(window) for window in ad.Dataset.range(7).window(2, stride=3)]
        [[0, 3], [2, 5], [4], [6]]
        """
        size = check_count("window", "size", size, 1)
        step = size if shift is None else check_count("window", "shift", shift, 1)
        stride = check_count("window", "stride", stride, 1)
        return self._next(Window(self._plan, size, step, self._next, stride, bool(drop_remainder)))

    def pack_sequences(
        self,
        length: int,
        *,
        strategy: Literal["first_fit", "concat_then_split"] = "first_fit",
        open_rows: int | None = None,
        overlong: Literal["error", "truncate", "split"] | None = None,
        padding_values: Any = 0,
    ) -> Dataset[dict[str, Any]]:
        """Put sequences of tokens into rows of `length`, so that little of a batch is padding.

        Elements are arrays with one dimension, or dicts of such arrays of one length. A row is a dict: for each feature
        (`inputs` where elements have no names) its tokens, `<feature>_segment_ids`, which says for each token of which
        sequence it is, counted from 1, and 0 for padding, and `<feature>_positions`, where it stands in that sequence
        (in its part of it, if it was cut). `padding_values` is one value, or a dict with one for each feature.

        - `first_fit`: a sequence goes whole into the oldest of `open_rows` rows (64 unless given) that has room for it.
          If none has, the fullest is given out. One that is longer than a row is a `StructureError` in its place, or is
          cut off with `overlong="truncate"`, or goes into as many rows as it needs with `"split"`.
        - `concat_then_split`: sequences follow each other, and are cut where a row ends. Only the last row has padding.

        >>> import asyncdata as ad
        >>> sequences = ad.Dataset.from_iterable([[5, 6, 7], [1, 2], [3], [8, 9]])
        >>> for row in sequences.pack_sequences(4):
        ...     print(row["inputs"], row["inputs_segment_ids"], row["inputs_positions"])
        [5 6 7 3] [1 1 1 2] [0 1 2 0]
        [1 2 8 9] [1 1 2 2] [0 1 0 1]
        >>> for row in sequences.pack_sequences(3, strategy="concat_then_split", padding_values=-1):
        ...     print(row["inputs"], row["inputs_segment_ids"])
        [5 6 7] [1 1 1]
        [1 2 3] [1 1 2]
        [ 8  9 -1] [1 1 0]
        """
        return self._next(PackSequences.of(self._plan, length, strategy, open_rows, overlong, padding_values))

    def bucket_by_token_count(
        self,
        max_tokens: int,
        length_func: Callable[..., int] | None = None,
        buffer_size: int = 1000,
        *,
        overlong: Literal["error", "drop", "keep"] = "error",
        padding_values: Any = None,
    ) -> Dataset[Any]:
        """Batch elements of about one length, as many as fit: a batch has at most `max_tokens` tokens with its padding.

        `buffer_size` elements are read, sorted by `length_func` and given out, the shortest first; then the next are
        read. Shuffle before it, and the batches after it. The length is `len`, of all parts of an element, unless
        given. Elements are filled up to the longest as by `padded_batch`, with `padding_values`. One that is longer
        than `max_tokens` is a `StructureError` in its place, or is dropped, or kept as a batch of its own.

        >>> import asyncdata as ad
        >>> sequences = ad.Dataset.from_iterable([[1, 2, 3, 4], [5], [6, 7], [8], [9, 10, 11]])
        >>> for batch in sequences.bucket_by_token_count(8):
        ...     print(batch.tolist())
        [[5, 0], [8, 0], [6, 7]]
        [[9, 10, 11, 0], [1, 2, 3, 4]]
        """
        node = BucketByTokenCount.of(self._plan, max_tokens, length_func, buffer_size, overlong, padding_values)
        return self._next(node)

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

    def take_while(self, predicate: Callable[..., Any]) -> Dataset[T]:
        """Give the elements before the first for which `predicate` is false.

        It is not called for the elements behind that one. An element that failed, or that it fails on, is a failure in
        its place and ends nothing.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.counter().take_while(lambda x: x < 3))
        [0, 1, 2]
        """
        return self._next(TakeWhile(self._plan, Predicate(predicate, "take_while")))

    def unique(self) -> Dataset[T]:
        """Give each element once, where it comes first: numbers, strings, arrays and structures of them.

        Elements are the same that are equal and, if arrays, of one dtype. All that came are remembered.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable("abacab").unique())
        ['a', 'b', 'c']
        """
        return self._next(Unique(self._plan))

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

    def prefetch(self, buffer_size: int | None = None) -> Dataset[T]:
        """Read up to `buffer_size` elements ahead while the consumer works; AUTOTUNE (or `None`) finds how many.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).prefetch(ad.AUTOTUNE))
        [0, 1, 2]
        """
        size = AUTOTUNE if buffer_size is None else buffer_size
        return self._next(Prefetch(self._plan, check_count("prefetch", "buffer_size", size, 0, (AUTOTUNE,))))

    def apply(self, transformation_func: Callable[[Dataset[T]], Dataset[U]]) -> Dataset[U]:
        """Return `transformation_func(self)`, so that transformations of your own can stand in the chain.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(4).apply(lambda ds: ds.filter(lambda x: x > 1)))
        [2, 3]
        """
        return dataset_for("apply", transformation_func(self._next(self._plan)))

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


def dataset_for(method: str, value: Any) -> Dataset[Any]:
    """Return a dataset, or raise `PlanError` if it is none."""
    if not isinstance(value, Transformations):
        raise PlanError(f"{method} needs a Dataset, got {type(value).__name__}: {value!r:.60}")
    return cast("Dataset[Any]", value)


def options_for(value: Any) -> Options:
    if not isinstance(value, Options):
        raise PlanError(f"with_options needs an asyncdata.Options, got {value!r}")
    return value

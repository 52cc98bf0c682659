"""Transformations: one short method per transformation, with tf.data's names, arguments and defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import reduce
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Never, TypedDict, TypeVar, Unpack, cast, overload

from asyncdata.elements.element_types import Parts, T_co
from asyncdata.elements.validation import check_choice, check_flag
from asyncdata.errors import PlanError
from asyncdata.formats.record_limits import CACHED_RECORD_BYTES
from asyncdata.graph.node import Node, check_count, check_integer
from asyncdata.grouping import Grouping
from asyncdata.options import AUTOTUNE, Options
from asyncdata.transformation_arguments import answering, batched_for, cached, check_structures, inner_call, options_for
from asyncdata.transforms.filter import Filter, Predicate
from asyncdata.transforms.map import Map, call_for, check_synchronous, declared
from asyncdata.transforms.prefetch import Prefetch

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset
    from asyncdata.transforms.fields import Field
    from asyncdata.transforms.join import How, On

__all__ = ("Transformations", "dataset_for")

U = TypeVar("U")
Where = Literal["inline", "thread", "process"] | Executor


class MapOptions(TypedDict, total=False):
    """Further arguments of `map`."""

    executor: Where | int | None
    seed: int | None
    pure: bool
    keeps: Field | tuple[Field, ...] | None
    shrinks: bool


class Transformations(Grouping[T_co]):
    """The transformations of a dataset. Each method returns a new dataset and starts nothing."""

    _plan: Node
    _options: Options

    def _next(self, plan: Node, options: Options | None = None, *others: Dataset[Any]) -> Dataset[Any]:
        """Return the dataset that `plan` describes, made from this one and perhaps others."""
        raise NotImplementedError

    @overload
    def map(
        self: Transformations[Never],
        map_func: Callable[..., Awaitable[U]],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self: Transformations[Never],
        map_func: Callable[..., U],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        map_func: Callable[[T_co], Awaitable[U]],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        map_func: Callable[[T_co], U],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self: Transformations[tuple[*Parts]],
        map_func: Callable[[*Parts], Awaitable[U]],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self: Transformations[tuple[*Parts]],
        map_func: Callable[[*Parts], U],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        map_func: Callable[..., Awaitable[U]],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        *,
        rng: bool | Literal["torch"],
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        map_func: Callable[..., U],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        *,
        rng: bool | Literal["torch"],
        **options: Unpack[MapOptions],
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        *,
        batch: int | None,
        rng: bool | Literal["torch"] = False,
        vectorized: bool = False,
        **options: Unpack[MapOptions],
    ) -> Dataset[Any]: ...
    @overload
    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        *,
        vectorized: bool,
        rng: bool | Literal["torch"] = False,
        **options: Unpack[MapOptions],
    ) -> Dataset[Any]: ...

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        *,
        executor: Where | int | None = None,
        rng: bool | Literal["torch"] = False,
        seed: int | None = None,
        batch: int | None = None,
        pure: bool = False,
        vectorized: bool = False,
        keeps: Field | tuple[Field, ...] | None = None,
        shrinks: bool = False,
    ) -> Dataset[Any]:
        """Call a function on each element; a tuple is unpacked into arguments.

        A plain function is called in order on the engine's thread, or with `num_parallel_calls` by that many threads.
        A coroutine function is awaited on the engine's loop, with `num_parallel_calls` that many at once; what it
        uses must not belong to another loop (`Options(placement="current")` runs everything on yours).
        The order stays the same unless `deterministic=False`. An exception is raised in the element's place.

        `executor` says where a plain function is called: `"inline"` on the engine's thread; `"thread"`; `"process"` for
        Python code that would block all other threads, in one worker process per core unless `num_parallel_calls` says
        otherwise; or an executor of `concurrent.futures`, which you shut down yourself: of threads or processes, loky's
        and dask.distributed's too, but no `InterpreterPoolExecutor`. The function and what it uses are sent to the
        processes once; arrays come back in shared memory, writable. `num_parallel_calls=AUTOTUNE` finds out what is
        fastest, on the engine's thread or in threads; `executor=AUTOTUNE` also tries processes.
        `DatasetIterator.stats` shows what was chosen.

        With `rng=True` the function is also given `rng=`, a `numpy.random.Generator` for this element. It is the same
        for the same `seed`, element and epoch, whatever the parallelism or the order, and after a resume.
        With `rng="torch"` it is a `torch.Generator`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).map(lambda x: x + 1, num_parallel_calls=2))
        [1, 2, 3]
        >>> list(ad.Dataset.range(3).map(lambda x, rng: x + rng.integers(10), rng=True, seed=1))
        [np.int64(6), np.int64(2), np.int64(9)]

        With `batch=n` the function is given batches of up to `n` elements, stacked as by `Dataset.batch`, and returns
        as many results, along the first axis of arrays or as a list; elements come out as they went in, in order. A
        row's result may not depend on the other rows: if the function fails, it is called again for each element, and
        those that still fail are raised in their places.

        >>> list(ad.Dataset.range(3).map(lambda x: x / 2, batch=256))
        [np.float64(0.0), np.float64(0.5), np.float64(1.0)]

        `pure=True` declares that the result depends on the argument alone, that the function does not change its
        argument, and that it has no other effect. It may then be called in any order, several times at once, again, or
        not at all. A slow plain function that waits, or lets other threads run, is then called in threads by itself
        (`executor="inline"` and `synchronous=True` prevent that), and it is not called for elements that `take`, `skip`
        and `shard` leave out.

        >>> list(ad.Dataset.range(100).map(lambda x: 2 * x, pure=True).skip(98))
        [196, 198]

        `vectorized=True` declares that the function also accepts batches, as `Dataset.batch` makes them, and returns
        the batch of its results for the elements, with the same dtypes and no row depending on another. In a sequential
        map that is followed by `batch` it is then called once for each batch. If it fails it is called again for each
        element, so that the error is raised in the place of one element.

        >>> list(ad.Dataset.range(4).map(lambda x: x / 2, vectorized=True).batch(2))
        [array([0. , 0.5]), array([1. , 1.5])]

        `keeps` names the fields of an element, keys of a dict or places in a tuple, that the result also has, with the
        same values. `shrinks=True` says that results take less memory than elements. The map must be `pure` or
        parallel. `Options(reorder=True)` then moves a `filter(reads=)` of such fields before the map, and moves a map
        that shrinks before a `shuffle` with a buffer or a `prefetch`, which then hold less.

        >>> images = ad.Dataset.from_tensor_slices({"image": [b"a", b"bb"], "label": [3, 4]})
        >>> ds = images.map(lambda x: {**x, "size": len(x["image"])}, pure=True, keeps="label")
        >>> ds = ds.filter(lambda label: label > 3, reads="label").with_options(ad.Options(reorder=True))
        >>> list(ds)
        [{'image': b'bb', 'label': np.int64(4), 'size': 2}]
        """
        from asyncdata.transforms.map_batches import MapBatches

        ordered, pure = check_choice("map", "deterministic", deterministic), check_flag("map", "pure", pure)
        vectorized, shrinks = check_flag("map", "vectorized", vectorized), check_flag("map", "shrinks", shrinks)
        if rng != "torch":
            rng = check_flag("map", "rng", rng)
        alone = check_synchronous(synchronous, num_parallel_calls, executor)
        if batch is not None:
            if vectorized:
                raise PlanError("map(batch=) calls the function for batches anyway: leave vectorized=True out")
            fn = batched_for(map_func, bool(rng), seed)
            batches = MapBatches.of(self._plan, fn, batch, num_parallel_calls, executor, pure)
            return self._next(declared(batches, batches.function, keeps, shrinks))
        call = call_for(self._plan, map_func, rng, seed)
        node = Map.of(self._plan, call, num_parallel_calls, ordered, executor, pure, vectorized, alone)
        return self._next(declared(node, call, keeps, shrinks))

    @overload
    def filter(
        self: Transformations[Never],
        predicate: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        pure: bool = False,
    ) -> Dataset[Any]: ...
    @overload
    def filter(
        self,
        predicate: Callable[[T_co], Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        pure: bool = False,
    ) -> Dataset[T_co]: ...
    @overload
    def filter(
        self: Transformations[tuple[*Parts]],
        predicate: Callable[[*Parts], Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        pure: bool = False,
    ) -> Dataset[T_co]: ...
    @overload
    def filter(
        self,
        predicate: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        pure: bool = False,
        reads: Field | tuple[Field, ...] | None,
    ) -> Dataset[T_co]: ...

    def filter(
        self,
        predicate: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        pure: bool = False,
        reads: Field | tuple[Field, ...] | None = None,
    ) -> Dataset[T_co]:
        """Keep the elements for which `predicate` is true. It is called or awaited as the function of `map` is.

        The predicate must not change its element: later steps may or may not see the change. Use `map` to
        change elements.

        `pure=True` means the same as in `map`: the predicate may be called in any order, several times at once, and
        again. With `reads` the predicate is given only these fields of an element, one argument each: keys of a dict or
        places in a tuple. `Options(reorder=True)` then moves it before maps that keep these fields, see `map(keeps=)`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(6).filter(lambda x: x % 2))
        [1, 3, 5]
        >>> list(ad.Dataset.from_tensor_slices(([1, 2], ["a", "b"])).filter(lambda name: name == "b", reads=1))
        [(np.int64(2), 'b')]
        """
        from asyncdata.transforms.fields import fields_of

        fields = () if reads is None else fields_of("filter", "reads", reads)
        call, ordered = Predicate(predicate, reads=fields), check_choice("filter", "deterministic", deterministic)
        return self._next(Filter.of(self._plan, call, num_parallel_calls, ordered, check_flag("filter", "pure", pure)))

    def scan(
        self, initial_state: Any, scan_func: Callable[[Any, T_co], tuple[Any, U] | Awaitable[tuple[Any, U]]]
    ) -> Dataset[U]:
        """Call `scan_func(state, element)`, which returns the next state and the new element.

        A coroutine function is awaited. A failed element, or one for which the function fails, does not change the
        state. A run resumes directly if the state consists of numbers, strings, bytes, arrays, tuples, lists and dicts.
        With any other kind of state it is computed again from the beginning.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(5).scan(0, lambda total, x: (total + x, total + x)))
        [0, 1, 3, 6, 10]
        """
        from asyncdata.transforms.scan import Scan

        return self._next(Scan.of(self._plan, scan_func, initial_state))

    def distinct(self, key: Callable[..., Any] | None = None, max_keys: int | None = None) -> Dataset[T_co]:
        """Keep the first element of each key: the result of `key(element)`, else the element itself.

        Keys are numbers, strings, bytes, arrays, `None`, and tuples and dicts of these. Equal values are the same key;
        arrays if their dtypes are equal too. 12 bytes of each key are stored, in memory and in states. With `max_keys`
        the oldest keys are dropped, which suits streams whose repetitions are close together.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable(["a", "b", "A", "a"]).distinct(key=str.lower))
        ['a', 'b']
        """
        from asyncdata.transforms.distinct import Distinct

        return self._next(Distinct.of(self._plan, key, max_keys))

    def enumerate(self, start: int = 0) -> Dataset[tuple[int, T_co]]:
        """Pair each element with its number, counted from `start`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable("ab").enumerate())
        [(0, 'a'), (1, 'b')]
        """
        from asyncdata.transforms.enumerate import Enumerate

        return self._next(Enumerate(self._plan, check_integer("enumerate", "start", start)))

    @overload
    def flat_map(
        self: Transformations[Never],
        map_func: Callable[..., Dataset[U] | Awaitable[Dataset[U]]],
    ) -> Dataset[U]: ...
    @overload
    def flat_map(
        self,
        map_func: Callable[[T_co], Dataset[U] | Awaitable[Dataset[U]]],
    ) -> Dataset[U]: ...
    @overload
    def flat_map(
        self: Transformations[tuple[*Parts]],
        map_func: Callable[[*Parts], Dataset[U] | Awaitable[Dataset[U]]],
    ) -> Dataset[U]: ...

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset[Any]:
        """The elements of the dataset that `map_func` returns for each element, one dataset after the other.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).flat_map(lambda n: ad.Dataset.range(n)))
        [0, 0, 1]
        """
        from asyncdata.transforms.flat_map import FlatMap

        return self._next(FlatMap(self._plan, inner_call("flat_map", map_func, self._plan)))

    @overload
    def interleave(
        self: Transformations[Never],
        map_func: Callable[..., Dataset[U] | Awaitable[Dataset[U]]],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset[U]: ...
    @overload
    def interleave(
        self,
        map_func: Callable[[T_co], Dataset[U] | Awaitable[Dataset[U]]],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset[U]: ...
    @overload
    def interleave(
        self: Transformations[tuple[*Parts]],
        map_func: Callable[[*Parts], Dataset[U] | Awaitable[Dataset[U]]],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset[U]: ...

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
        `deterministic=False` gives elements in the order in which they are ready. `cycle_length` is 16 unless given, on
        every machine.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(1, 4).interleave(lambda x: ad.Dataset.from_tensors(x).repeat(2), cycle_length=2)
        >>> [int(x) for x in ds]
        [1, 2, 1, 2, 3, 3]
        """
        from asyncdata.transforms.interleave import Interleave

        call = inner_call("interleave", map_func, self._plan)
        ordered = check_choice("interleave", "deterministic", deterministic)
        return self._next(Interleave.of(self._plan, call, cycle_length, block_length, num_parallel_calls, ordered))

    def concatenate(self, dataset: Dataset[U], *others: Dataset[U]) -> Dataset[T_co | U]:
        """All elements of this dataset, then all of the other ones, one after the other.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(2).concatenate(ad.Dataset.range(1), ad.Dataset.range(2)))
        [0, 1, 0, 0, 1]
        """
        from asyncdata.transforms.concatenate import Concatenate

        datasets = [dataset_for("concatenate", other) for other in (dataset, *others)]
        node = Concatenate.of(self._plan, [other.plan for other in datasets])
        names = ["the first", "the second", *map("number {}".format, range(3, len(datasets) + 2))]
        signatures = [node.nodes[0].signature, *(other.plan.signature for other in datasets)]
        check_structures("concatenate", dict(zip(names, signatures, strict=False)))
        options = reduce(Options.merge, [other.options() for other in datasets], self._options)
        return self._next(node, options, *datasets)

    def join(self, dataset: Dataset[U], on: On | tuple[On, On], how: How = "inner") -> Dataset[tuple[T_co, Any]]:
        """Pair each element with the element of `dataset` that has the same key: `(element, other)`, in this order.

        `on` is a field of the elements (a key of a dict, a place in a tuple) or a function that returns the key; or two
        of these, the second for `dataset`. Keys are numbers, strings, bytes, arrays, `None`, and tuples and dicts of
        these. An element without a match is left out; with `how="left"` it is paired with `None`; with `how="exact"` it
        is a `KeyError` in its place. A key of another kind than all those of `dataset`, such as a number where they are
        text, is a `TypeError` in the element's place, as it would never match; so is an array of another dtype. In
        `stats()` the step's `excluded` says how many elements were left out.

        `dataset` must have random access, as files with `index=True` have. Its elements are read once for their keys;
        of each 16 bytes are held, for more than 4 million keys in a temporary file. Matches are read by number, for
        each block of elements together. Two elements of `dataset` with the same key are a `PlanError` in the loop; in
        this dataset any number may have the same key. A state has this dataset's position, and a hash of the keys of
        `dataset`: a run that resumes with other keys there is a `ResumeError`.

        >>> import asyncdata as ad
        >>> images = ad.Dataset.from_tensor_slices({"id": ["b", "x", "a"], "size": [1, 2, 3]})
        >>> texts = ad.Dataset.from_tensor_slices({"id": ["a", "b"], "text": ["ant", "bee"]})
        >>> list(images.join(texts, on="id").map(lambda image, text: (text["text"], int(image["size"]))))
        [('bee', 1), ('ant', 3)]
        """
        from asyncdata.transforms.join import Join

        other = dataset_for("join", dataset)
        return self._next(Join.of(self._plan, other.plan, on, how), self._options.merge(other.options()), other)

    def shuffle(
        self, buffer_size: int | None = None, seed: int | None = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset[T_co]:
        """Give elements in random order, each chosen from a buffer of `buffer_size`; without one, from all of them.

        The same seed gives the same orders: another order each epoch, unless `reshuffle_each_iteration=False`.

        Without a buffer nothing is held in memory, and every element is equally fast to reach. The input must then have
        random access: a range, slices, a list, `from_source`, `TFRecordDataset(index=True)`, and maps, takes and zips
        of those. Anything else is a `PlanError`: use a buffer as large as the dataset, or `UNKNOWN_CARDINALITY`, to
        shuffle everything.

        >>> import asyncdata as ad
        >>> sorted(ad.Dataset.range(5).shuffle(3, seed=1))
        [0, 1, 2, 3, 4]
        >>> list(ad.Dataset.range(10**9).shuffle(seed=1).take(3))
        [37354210, 465257133, 36768346]
        """
        from asyncdata.transforms.global_shuffle import shuffled

        reshuffle = check_choice("shuffle", "reshuffle_each_iteration", reshuffle_each_iteration)
        return self._next(shuffled(self._plan, buffer_size, seed, reshuffle))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> Dataset[tuple[int, T_co]]:
        """Change the proportions of classes, by dropping elements of classes that are too frequent.

        `class_func` returns the class of an element, a number from 0. Elements become pairs of class and element.
        `target_dist` is the share that each class should have. `initial_dist` is its share in the input; without it the
        shares are estimated from the elements so far. Elements of the class that is rarest in proportion are never
        dropped. Which elements stay depends on `seed`, element and epoch alone, and on earlier elements if shares are
        estimated.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(1000).rejection_resample(lambda x: int(x % 10 == 0), [0.5, 0.5], [0.9, 0.1], seed=1)
        >>> kept = [label for label, _ in ds]
        >>> kept.count(1), kept.count(0)
        (100, 96)
        """
        from asyncdata.transforms.rejection_resample import Resample

        return self._next(Resample.of(self._plan, class_func, target_dist, initial_dist, seed))

    def repeat(self, count: int | None = None) -> Dataset[T_co]:
        """Run the dataset `count` times, forever if `None` or -1.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(2).repeat(2))
        [0, 1, 0, 1]
        """
        from asyncdata.transforms.repeat import Repeat

        times = -1 if count is None else check_count("repeat", "count", count, 0, (-1,))
        return self._next(Repeat(self._plan, times))

    def take(self, count: int) -> Dataset[T_co]:
        """Give the first `count` elements, all if -1.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.counter().take(2))
        [0, 1]
        """
        from asyncdata.transforms.take import Take

        return self._next(Take(self._plan, check_count("take", "count", count, 0, (-1,))))

    @overload
    def take_while(
        self: Transformations[Never],
        predicate: Callable[..., Any],
    ) -> Dataset[Any]: ...
    @overload
    def take_while(
        self,
        predicate: Callable[[T_co], Any],
    ) -> Dataset[T_co]: ...
    @overload
    def take_while(
        self: Transformations[tuple[*Parts]],
        predicate: Callable[[*Parts], Any],
    ) -> Dataset[T_co]: ...

    def take_while(self, predicate: Callable[..., Any]) -> Dataset[T_co]:
        """Give the elements before the first for which `predicate` is false.

        It is not called for the elements after that one. An element that failed, or for which it fails, is an error in
        its place and does not end the dataset.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.counter().take_while(lambda x: x < 3))
        [0, 1, 2]
        """
        from asyncdata.transforms.take_while import TakeWhile

        return self._next(TakeWhile.of(self._plan, Predicate(predicate, "take_while")))

    def unique(self) -> Dataset[T_co]:
        """Give each element once, at its first occurrence: numbers, strings, arrays and structures of them.

        Two elements are the same if they are equal and, for arrays, of one dtype. All elements are stored in memory.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable("abacab").unique())
        ['a', 'b', 'c']
        """
        from asyncdata.transforms.unique import Unique

        return self._next(Unique(self._plan))

    def skip(self, count: int) -> Dataset[T_co]:
        """Leave out the first `count` elements, all if -1.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(4).skip(2))
        [2, 3]
        """
        from asyncdata.transforms.skip import Skip

        return self._next(Skip(self._plan, check_count("skip", "count", count, 0, (-1,))))

    @overload
    def shard(
        self,
        num_shards: int | None = None,
        index: int | None = None,
        *,
        drop_remainder: bool = False,
        pad_remainder: Literal[False] = False,
    ) -> Dataset[T_co]: ...
    @overload
    def shard(
        self,
        num_shards: int | None = None,
        index: int | None = None,
        *,
        drop_remainder: bool = False,
        pad_remainder: Literal[True],
    ) -> Dataset[tuple[T_co, bool]]: ...
    @overload
    def shard(
        self,
        num_shards: int | None = None,
        index: int | None = None,
        *,
        drop_remainder: bool = False,
        pad_remainder: bool,
    ) -> Dataset[Any]: ...

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
        up, else from the variables of launchers (`WORLD_SIZE` and `RANK`, SLURM's, MPI's); `PlanError` if there are
        none. Each process must read the elements in the same order, so a `shuffle` or `list_files` before it needs a
        seed. Without arguments, `PlanError` if it has none; with arguments that is not checked, as the shares may be
        read in one process. A topic of Kafka, whose records come in another order to each reader, is divided by its
        partitions: partition p goes to share `p % num_shards`. `PlanError` if other steps are between the two, or if
        the source gives each element to one reader anyway, as a `Channel` does.

        Some shares have one element more than others. With `drop_remainder` they are equal, and the last elements are
        left out; with `pad_remainder` they are made equal: each element is then a pair of itself and True, or of a copy
        of another one and False. Then no process waits for others at the end, if later steps give equally many elements
        for each: put `filter` and `flat_map` before `shard`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(7).shard(3, 1))
        [1, 4]
        >>> [list(ad.Dataset.range(3).shard(2, index, pad_remainder=True)) for index in range(2)]
        [[(0, True), (2, True)], [(1, True), (2, False)]]
        """
        from asyncdata.transforms.shard import Shard

        drop = check_flag("shard", "drop_remainder", drop_remainder)
        pad = check_flag("shard", "pad_remainder", pad_remainder)
        return self._next(Shard.of(self._plan, num_shards, index, drop, pad))

    def balance(
        self,
        cost: Callable[..., float],
        batch_size: int,
        ranks: int | None = None,
        rank: int | None = None,
        *,
        steps: int = 8,
        drop_remainder: bool = False,
    ) -> Dataset[T_co]:
        """Distribute elements of unequal cost to `ranks` processes, so that all batches of one step cost about the
        same.

        Use it in place of `shard`, before `batch(batch_size)`: in each step every rank gets `batch_size` elements.
        `cost(element)` returns a number of at least 0, such as the element's tokens or pixels. `ranks * batch_size *
        steps` elements are read at a time. The costliest elements are placed first, each into the batch that is the
        cheapest so far; then batches of about the same cost form a step. Inside a batch, elements are in the order of
        the input.

        Every rank reads the entire input in the same order and computes the same result, without communication. So put
        slow work, such as decoding, after it, and give a `shuffle` before it a seed. The elements left at the end form
        a shorter step, in which some ranks may have one element more; with `drop_remainder` all have equally many.
        `ranks` and `rank` default to those of this process, as in `shard`. If an element or its cost fails, every rank
        raises the error.

        >>> import asyncdata as ad
        >>> lengths = ad.Dataset.from_list([8, 1, 1, 1, 2, 3, 4, 4])
        >>> for rank in range(2):
        ...     print([batch.tolist() for batch in lengths.balance(lambda length: length, 2, 2, rank).batch(2)])
        [[8, 1], [1, 4]]
        [[2, 3], [1, 4]]
        """
        from asyncdata.transforms.balance import Balance

        drop = check_flag("balance", "drop_remainder", drop_remainder)
        return self._next(Balance.of(self._plan, cost, batch_size, ranks, rank, steps, drop))

    def cache(
        self,
        filename: str | PathLike[str] = "",
        *,
        max_bytes: int | None = None,
        max_record_bytes: int = CACHED_RECORD_BYTES,
    ) -> Dataset[T_co]:
        """Store the elements of the first epoch for later ones, in memory or in a file; arrays become read-only.

        Put random augmentation and `shuffle` after it. If an epoch is left early, what it read stays cached, and the
        next epoch continues from there. Failed elements are tried again in each epoch. In memory, `max_bytes` limits
        the cached elements; the input runs for the rest.

        An input without a fixed order (`deterministic=False`, `batch(within=)`) has another one in memory from the
        second epoch on, which is the same in every run: not that of a `shuffle`, `interleave` or `sample_from_datasets`
        before `cache`. Put these after it, too.

        With a `filename`, elements are written as they are read, to `<filename>.partial` until all are there. Other
        processes may read the same file, at once or later. If several start it, one writes; if that one dies, another
        continues. While an element fails the file stays incomplete: put `ignore_errors` before it. A complete file has
        a known length and random access: `dataset[i]`, and `shuffle()` without a buffer.

        The file describes its pipeline: the steps, hashes of functions and of data in memory, and the seeds that you
        chose. Another pipeline is a `ResumeError`. A function is compared by its code, the functions of its module that
        it calls, and numbers, strings, tuples and arrays that it holds when `cache` is called. Objects, lists, dicts
        and sets that it holds are not compared, nor are variables of its module: use another filename when those
        change. Values that differ in each run, such as a time in a default argument, make the file unusable for the
        next run. Another minor version of Python has other bytecode, so functions and data are not compared.

        Elements consist of arrays, numbers, bytes, str, None, tuples, lists, dicts, named tuples and dataclasses.
        Reading them runs no code. An element of more than `max_record_bytes` (4 GiB) is an error when it is read from
        the file; in memory there is no such limit, and giving one is a `PlanError`.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(3).map(print).cache()
        >>> for epoch in range(2):
        ...     _ = list(ds)
        0
        1
        2
        """
        return self._next(cached(self._plan, filename, max_bytes, max_record_bytes))

    def snapshot(
        self,
        path: str | PathLike[str],
        compression: str | None = "AUTO",
        reader_func: Callable[..., Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
        *,
        max_record_bytes: int = CACHED_RECORD_BYTES,
    ) -> Dataset[T_co]:
        """Store the elements in a file in the folder `path`, one file for each pipeline: a `cache(filename)` that
        chooses its file name.

        A pipeline with other steps, functions, data in memory, files or chosen seeds writes a file of its own, and so
        does another minor version of Python. Files stay until you delete them. `cache` says how functions are compared,
        and what `max_record_bytes` is. There is no compression and one file: use `save` and `load` for shards and a
        reader of your own.

        >>> import asyncdata as ad, os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for size in (3, 4, 3):
        ...     _ = list(ad.Dataset.range(size).snapshot(folder))
        >>> len(os.listdir(folder))
        2
        """
        from asyncdata.persistence.file_cache import FileCache
        from asyncdata.storage import local_path

        if compression not in ("AUTO", None, "") or reader_func is not None or shard_func is not None:
            raise PlanError("snapshot() has no compression, reader_func or shard_func: use save() and Dataset.load()")
        most = check_count("snapshot", "max_record_bytes", max_record_bytes, 1)
        return self._next(FileCache.named(self._plan, local_path(path), most))

    def ignore_errors(
        self,
        log_warning: bool = False,
        *,
        max_errors: int | None = None,
        max_share: float | None = None,
        on_error: Callable[[Exception, Any], Any] | None = None,
    ) -> Dataset[T_co]:
        """Drop elements that failed, as many as `max_errors` and `max_share` allow; without them, all.

        An error beyond the budget is raised in its place, with a note that says what was dropped; so are all later
        ones. `max_share` is a share of the elements so far, of 1,000 at least. `on_error(error, ticket)` is called for
        each dropped element; its ticket is its number in its source, or a path of numbers. `log_warning` logs each one
        to the logger `asyncdata`. Elements that are made again when a run resumes are reported again.

        After `batch` an element is a batch: if it cannot be stacked, its good members are dropped with the bad one. Put
        a `map` that raises for a bad element, and `ignore_errors`, before `batch` to drop that one alone.

        >>> import asyncdata as ad
        >>> halves = ad.Dataset.range(3).map(lambda x: 1 / x)
        >>> list(halves.ignore_errors(on_error=lambda error, ticket: print(ticket, error)))
        0 division by zero
        [1.0, 0.5]
        """
        from asyncdata.transforms.ignore_errors import ErrorBudget, IgnoreErrors

        logged, budget = check_flag("ignore_errors", "log_warning", log_warning), ErrorBudget.of(max_errors, max_share)
        return self._next(IgnoreErrors.of(self._plan, budget, logged, on_error))

    def assert_cardinality(self, expected_cardinality: int) -> Dataset[T_co]:
        """State the number of elements, where the plan cannot know it; a `StageError` if there are more or fewer.

        The error comes after the last element if there are too few, and in the place of the first one too many. If the
        plan already shows that the number is wrong, it is a `PlanError` here. Failed elements count.

        >>> import asyncdata as ad
        >>> len(ad.Dataset.range(10).filter(lambda x: x % 2).assert_cardinality(5))
        5
        """
        from asyncdata.transforms.cardinality import AssertCardinality

        return self._next(AssertCardinality.of(self._plan, expected_cardinality))

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Dataset[Any]:
        """Add elements of zeros until there are `cardinality`, and mark each element as real or added.

        A dict gets the mark under `mask_key`; anything else becomes a pair of itself and the mark. Zeros have the
        shapes and types of the last element that did not fail. More elements than that are a `StageError`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_tensor_slices({"x": [7, 8]}).pad_to_cardinality(3))
        [{'x': np.int64(7), 'valid': True}, {'x': np.int64(8), 'valid': True}, {'x': np.int64(0), 'valid': False}]
        """
        from asyncdata.transforms.cardinality import PadToCardinality

        return self._next(PadToCardinality.of(self._plan, cardinality, mask_key))

    def prefetch(self, buffer_size: int | None = None) -> Dataset[T_co]:
        """Read up to `buffer_size` elements ahead while the consumer works; AUTOTUNE (or `None`) chooses the number.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).prefetch(ad.AUTOTUNE))
        [0, 1, 2]
        """
        size = AUTOTUNE if buffer_size is None else buffer_size
        return self._next(Prefetch(self._plan, check_count("prefetch", "buffer_size", size, 0, (AUTOTUNE,))))

    def prefetch_to_device(
        self,
        device: Any,
        buffer_size: int = 2,
        mode: Literal["fresh", "ring"] = "fresh",
        *,
        static: Any = None,
        decode_on_device: bool = False,
    ) -> Dataset[Any]:
        """Copy elements to a device while earlier ones are used; `buffer_size` of them are there, or are being copied.

        It is the last transformation. A `device` is `"cuda"`, `"cuda:1"`, `"cpu"` or a `torch.device` of these, for
        tensors of PyTorch, or a device or sharding of JAX. Arrays, NumPy's scalars and tensors are copied, in any
        structure; strings and other objects pass as they are. `"cuda"` is the current device of the thread that reads.

        Copies are made on a stream of their own. The stream that is current where an element is requested waits for its
        copy; the thread does not. With `mode="ring"` elements reuse the same memory: one is valid until the next is
        requested. With `static`, a structure of tensors like the elements, each element is copied into these tensors,
        as CUDA graphs require. States are the same as without this step.

        With `decode_on_device` all `bytes` are pictures, which become arrays of (3, height, width), uint8, red, green
        and blue; a batch of them a list of such arrays. A GPU decodes JPEG by nvJPEG, for which torchcodec or
        torchvision must be installed; what it cannot decode, and all pictures on other devices, `decode_image` decodes
        on the host. A damaged picture is a `DataLossError` in the place of its element, and has its number in a note.

        >>> import asyncdata as ad
        >>> from asyncdata.devices.simulated import Accelerator
        >>> ds = ad.Dataset.from_tensor_slices({"x": [[1, 2], [3, 4]]}).batch(2).prefetch_to_device(Accelerator())
        >>> [batch["x"].numpy().tolist() for batch in ds]
        [[[1, 2], [3, 4]]]
        """
        from asyncdata.devices.choice import check_device
        from asyncdata.transforms.prefetch_to_device import PrefetchToDevice

        chosen = check_device(device, mode, static, decode_on_device)
        return self._next(PrefetchToDevice.of(self._plan, chosen, buffer_size, mode, static, decode_on_device))

    def rate_limit(self, per_second: float, burst: int = 1) -> Dataset[T_co]:
        """Read at most `per_second` elements a second, evenly, or up to `burst` at once after a pause.

        Put it before the step that makes requests: a `map` after it makes one per element. The first `burst`
        elements of each iteration come at once, also when it resumes from a state.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(3).rate_limit(1000))
        [0, 1, 2]
        """
        from asyncdata.transforms.rate_limit import RateLimit

        return self._next(RateLimit.of(self._plan, per_second, burst))

    def apply(self, transformation_func: Callable[[Dataset[T_co]], Dataset[U]]) -> Dataset[U]:
        """Return `transformation_func(self)`, so that your own transformations fit in the chain.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(4).apply(lambda ds: ds.filter(lambda x: x > 1)))
        [2, 3]
        """
        if not callable(transformation_func):
            raise PlanError(f"apply needs a function, got {transformation_func!r:.80}")
        return dataset_for("apply", transformation_func(self._next(self._plan)))

    def __or__(self, transformation_func: Callable[[Dataset[T_co]], Dataset[U]]) -> Dataset[U]:
        """Return `transformation_func(self)`, as `apply` does: `ds | augment | batches`."""
        return self.apply(transformation_func)

    def with_options(self, options: Options) -> Dataset[T_co]:
        """Return the dataset with `options` set; a later value wins.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(3).with_options(ad.Options(deterministic=False)).options().deterministic
        False
        """
        return self._next(self._plan, self._options.merge(options_for(options)))

    def options(self) -> Options:
        """Return a read-only copy of the options that are set; change them with `with_options`.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(9).with_options(ad.Options(deterministic=False, ram_budget=10**9))
        >>> ds.options().ram_budget, ds.options().optimize
        (1000000000, None)
        """
        return self._options.fixed()


for method_name in ("map", "prefetch", "repeat", "shuffle"):
    setattr(Transformations, method_name, answering(getattr(Transformations, method_name)))


def dataset_for(method: str, value: Any) -> Dataset[Any]:
    """Return a dataset, or raise `PlanError` if `value` is not one."""
    if not isinstance(value, Transformations):
        raise PlanError(f"{method} needs a Dataset, got {type(value).__name__}: {value!r:.60}")
    return cast("Dataset[Any]", value)

"""Grouping: the methods of Dataset that put elements together or take them apart, with tf.data's names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypedDict, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from asyncdata.elements.element_types import NamedTupleLike, OfDtype, Scalar, T_co, WithoutParts
from asyncdata.elements.validation import check_choice, check_flag
from asyncdata.graph.node import Node, check_count, check_parallel
from asyncdata.transformation_arguments import answering
from asyncdata.transforms.batch import Batch

if TYPE_CHECKING:
    from asyncdata.dataset import Dataset
    from asyncdata.transforms.group_by_reducer import Reducer

__all__ = ("Grouping",)

U = TypeVar("U")
K = TypeVar("K")


class BatchOptions(TypedDict, total=False):
    """Further arguments of `batch`."""

    num_parallel_calls: int | None
    deterministic: bool | None
    within: float | None


class Grouping(Generic[T_co]):
    """What `Transformations` has of these methods."""

    _plan: Node

    def _next(self, plan: Node) -> Dataset[Any]:
        """Return the dataset that `plan` describes, made from this one."""
        raise NotImplementedError

    def _part(self, plan: Node) -> Dataset[Any]:
        """Return a dataset of some elements of this one. It is an element itself, and has epochs of its own."""
        raise NotImplementedError

    @overload
    def batch(
        self: Grouping[Never], batch_size: int, drop_remainder: bool = False, **options: Unpack[BatchOptions]
    ) -> Dataset[Any]: ...
    @overload
    def batch(
        self: Grouping[str | bytes | None],
        batch_size: int,
        drop_remainder: bool = False,
        **options: Unpack[BatchOptions],
    ) -> Dataset[npt.NDArray[np.object_]]: ...
    @overload
    def batch(
        self: Grouping[OfDtype[Scalar]], batch_size: int, drop_remainder: bool = False, **options: Unpack[BatchOptions]
    ) -> Dataset[npt.NDArray[Scalar]]: ...
    @overload
    def batch(  # pyright: ignore[reportOverlappingOverload]  a bool is an int, too
        self: Grouping[bool], batch_size: int, drop_remainder: bool = False, **options: Unpack[BatchOptions]
    ) -> Dataset[npt.NDArray[np.bool_]]: ...
    @overload
    def batch(
        self: Grouping[int], batch_size: int, drop_remainder: bool = False, **options: Unpack[BatchOptions]
    ) -> Dataset[npt.NDArray[np.int64]]: ...
    @overload
    def batch(
        self: Grouping[float], batch_size: int, drop_remainder: bool = False, **options: Unpack[BatchOptions]
    ) -> Dataset[npt.NDArray[np.float64]]: ...
    @overload
    def batch(
        self: Grouping[NamedTupleLike],
        batch_size: int,
        drop_remainder: bool = False,
        **options: Unpack[BatchOptions],
    ) -> Dataset[Any]: ...
    @overload
    def batch(
        self: Grouping[tuple[Any, Any]],
        batch_size: int,
        drop_remainder: bool = False,
        **options: Unpack[BatchOptions],
    ) -> Dataset[tuple[Any, Any]]: ...
    @overload
    def batch(
        self: Grouping[tuple[Any, Any, Any]],
        batch_size: int,
        drop_remainder: bool = False,
        **options: Unpack[BatchOptions],
    ) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    def batch(
        self: Grouping[dict[K, Any]],
        batch_size: int,
        drop_remainder: bool = False,
        **options: Unpack[BatchOptions],
    ) -> Dataset[dict[K, Any]]: ...
    @overload
    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        within: float | None = None,
    ) -> Dataset[Any]: ...

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        within: float | None = None,
    ) -> Dataset[Any]:
        """Stack every `batch_size` consecutive elements into one, leaves along a new first axis.

        Arrays and numbers become arrays of NumPy's dtype, anything else an object array. Integers and floats together
        become float64. The last batch may be shorter; `drop_remainder` drops it. A failed element is raised before the
        batch that it would have been in. Batches are stacked in order whatever `num_parallel_calls` and `deterministic`
        say.

        `within` is for sources whose next element may take long: a batch that is not full that many seconds after its
        first element is given as it is. Elements and their order are the same; which batch an element is in depends on
        time.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(5).batch(2, drop_remainder=True))
        [array([0, 1]), array([2, 3])]
        """
        check_parallel("batch", num_parallel_calls)
        check_choice("batch", "deterministic", deterministic)
        drop = check_flag("batch", "drop_remainder", drop_remainder)
        size = check_count("batch", "batch_size", batch_size, 1)
        if within is not None:
            from asyncdata.transforms.batch_within import BatchWithin

            return self._next(BatchWithin.of(self._plan, size, drop, within))
        return self._next(Batch(self._plan, size, drop))

    def padded_batch(
        self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False
    ) -> Dataset[Any]:
        """Stack every `batch_size` consecutive elements into one, arrays of different shapes padded at their ends.

        `padded_shapes` has the structure of an element, with a shape for each leaf, or a size if the leaf has one axis.
        A size of `None` is that of the largest leaf in the batch; this is also the default. A larger leaf is a
        `StructureError` in the batch's place. `padding_values` is one value for all leaves, or a structure of values of
        the leaves' dtypes. `None` is zero, False, or the empty string.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable([[1], [2, 3, 4], [5, 6]]).padded_batch(2, padding_values=-1))
        [array([[ 1, -1, -1],
               [ 2,  3,  4]]), array([[5, 6]])]
        >>> list(ad.Dataset.from_iterable([[1], [2, 3]]).padded_batch(2, [4]))
        [array([[1, 0, 0, 0],
               [2, 3, 0, 0]])]
        """
        from asyncdata.transforms.padded_batch import PaddedBatch, Padding

        size = check_count("padded_batch", "batch_size", batch_size, 1)
        padding = Padding.of("padded_batch", padded_shapes, padding_values)
        drop = check_flag("padded_batch", "drop_remainder", drop_remainder)
        return self._next(PaddedBatch.of(self._plan, size, drop, padding))

    def ragged_batch(
        self, batch_size: int, drop_remainder: bool = False, row_splits_dtype: npt.DTypeLike = "int64"
    ) -> Dataset[Any]:
        """Collect every `batch_size` consecutive elements into one, arrays of different lengths as rows of a `Ragged`.

        Arrays and lists become a `Ragged`, whether their lengths differ or not. Only their first sizes may differ.
        Numbers, strings and other leaves without an axis are stacked as `batch` does.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable([[1], [2, 3, 4], []]).ragged_batch(2))
        [Ragged([[1], [2, 3, 4]]), Ragged([[]])]
        """
        from asyncdata.transforms.ragged_batch import RaggedBatch

        size = check_count("ragged_batch", "batch_size", batch_size, 1)
        drop = check_flag("ragged_batch", "drop_remainder", drop_remainder)
        return self._next(RaggedBatch.of(self._plan, size, drop, row_splits_dtype))

    def list_batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset[list[T_co]]:
        """Collect every `batch_size` consecutive elements into a list, as they are.

        It is for functions of a list of samples, such as the collate functions of PyTorch: a `map` after it calls them,
        also several at once. Elements may differ in shape and structure. The last list may be shorter;
        `drop_remainder` drops it. A failed element is raised before the list that it would have been in.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable([{"ids": [1, 2]}, {"ids": [3]}, {"text": "a"}]).list_batch(2))
        [[{'ids': [1, 2]}, {'ids': [3]}], [{'text': 'a'}]]
        >>> list(ad.Dataset.from_iterable(["a", "bcd", "ef"]).list_batch(2).map(" ".join, num_parallel_calls=2))
        ['a bcd', 'ef']
        """
        from asyncdata.transforms.list_batch import ListBatch

        size = check_count("list_batch", "batch_size", batch_size, 1)
        return self._next(ListBatch(self._plan, size, check_flag("list_batch", "drop_remainder", drop_remainder)))

    @overload
    def unbatch(self: Grouping[Never]) -> Dataset[Any]: ...
    @overload
    def unbatch(self: Grouping[list[U]]) -> Dataset[U]: ...
    @overload
    def unbatch(self: Grouping[NamedTupleLike]) -> Dataset[Any]: ...
    @overload
    def unbatch(self: Grouping[tuple[Any, Any]]) -> Dataset[tuple[Any, Any]]: ...
    @overload
    def unbatch(self: Grouping[tuple[Any, Any, Any]]) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    def unbatch(self: Grouping[dict[K, Any]]) -> Dataset[dict[K, Any]]: ...
    @overload
    def unbatch(self) -> Dataset[Any]: ...

    def unbatch(self) -> Dataset[Any]:
        """Split each element along the first axis of its leaves; lists into their items.

        A leaf without an axis, and leaves with different numbers of rows, are a `StructureError` in the element's
        place, or a `PlanError` now if that is known already.

        >>> import asyncdata as ad
        >>> import numpy as np
        >>> [int(x) for x in ad.Dataset.from_tensors(np.arange(3)).unbatch()]
        [0, 1, 2]
        >>> list(ad.Dataset.from_iterable(["one two", "three"]).map(str.split).unbatch())
        ['one', 'two', 'three']
        """
        from asyncdata.transforms.unbatch import Unbatch

        return self._next(Unbatch.of(self._plan))

    @overload
    def rebatch(
        self: Grouping[Never], batch_size: int | Sequence[int], drop_remainder: bool = False
    ) -> Dataset[Any]: ...
    @overload
    def rebatch(
        self: Grouping[npt.NDArray[Scalar]], batch_size: int | Sequence[int], drop_remainder: bool = False
    ) -> Dataset[npt.NDArray[Scalar]]: ...
    @overload
    def rebatch(
        self: Grouping[NamedTupleLike], batch_size: int | Sequence[int], drop_remainder: bool = False
    ) -> Dataset[Any]: ...
    @overload
    def rebatch(
        self: Grouping[tuple[Any, Any]], batch_size: int | Sequence[int], drop_remainder: bool = False
    ) -> Dataset[tuple[Any, Any]]: ...
    @overload
    def rebatch(
        self: Grouping[tuple[Any, Any, Any]], batch_size: int | Sequence[int], drop_remainder: bool = False
    ) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    def rebatch(
        self: Grouping[dict[K, Any]], batch_size: int | Sequence[int], drop_remainder: bool = False
    ) -> Dataset[dict[K, Any]]: ...
    @overload
    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> Dataset[Any]: ...

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> Dataset[Any]:
        """Cut the rows of batches into batches of `batch_size`: `unbatch().batch(batch_size)`.

        With several sizes, batches have these sizes in turn.

        Batches are writable. Rows are not copied if their batch was made by the step right before, or by the function
        of a `map` that holds no reference to it. They must also be in one array, be at least an eighth of it, and have
        more than 8 KB. Such a batch holds the entire array in memory; steps that hold elements for long, such as
        `shuffle` and `cache`, copy it.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(6).batch(2).rebatch(3))
        [array([0, 1, 2]), array([3, 4, 5])]
        >>> list(ad.Dataset.range(8).batch(4).rebatch([1, 2]))
        [array([0]), array([1, 2]), array([3]), array([4, 5]), array([6]), array([7])]
        """
        from asyncdata.transforms.rebatch import Rebatch

        drop = check_flag("rebatch", "drop_remainder", drop_remainder)
        return self._next(Rebatch.of(self._plan, batch_size, drop))

    @overload
    def window(
        self: Grouping[Never], size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> Dataset[Any]: ...
    @overload
    def window(
        self: Grouping[WithoutParts], size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> Dataset[Dataset[T_co]]: ...
    @overload
    def window(
        self: Grouping[NamedTupleLike],
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> Dataset[Any]: ...
    @overload
    def window(
        self: Grouping[tuple[Any, Any]],
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> Dataset[tuple[Any, Any]]: ...
    @overload
    def window(
        self: Grouping[tuple[Any, Any, Any]],
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    def window(
        self: Grouping[dict[K, Any]],
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> Dataset[dict[K, Any]]: ...
    @overload
    def window(
        self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> Dataset[Any]: ...

    def window(
        self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False
    ) -> Dataset[Any]:
        """Give every `size` elements as a dataset of their own; the next window starts `shift` elements later.

        `shift` is `size` unless given; `stride` is the distance between members. The last windows may have fewer
        members; `drop_remainder` drops them. If elements have parts (tuples, dicts), a window is a structure of
        datasets, one for each part. A failed element is a member, and is raised where it is read.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(5).window(3, shift=1, drop_remainder=True).flat_map(lambda window: window.batch(3)))
        [array([0, 1, 2]), array([1, 2, 3]), array([2, 3, 4])]
        >>> [list(window) for window in ad.Dataset.range(7).window(2, stride=3)]
        [[0, 3], [2, 5], [4], [6]]
        """
        from asyncdata.transforms.window import Window

        size = check_count("window", "size", size, 1)
        step = size if shift is None else check_count("window", "shift", shift, 1)
        stride = check_count("window", "stride", stride, 1)
        drop = check_flag("window", "drop_remainder", drop_remainder)
        return self._next(Window(self._plan, size, step, self._part, stride, drop))

    def pack_sequences(
        self,
        length: int,
        *,
        strategy: Literal["first_fit", "best_fit", "concat_then_split"] = "first_fit",
        open_rows: int | None = None,
        overlong: Literal["error", "truncate", "split"] | None = None,
        max_sequences: int | None = None,
        padding_values: Any = 0,
        fields: Sequence[str] | None = None,
    ) -> Dataset[dict[str, Any]]:
        """Put sequences of tokens into rows of `length`, so that little of a batch is padding.

        Elements are arrays with one dimension, or dicts of such arrays of one length. A row is a dict: for each feature
        (`inputs` where elements have no names) its tokens, `<feature>_segment_ids`, which has for each token the number
        of its sequence, counted from 1, and 0 for padding, and `<feature>_positions`, its place in that sequence (in
        its part of it, if it was cut). `padding_values` is one value, or a dict with one for each feature.

        - `first_fit`: an entire sequence goes into the oldest of `open_rows` rows (64 unless given) that has space for
          it. If none has, the fullest row is given out. A sequence that is longer than a row is a `StructureError` in
          its place, or is cut off with `overlong="truncate"`, or is divided over as many rows as it needs with
          `"split"`. A row with `max_sequences` sequences, or parts of such, is given out at once.
        - `best_fit`: the same, but a sequence goes into the fullest of the rows that have space for it.
        - `concat_then_split`: sequences follow each other, and are cut where a row ends. Only the last row has padding.

        With `fields`, some of these names, rows have `input_ids` (elements without names, or the feature of that name),
        other features as they are, and in place of segments and positions

        - `labels`, int64 of shape `(length,)`: the tokens, or the feature of that name, and -100, which losses ignore,
          for padding and for the first token of each sequence; not shifted;
        - `position_ids`, int32 of shape `(length,)`: the positions;
        - `cu_seqlens`, int32: where each sequence begins and the last one ends, for kernels that take rows of several
          sequences; its size differs from row to row, and padding is a sequence;
        - `attention_mask`, bool of shape `(length, length)`: whether a token attends to another one: to itself and to
          those before it in its sequence.

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
        >>> for row in sequences.pack_sequences(4, fields=("labels", "position_ids", "cu_seqlens")):
        ...     print(row["input_ids"], row["labels"], row["position_ids"], row["cu_seqlens"])
        [5 6 7 3] [-100    6    7 -100] [0 1 2 0] [0 3 4]
        [1 2 8 9] [-100    2 -100    9] [0 1 0 1] [0 2 4]
        """
        from asyncdata.transforms.pack_sequences import PackSequences

        how = (strategy, open_rows, overlong, padding_values, fields, max_sequences)
        return self._next(PackSequences.of(self._plan, length, *how))

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
        given. Elements are padded to the longest as by `padded_batch`, with `padding_values`. One that is longer than
        `max_tokens` is a `StructureError` in its place, or is dropped, or becomes a batch of its own, as `overlong`
        says.

        >>> import asyncdata as ad
        >>> sequences = ad.Dataset.from_iterable([[1, 2, 3, 4], [5], [6, 7], [8], [9, 10, 11]])
        >>> for batch in sequences.bucket_by_token_count(8):
        ...     print(batch.tolist())
        [[5, 0], [8, 0], [6, 7]]
        [[9, 10, 11, 0], [1, 2, 3, 4]]
        """
        from asyncdata.transforms.bucket_by_token_count import BucketByTokenCount

        node = BucketByTokenCount.of(self._plan, max_tokens, length_func, buffer_size, overlong, padding_values)
        return self._next(node)

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Dataset[T_co]], Dataset[U] | Awaitable[Dataset[U]]],
        window_size: int | None = None,
        window_size_func: Callable[[Any], int] | None = None,
    ) -> Dataset[U]:
        """Put elements of the same key together: give the elements of `reduce_func(key, window)` for each window.

        A window is a dataset of `window_size` elements of one key, or of as many as `window_size_func(key)` says.
        Incomplete windows come at the end, in the order of their keys. A key is any hashable value. A failed element,
        or one whose key function fails, is an error in its place and is in no window.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(7).group_by_window(lambda x: x % 2, lambda key, window: window.batch(3), 3)
        >>> list(ds)
        [array([0, 2, 4]), array([1, 3, 5]), array([6])]
        """
        from asyncdata.transforms.group_by_window import KeyWindows

        plan = KeyWindows.of(self._plan, key_func, reduce_func, window_size, window_size_func, self._part)
        return self._next(plan)

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Dataset[Any]:
        """Batch elements of about the same length, so that there is little padding.

        Bucket i takes lengths below `bucket_boundaries[i]`, the last bucket all others. Its batches have
        `bucket_batch_sizes[i]` elements, padded as by `padded_batch`. `pad_to_bucket_boundary` pads to one less than
        the boundary where `padded_shapes` has `None` (without shapes: the first axis of each array); an element longer
        than all boundaries is then an error in its place. `no_padding` stacks elements as they are.

        >>> import asyncdata as ad
        >>> words = ad.Dataset.from_iterable([[1], [1, 2, 3, 4], [5, 6], [5, 6, 7]])
        >>> for batch in words.bucket_by_sequence_length(len, [3], [2, 2]):
        ...     print(batch.tolist())
        [[1, 0], [5, 6]]
        [[1, 2, 3, 4], [5, 6, 7, 0]]
        """
        from asyncdata.transforms.group_by_window import Buckets
        from asyncdata.transforms.padded_batch import Padding

        method, bounds, sizes = "bucket_by_sequence_length", bucket_boundaries, bucket_batch_sizes
        bounded = check_flag(method, "pad_to_bucket_boundary", pad_to_bucket_boundary)
        plain = check_flag(method, "no_padding", no_padding)
        drop = check_flag(method, "drop_remainder", drop_remainder)
        padding = None if plain else Padding.of(method, padded_shapes, padding_values)
        plan = Buckets.of(self._plan, element_length_func, bounds, sizes, padding, bounded, drop)
        return self._next(plan)

    def group_by_reducer(self, key_func: Callable[..., Any], reducer: Reducer) -> Dataset[Any]:
        """Fold all elements of a key into one, and give one element for each key, in key order.

        `key_func` returns an element's key, a number or another hashable value. The input is read to its end before the
        first element comes; only the state of the `Reducer` is held for each key. A failed element is raised when it is
        read, and does not change the state of its key.

        >>> import asyncdata as ad
        >>> mean = ad.Reducer(
        ...     lambda key: (0, 0), lambda state, x: (state[0] + x, state[1] + 1), lambda total, count: total / count
        ... )
        >>> list(ad.Dataset.range(10).group_by_reducer(lambda x: x % 2, mean))
        [4.0, 5.0]
        """
        from asyncdata.transforms.group_by_reducer import GroupByReducer

        return self._next(GroupByReducer.of(self._plan, key_func, reducer))


for method_name in ("batch", "padded_batch"):
    setattr(Grouping, method_name, answering(getattr(Grouping, method_name)))

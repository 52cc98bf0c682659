"""Dataset: a description of a pipeline: where its elements come from, what it is, and how it is iterated."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar, overload

import numpy as np
import numpy.typing as npt

from asyncdata.dataset_arguments import (
    MethodOfClass,
    check_plan,
    check_reduce,
    check_repeatable,
    length,
    named_plans_of,
    plans_of,
    reduced,
    single,
    spec_of_first,
    state_without_epoch,
)
from asyncdata.elements.element_types import Leaf, NamedTupleLike, Numbers, Scalar, T_co
from asyncdata.elements.structure import as_arrays, check_signature, conform, open_level
from asyncdata.elements.validation import check_choice, check_flag
from asyncdata.engines.base import running_loop
from asyncdata.engines.no_loop import elements_by_hand
from asyncdata.epochs import Epochs
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.formats.record_limits import CACHED_RECORD_BYTES
from asyncdata.graph.node import Node, check_count
from asyncdata.iterator import DatasetIterator, next_block
from asyncdata.options import Options
from asyncdata.planning.optimizer import Planner
from asyncdata.sources.in_memory import Chosen, Counter, Items, Random, Range, Sliced, Slices, Source, Tensors
from asyncdata.states import ResumePoint, chosen_seeds, fingerprint, place_of, place_of_origins, plan_of_next_epoch
from asyncdata.transformations import Transformations, dataset_for
from asyncdata.transforms.map import Map
from asyncdata.transforms.prefetch_to_device import check_last, take_few

if TYPE_CHECKING:
    from torch import Tensor

    from asyncdata.integrations.loader import Loader
    from asyncdata.integrations.progress import Progress
    from asyncdata.observe.explanation import Explanation
    from asyncdata.persistence.saved_dataset import Saved
    from asyncdata.persistence.shard_formats import ShardFormat
    from asyncdata.recorder.exclusion import Exclusion
    from asyncdata.recorder.replay import Replay
    from asyncdata.sources.listing import Pattern
    from asyncdata.storage.cache_dir import CacheDir
    from asyncdata.tee import Consumer
    from asyncdata.transforms.mixture_weights import WeightsGiven
    from asyncdata.web.channel import Channel
    from asyncdata.web.durable import DurableChannel

__all__ = ("Dataset",)

U = TypeVar("U")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Dataset(Transformations[T_co]):
    """An immutable description of a pipeline. Building one starts nothing; iterating it runs it.

    Iterate with `for` or `async for`, any number of times; each time is an epoch, and starts again. A dataset that is
    made from a shuffled one starts at the other's next epoch, and its epochs count for the other too: `ds.take(3)` in a
    loop over epochs reshuffles. Two datasets that are made from one dataset count separately: `ds.take(n)` and
    `ds.skip(n)`, both made before either is iterated, have no element in common in the same epoch.

    >>> import asyncdata as ad
    >>> ds = ad.Dataset.range(10).map(lambda x: x * x).batch(4)
    >>> for batch in ds:
    ...     print(batch)
    [0 1 4 9]
    [16 25 36 49]
    [64 81]
    """

    def __init__(self, plan: Node, options: Options | None = None, made_from: Sequence[Dataset[Any]] = ()) -> None:
        check_last(check_plan(plan), made_from)
        self._plan, self._options, self._planner = plan, options or Options(), Planner(options or Options())
        self._epochs = Epochs.after({epochs_of(dataset): dataset.plan for dataset in made_from})

    def __getstate__(self) -> tuple[Node, Options, int]:
        return self._plan, self._options, self._epochs.next

    def __setstate__(self, state: tuple[Node, Options, int]) -> None:
        self._plan, self._options, epoch = state
        self._planner = Planner(self._options)
        self._epochs = Epochs(epoch)

    @property
    def plan(self) -> Node:
        """The tree of nodes that this dataset is.

        >>> import asyncdata as ad
        >>> plan = ad.Dataset.range(9).skip(2).batch(4).plan
        >>> print(plan)
        range(9) → skip(2) → batch(4)
        >>> type(plan).__name__, [node.label() for node in plan.inputs]
        ('Batch', ['skip(2)'])
        """
        return self._plan

    # sources

    @overload
    @staticmethod
    def range(*args: int, output_type: None = None) -> Dataset[int]: ...
    @overload
    @staticmethod
    def range(*args: int, output_type: type[Scalar]) -> Dataset[Scalar]: ...
    @overload
    @staticmethod
    def range(*args: int, output_type: npt.DTypeLike) -> Dataset[Any]: ...

    @staticmethod
    def range(*args: int, output_type: npt.DTypeLike | None = None) -> Dataset[Any]:
        """Integers as Python's `range(stop)`, `range(start, stop)` or `range(start, stop, step)` gives them.

        With an `output_type` they are NumPy scalars of that dtype, of integers or floats; batches are int64 without.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(2, 8, 3))
        [2, 5]
        >>> list(ad.Dataset.range(2, output_type="int32"))
        [np.int32(0), np.int32(1)]
        """
        return Dataset(Range.of(args, output_type))

    @overload
    @staticmethod
    def counter(start: int = 0, step: int = 1, dtype: None = None) -> Dataset[int]: ...
    @overload
    @staticmethod
    def counter(start: int = 0, step: int = 1, *, dtype: type[Scalar]) -> Dataset[Scalar]: ...
    @overload
    @staticmethod
    def counter(start: int = 0, step: int = 1, *, dtype: npt.DTypeLike) -> Dataset[Any]: ...

    @staticmethod
    def counter(start: int = 0, step: int = 1, dtype: npt.DTypeLike | None = None) -> Dataset[Any]:
        """Integers from `start` in steps of `step`, forever.

        With a `dtype` they are NumPy scalars of it, of integers or floats; beyond the largest comes the smallest.
        `start` and `step` are integers for each dtype: other numbers are a `map` of these.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.counter(5, 2).take(3))
        [5, 7, 9]
        >>> list(ad.Dataset.counter(1).map(lambda i: i * 0.5).take(3))
        [0.5, 1.0, 1.5]
        """
        return Dataset(Counter.of(start, step, dtype))

    @staticmethod
    def random(seed: int | None = None, rerandomize_each_iteration: bool | None = None) -> Dataset[int]:
        """Integers at random, each of 0 to 2**32 - 1 as likely, forever.

        The same seed gives the same numbers, on any machine and in each iteration unless `rerandomize_each_iteration`.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.random(seed=4).take(2)
        >>> list(ds) == list(ds)
        True
        """
        return Dataset(Random.of(seed, rerandomize_each_iteration))

    @overload
    @staticmethod
    def from_tensors(tensors: Leaf) -> Dataset[Leaf]: ...
    @overload
    @staticmethod
    def from_tensors(tensors: bool) -> Dataset[np.bool_]: ...  # pyright: ignore[reportOverlappingOverload]  also an int
    @overload
    @staticmethod
    def from_tensors(tensors: int) -> Dataset[np.int64]: ...
    @overload
    @staticmethod
    def from_tensors(tensors: float) -> Dataset[np.float64]: ...
    @overload
    @staticmethod
    def from_tensors(tensors: NamedTupleLike) -> Dataset[Any]: ...
    @overload
    @staticmethod
    def from_tensors(tensors: tuple[Any, Any]) -> Dataset[tuple[Any, Any]]: ...
    @overload
    @staticmethod
    def from_tensors(tensors: tuple[Any, Any, Any]) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    @staticmethod
    def from_tensors(tensors: dict[str, U]) -> Dataset[dict[str, Any]]: ...
    @overload
    @staticmethod
    def from_tensors(tensors: Any) -> Dataset[Any]: ...

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset[Any]:
        """One element: `tensors` itself, lists in it as arrays, arrays as read-only views.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_tensors([1, 2]))
        [array([1, 2])]
        """
        return Dataset(Tensors(as_arrays(tensors, Dataset, tensors=True)))

    @overload
    @staticmethod
    def from_tensor_slices(tensors: list[bool]) -> Dataset[np.bool_]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: list[int]) -> Dataset[np.int64]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: list[float]) -> Dataset[np.float64]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: list[Leaf]) -> Dataset[Leaf]: ...
    @overload
    @staticmethod
    def from_tensor_slices(
        tensors: list[list[bool]] | list[list[int]] | list[list[float]],
    ) -> Dataset[npt.NDArray[Any]]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: NamedTupleLike) -> Dataset[Any]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: tuple[Any, Any]) -> Dataset[tuple[Any, Any]]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: tuple[Any, Any, Any]) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: dict[str, U]) -> Dataset[dict[str, Any]]: ...
    @overload
    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset[Any]: ...

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset[Any]:
        """The rows of a structure of arrays or lists, all of one length: read-only views, nothing copied.

        Datasets in a list are rows, and stay what they are.

        >>> import asyncdata as ad
        >>> for row in ad.Dataset.from_tensor_slices({"x": [1, 2], "name": ["a", "b"]}):
        ...     print(row["x"], row["name"])
        1 a
        2 b
        >>> list(ad.Dataset.from_tensor_slices([ad.Dataset.range(2), ad.Dataset.range(3)]).interleave(lambda ds: ds))
        [0, 0, 1, 1, 2]
        """
        return Dataset(Slices.of(tensors, Dataset))

    @overload
    @staticmethod
    def from_list(elements: list[bool]) -> Dataset[np.bool_]: ...
    @overload
    @staticmethod
    def from_list(elements: list[int]) -> Dataset[np.int64]: ...
    @overload
    @staticmethod
    def from_list(elements: list[float]) -> Dataset[np.float64]: ...
    @overload
    @staticmethod
    def from_list(elements: list[Leaf]) -> Dataset[Leaf]: ...
    @overload
    @staticmethod
    def from_list(elements: list[list[bool]] | list[list[int]] | list[list[float]]) -> Dataset[npt.NDArray[Any]]: ...
    @overload
    @staticmethod
    def from_list(elements: list[tuple[Any, Any]]) -> Dataset[tuple[Any, Any]]: ...
    @overload
    @staticmethod
    def from_list(elements: list[tuple[Any, Any, Any]]) -> Dataset[tuple[Any, Any, Any]]: ...
    @overload
    @staticmethod
    def from_list(elements: list[dict[str, U]]) -> Dataset[dict[str, Any]]: ...
    @overload
    @staticmethod
    def from_list(elements: list[Any]) -> Dataset[Any]: ...

    @staticmethod
    def from_list(elements: list[Any]) -> Dataset[Any]:
        """The elements of a list that is not empty. Lists in them become arrays; arrays are read-only views.

        Elements may have different shapes. An element of another structure or dtype than those before it is a
        `PlanError`.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_list([[1], [2, 3]]))
        [array([1]), array([2, 3])]
        """
        from asyncdata.sources.from_list import Elements

        return Dataset(Elements.of(elements, Dataset))

    @overload
    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[U]],
        *,
        args: Sequence[Any] | None = None,
    ) -> Dataset[U]: ...
    @overload
    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
    ) -> Dataset[Any]: ...

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
    ) -> Dataset[Any]:
        """What `generator(*args)` gives. It is called once for each epoch, and runs in a thread of its own.

        With a signature (a structure of `TensorSpec`) each element is converted to its dtypes; one that does not fit
        is a `StructureError` in its place. An exception in the generator is raised in its place too. Elements are read
        ahead and not copied, where tf.data copies: a generator that fills the same array or dict again for each element
        must yield copies (`yield dict(row)`).

        On resume it runs again up to the position, or continues at its own offset if it returns a `Stateful`.

        >>> import asyncdata as ad
        >>> def squares(n):
        ...     for i in range(n):
        ...         yield i * i
        >>> list(ad.Dataset.from_generator(squares, args=(4,)))
        [0, 1, 4, 9]
        """
        from asyncdata.source_arguments import generated

        return Dataset(generated(generator, output_types, output_shapes, args, output_signature))

    @staticmethod
    def from_iterable(iterable: Iterable[U]) -> Dataset[U]:
        """The items of an iterable, as they are. A sequence is read where it is, anything else in a thread of its own.

        Arrays in a collection are handed out as read-only views, its dicts and lists as copies. What an iterator makes
        belongs to its reader: as in `from_generator`, it must not change an array or a dict that it has given.

        On resume it is read again up to the position. A `Stateful` continues at its own offset, a sequence at the item.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.from_iterable("abc"))
        ['a', 'b', 'c']
        """
        from asyncdata.source_arguments import iterated

        if isinstance(iterable, Sequence) and not isinstance(iterable, deque):  # which has no slices
            return Dataset(Items(iterable))
        return Dataset(iterated(iterable))

    @staticmethod
    def from_source(source: Source[U] | Sliced[U], num_parallel_calls: int | None = None) -> Dataset[U]:
        """The elements of anything with `__len__` and `__getitem__`, read in threads, in order.

        If it has `get_batch(indices)`, or `__getitems__` as PyTorch's and Hugging Face's datasets have it, that method
        gets several indices at once. It has random access: `shuffle()` needs no buffer, `at(i)` reads one element in
        the calling thread, and a run resumes anywhere at once. What `__getitem__` raises is raised in its element's
        place.

        An array of HDF5 or Zarr, or another with a `shape` and no `len`, gives its rows along the first axis. Chunks
        are read as a whole, and the last four are kept; each process opens the file itself.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.from_source(["a", "b", "c"])
        >>> list(ds), ds[1]
        (['a', 'b', 'c'], 'b')
        """
        from asyncdata.source_arguments import plan_of_source

        return Dataset(plan_of_source(source, num_parallel_calls))

    @staticmethod
    def from_async_iterable(iterable: AsyncIterable[U] | Callable[[], AsyncIterator[U]]) -> Dataset[U]:
        """The items of an async iterable, run on the event loop of the task that iterates with `async for`.

        An async generator function is called once for each epoch. Under a plain `for` it runs on the pipeline's own
        loop. On resume it runs again up to the position, or continues at its own offset if it is `Stateful`. It must
        not change an array or a dict that it has given.

        >>> import asyncdata as ad
        >>> class Ticks:
        ...     async def __aiter__(self):
        ...         for i in range(3):
        ...             yield i
        >>> list(ad.Dataset.from_async_iterable(Ticks()))
        [0, 1, 2]
        """
        from asyncdata.source_arguments import async_iterated

        return Dataset(async_iterated(iterable))

    @staticmethod
    def from_channel(
        channel: Channel | DurableChannel | str | PathLike[str],
        *,
        decode: Callable[[bytes], Any] | None = None,
        schema: Any = None,
        max_age: float | None = None,
        min_version: int | Callable[[], int] | None = None,
        ack: Literal["state", "delivered"] = "state",
        follow: bool = True,
        sample: Literal["fifo", "uniform", "priority"] = "fifo",
        window: int | None = None,
        replay: int = 1,
        priority: Callable[[Any], Any] | None = None,
        seed: int | None = None,
    ) -> Dataset[Any]:
        """The items sent to a channel, in order. It waits for more until the channel is closed or ended.

        Each item of a `Channel` goes to one iteration. A `DurableChannel`, given by itself or by its path, stores them:
        each iteration starts at the oldest stored item, or resumes from a state exactly where that was taken.
        `ack="delivered"` is for programs that save no states: each item is given once and then removed, and an
        iteration starts where the last one stopped. Items that a pipeline had read ahead when it was left or killed are
        lost then. `decode` makes an item from the bytes of a line of NDJSON, or of another body.

        `schema` is the type of an item: a pydantic model, msgspec Struct, dataclass or TypedDict. Each item is made one
        of it; what is none is a `ValueError` in its place, that names the field.

        With `follow=False` it ends after the items stored now. A state from that end resumes with those that came
        since, except where groups are incomplete at the end, as after `group_by_window`: there it gives nothing more.

        An item is dropped when it is read if it arrived more than `max_age` seconds ago, or was sent with a version
        below `min_version`, a number or a function that returns the current one. The channel's `stats` counts it.

        With `replay` each item is given so many times, and one that fails once. They are drawn from a `window` of so
        many items: `sample` is "fifo", in turn, "uniform", or "priority", with a chance in proportion to
        `priority(item)`, a number of at least 0. A `window` of 1 repeats each item at once. An item that was given
        `replay` times leaves the window, and the next one takes its place. Nothing is drawn before the window is full,
        or the channel has ended. The same `seed` draws the same items, and so does a run that resumes.

        >>> import asyncdata as ad
        >>> channel = ad.Channel()
        >>> channel.send_nowait(["old"], version=1)
        >>> channel.send_nowait(["new"], version=2)
        >>> channel.close()
        >>> list(ad.Dataset.from_channel(channel, min_version=2)), channel.stats()["dropped"]
        (['new'], 1)
        """
        from asyncdata.transforms.replay_buffer import replayed
        from asyncdata.web.received import Freshness
        from asyncdata.web.sources import channel_source

        freshness = Freshness.of(max_age, min_version)
        source = channel_source(channel, freshness, decode, schema, ack, follow)
        return Dataset(replayed(source, sample, window, replay, priority, seed))

    @staticmethod
    def from_http_stream(
        url: str,
        *,
        decode: Callable[[bytes], Any] | None = None,
        headers: Mapping[str, str] | None = None,
        idle_seconds: float = 300.0,
        give_up_seconds: float = 300.0,
    ) -> Dataset[Any]:
        """What a web service streams: server-sent events, or NDJSON, as its Content-Type says; in order.

        An item is the JSON of an event's data, or of a line, as an object; or what `decode` makes of its bytes. One
        that is not JSON is an error in its place. If a connection for events breaks, or is silent for `idle_seconds`,
        it connects again with the id of the last event: a server that knows ids then sends each event once. It gives up
        if no event comes within `give_up_seconds` after that. A state resumes after such an id; one that was saved
        before the first id is a `ResumeError`. NDJSON ends with its body. If the body breaks off, that is a
        `ConnectionError`, or a `DataLossError` within compressed data; it cannot resume from a state. `headers` are
        sent with each request to the host of `url`. Needs `pip install 'asyncdata[web]'`.

        >>> import asyncdata as ad
        >>> changes = ad.Dataset.from_http_stream("https://stream.example/changes", headers={"Authorization": "..."})
        """
        from asyncdata.web.sources import http_stream_source

        return Dataset(http_stream_source(url, decode, headers, idle_seconds, give_up_seconds))

    @staticmethod
    def from_websocket(
        url: str,
        *,
        decode: Callable[[bytes], Any] | None = None,
        subscribe: str | bytes | Callable[[Any], str | bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        give_up_seconds: float = 300.0,
    ) -> Dataset[Any]:
        """The messages of a WebSocket, in order, until the server closes it with code 1000.

        An item is the JSON of a text message as an object, or a binary message as it is; or what `decode` makes of the
        bytes of either. If the connection breaks, or is closed with another code, as by a server that restarts, it
        connects again; it gives up if no message comes within `give_up_seconds` after that. What the server sends
        meanwhile is lost unless it is asked for: `subscribe` is sent first on each connection, a message or a function
        that makes one from the last item (`None` before the first). It does not resume from a state. Needs
        `pip install 'asyncdata[web]'`.

        >>> import asyncdata as ad
        >>> trades = ad.Dataset.from_websocket("wss://feed.example/trades", subscribe='{"channel": "trades"}')
        """
        from asyncdata.web.sources import websocket_source

        return Dataset(websocket_source(url, decode, subscribe, headers, give_up_seconds))

    @staticmethod
    def from_redis_stream(
        url: str,
        stream: str,
        *,
        start: Literal["oldest", "new"] = "oldest",
        group: str | None = None,
        consumer: str = "asyncdata",
        follow: bool = True,
        give_up_seconds: float = 300.0,
    ) -> Dataset[dict[str, bytes]]:
        """The entries of a Redis Stream, in order, each a dict of its fields; waits for more unless `follow=False`.

        It is read up to 1,000 entries at a time. An iteration starts at the oldest entry, or with `start="new"` at the
        first that arrives from now on. From a state it resumes exactly after the last element, by the ID of its entry.
        Entries that were removed before they were read are a `DataLossError` that says how many, and those behind them
        follow. Redis before version 7 does not count entries: there it is an error if the last entry that was read is
        gone with all before it, as later ones may be too. An entry with two fields of one name is a `ValueError` in its
        place.

        With a `group` the entries are shared out among its consumers, each of which needs a `consumer` name of its own.
        Each entry is given once and acknowledged when it is read. There are no states: entries that a pipeline had read
        ahead when it was left or killed are lost. A consumer that was killed before it acknowledged its entries gets
        these first when it returns under the same name.

        If the connection breaks it connects again; it gives up if no reply comes within `give_up_seconds` after that.
        Needs `pip install 'asyncdata[redis]'`.

        >>> import asyncdata as ad
        >>> samples = ad.Dataset.from_redis_stream("redis://localhost:6379/0", "samples")
        """
        from asyncdata.web.sources import redis_source

        return Dataset(redis_source(url, stream, start, group, consumer, follow, give_up_seconds))

    @staticmethod
    def from_kafka(
        servers: str,
        topic: str,
        *,
        start: Literal["oldest", "new"] = "oldest",
        follow: bool = True,
        give_up_seconds: float = 300.0,
        client: Mapping[str, Any] | None = None,
    ) -> Dataset[dict[str, Any]]:
        """The records of a topic of Kafka, as dicts; waits for more unless `follow=False`.

        An element has `key` and `value` (bytes or `None`), `headers` (a tuple of pairs of `str` and bytes), `timestamp`
        (milliseconds), `partition` and `offset`. Those of a partition come in order, those of several as they arrive.
        Transactions that were aborted, or are open, are not read. An iteration starts at the oldest record, or with
        `start="new"` at the next one. From a state, which has an offset for each partition, it resumes exactly after
        the last element; nothing is committed. Records that were removed before they were read are a `DataLossError`
        that says how many offsets they had, and those behind them follow; keys that compaction removed are no error.
        Several readers share the partitions by `shard` right after it.

        `servers` are `"host:port"`, several with commas. `client` has further arguments of `AIOKafkaConsumer`, as for
        SASL and TLS. Needs `pip install 'asyncdata[kafka]'`.

        >>> import asyncdata as ad
        >>> samples = ad.Dataset.from_kafka("localhost:9092", "samples").map(lambda record: record["value"])
        """
        from asyncdata.web.sources import kafka_source

        return Dataset(kafka_source(servers, topic, start, follow, give_up_seconds, client))

    @staticmethod
    def from_nats(
        url: str,
        stream: str,
        *,
        subject: str | None = None,
        start: Literal["oldest", "new"] = "oldest",
        durable: str | None = None,
        follow: bool = True,
        give_up_seconds: float = 300.0,
    ) -> Dataset[bytes]:
        """The messages of a JetStream stream of NATS, in order, as bytes; waits for more unless `follow=False`.

        It is read up to 1,000 messages at a time. A `subject`, which may have wildcards, selects messages. An iteration
        starts at the oldest message, or with `start="new"` at the first that arrives from now on. From a state it
        resumes exactly after the last element, by the number of its message. Messages that the stream removed before
        they were read are a `DataLossError` that says how many, and those behind them follow.

        With the name of a `durable` consumer, which is created if it does not exist and must be a pull consumer, the
        messages are shared out among all its readers. Each is given once and acknowledged when it is read. There are no
        states: messages that a pipeline had read ahead when it was left or killed are lost.

        If the connection breaks it connects again; it gives up if no reply comes within `give_up_seconds` after that.
        Needs `pip install 'asyncdata[nats]'`.

        >>> import asyncdata as ad
        >>> samples = ad.Dataset.from_nats("nats://localhost:4222", "samples", subject="sensors.*")
        """
        from asyncdata.web.sources import nats_source

        return Dataset(nats_source(url, stream, subject, start, durable, follow, give_up_seconds))

    @staticmethod
    def list_files(
        file_pattern: Pattern | Sequence[Pattern],
        shuffle: bool | None = None,
        seed: int | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: str | PathLike[str] | CacheDir | None = None,
    ) -> Dataset[str]:
        """The paths that match one or several glob patterns, listed now; shuffled each epoch unless `shuffle=False`.

        All paths are sorted together. A path that matches several patterns is listed once for each. `FileNotFoundError`
        if nothing matches. `**` matches folders of any depth, `*` matches no hidden files, and `[^a]` is any character
        but `a`, as `[!a]`. A backslash before `*`, `?` or `[` makes it literal, except on Windows.

        Patterns may be URLs of object stores: `s3://`, `gs://`, `az://`. `storage_options` say how to reach them, by
        obstore's names (`endpoint`, `region`, `access_key_id`, ...), where the environment does not. With a `cache_dir`
        the listing is kept in that folder, and used, with a warning in the log, if no server answers.

        >>> import asyncdata as ad, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in "ab":
        ...         _ = (pathlib.Path(folder) / name).write_text("x")
        ...     [path[-1] for path in ad.Dataset.list_files(folder + "/*", shuffle=False)]
        ['a', 'b']
        """
        from asyncdata.sources.listing import buffer_for, listed

        in_order = check_choice("list_files", "shuffle", shuffle) is False
        files: Dataset[str] = Dataset(listed("list_files", file_pattern, in_order, storage_options, cache_dir))
        return files if in_order else files.shuffle(buffer_for(files.plan), seed=seed)

    @staticmethod
    def load(
        path: str | PathLike[str],
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Dataset[Dataset[Any]]], Dataset[Any]] | None = None,
        *,
        max_record_bytes: int = CACHED_RECORD_BYTES,
    ) -> Dataset[Any]:
        """The elements that `save` wrote to a folder, in the order in which they were saved, shard by shard.

        Their number is known, and if they are not compressed they have random access: `dataset[i]`, `shuffle()`. With
        an `element_spec` each is converted to it. `reader_func` gets a dataset of the shards, each a dataset, and
        returns the dataset to read. A corrupt element is a `DataLossError` in its place, and so is one of more than
        `max_record_bytes` (4 GiB) in its file; the rest of that file is not read.

        >>> import asyncdata as ad, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
        >>> ad.Dataset.range(6).save(path, shard_func=lambda x: x % 2)
        >>> list(ad.Dataset.load(path))
        [0, 2, 4, 1, 3, 5]
        >>> list(ad.Dataset.load(path, reader_func=lambda shards: shards.interleave(lambda shard: shard)))
        [0, 1, 2, 3, 4, 5]
        """
        from asyncdata.persistence.saved_dataset import Saved
        from asyncdata.storage import local_path

        most = check_count("load", "max_record_bytes", max_record_bytes, 1)
        return loaded(Saved.at(local_path(path), compression, most), element_spec, reader_func)

    # several datasets

    @overload
    @staticmethod
    def zip(a: Dataset[A], /) -> Dataset[A]: ...
    @overload
    @staticmethod
    def zip(a: Dataset[A], b: Dataset[B], /) -> Dataset[tuple[A, B]]: ...
    @overload
    @staticmethod
    def zip(a: Dataset[A], b: Dataset[B], c: Dataset[C], /) -> Dataset[tuple[A, B, C]]: ...
    @overload
    @staticmethod
    def zip(a: Dataset[A], b: Dataset[B], c: Dataset[C], d: Dataset[D], /) -> Dataset[tuple[A, B, C, D]]: ...
    @overload
    @staticmethod
    def zip(
        a: Dataset[A], b: Dataset[B], c: Dataset[C], d: Dataset[D], e: Dataset[E], /
    ) -> Dataset[tuple[A, B, C, D, E]]: ...
    @overload
    @staticmethod
    def zip(datasets: tuple[Dataset[A], Dataset[B]]) -> Dataset[tuple[A, B]]: ...
    @overload
    @staticmethod
    def zip(datasets: tuple[Dataset[A], Dataset[B], Dataset[C]]) -> Dataset[tuple[A, B, C]]: ...
    @overload
    @staticmethod
    def zip(datasets: dict[str, Dataset[Any]]) -> Dataset[dict[str, Any]]: ...
    @overload
    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset[Any]: ...

    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset[Any]:
        """Element i of every dataset as one element; `args` are datasets, or one tuple or dict of them.

        Ends with the shortest. If one fails at i, element i of the result fails.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.zip(ad.Dataset.range(2), ad.Dataset.from_iterable("ab")))
        [(0, 'a'), (1, 'b')]
        """
        if args and datasets is not None:
            raise PlanError("zip takes its datasets as arguments or as datasets=, and got both")
        return zipped(args if datasets is None else (datasets,))

    @staticmethod
    def sample_from_datasets(
        datasets: Mapping[str, Dataset[U]] | Sequence[Dataset[U]],
        weights: WeightsGiven | Mapping[int, WeightsGiven] | Callable[[int], WeightsGiven] | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
        cost: Callable[..., float] | None = None,
    ) -> Dataset[U]:
        """Elements of several datasets at random: each is the next one of a dataset that is drawn by `weights`.

        Without weights all datasets are equally likely. The same seed gives the same draws, on any machine and in each
        iteration, unless `rerandomize_each_iteration`. A dataset that has ended is no longer drawn; with
        `stop_on_empty_dataset` its end is the end of all. A run may resume from a state with other weights, which hold
        from there on.

        In a dict the datasets have names, and `weights` is a dict too. Messages and statistics show the names, and a
        state finds each dataset by its name: the order may change, and with `strict=False` datasets may be added and
        removed. Weights may change with the step, the number of elements that the mixture has given: as a table of the
        weights from some steps on, `{0: weights, 10_000: weights}`, or as a function, `weights=lambda step: ...`, which
        is called for each step, also a little ahead, and must always return the same. `DatasetIterator.set_weights`
        changes them in a run. At a step at which no dataset that has a weight is left, the mixture ends; a `PlanError`
        if a dataset that is left may have a weight later.

        With a `cost`, such as `lambda row: len(row["tokens"])`, weights are of the sums of what elements cost, not of
        their numbers. Then nothing is drawn at random: the next element is of the dataset that is the furthest behind
        its share, so that none is ever further from it than by its costliest element. A cost is a number of at least 0;
        an element without one fails in its place.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.sample_from_datasets([ad.Dataset.range(9), ad.Dataset.range(90, 99)], [0.7, 0.3], seed=4)
        >>> list(ds.take(8))
        [0, 1, 2, 90, 3, 4, 5, 91]
        >>> parts = {"web": ad.Dataset.range(9), "code": ad.Dataset.range(90, 99)}
        >>> more_code = {0: {"web": 1, "code": 0}, 3: {"web": 0.1, "code": 0.9}}
        >>> list(ad.Dataset.sample_from_datasets(parts, more_code, seed=4).take(8))
        [0, 1, 2, 90, 91, 92, 3, 93]
        >>> parts = {"short": ad.Dataset.from_iterable("abcd"), "long": ad.Dataset.from_iterable(["eeee"])}
        >>> list(ad.Dataset.sample_from_datasets(parts, {"short": 0.5, "long": 0.5}, seed=1, cost=len))
        ['eeee', 'a', 'b', 'c', 'd']
        """
        return sampled(datasets, weights, seed, stop_on_empty_dataset, rerandomize_each_iteration, cost)

    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset[U]],
        choice_dataset: Dataset[int | np.integer[Any]],
        stop_on_empty_dataset: bool = True,
    ) -> Dataset[U]:
        """Elements of several datasets: each element of `choice_dataset` is the number of the dataset that gives the
        next one.

        It ends with the choices, or when a choice falls on a dataset that has ended. With `stop_on_empty_dataset=False`
        such choices are skipped instead. A choice that is no dataset's number is an `IndexError` in its place.

        >>> import asyncdata as ad
        >>> choices = ad.Dataset.from_iterable([0, 1, 1, 0])
        >>> list(ad.Dataset.choose_from_datasets([ad.Dataset.range(9), ad.Dataset.range(90, 99)], choices))
        [0, 90, 91, 1]
        """
        plans, options = plans_of("choose_from_datasets", datasets)
        choices = dataset_for("choose_from_datasets", choice_dataset)
        return chosen(plans, options.merge(choices.options()), choices, datasets, stop_on_empty_dataset)

    # all of it, or the beginning

    def _few(self, count: int) -> list[T_co]:
        """Return the first elements of the first epoch; without an event loop, where no step may wait."""
        epoch, by_hand = self._epochs.first, self._planner.runs_by_hand(self._plan)
        few = self._part(take_few(self._plan, count))
        return first_epoch(few, epoch) if by_hand is None else elements_by_hand(by_hand, count, epoch)

    def reduce(self, initial_state: U, reduce_func: Callable[[U, T_co], U]) -> U:
        """Fold all elements into one value, now: `state = reduce_func(state, element)`, by a plain function.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(5).reduce(0, lambda total, x: total + x)
        10
        """
        check_reduce(Call("reduce", reduce_func, spread=False))
        with self.iterate() as elements:
            return reduced(elements, initial_state, reduce_func)

    def to_list(self) -> list[T_co]:
        """Return all elements, of the next epoch, as a list.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(3).to_list()
        [0, 1, 2]
        """
        with self.iterate() as elements:
            return list(elements)

    def head(self, n: int = 5) -> list[T_co]:
        """Return the first `n` elements as a list: those of the first epoch, so that looking changes nothing.

        >>> import asyncdata as ad
        >>> ad.Dataset.counter().head(3)
        [0, 1, 2]
        """
        count = check_count("head", "n", n, 0)
        check_repeatable(self._plan)
        return self._few(count)

    def peek(self) -> T_co:
        """Return the first element of the first epoch; `DatasetIterator.peek` is the next one of a running iteration.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(3).batch(2).peek()
        array([0, 1])
        """
        return single(self.head(1), "peek")

    def get_single_element(self) -> T_co:
        """Return the only element of the dataset; a `StructureError` if it has none, or more.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(3).batch(8).get_single_element()
        array([0, 1, 2])
        """
        return single(self._few(2), "get_single_element")

    def save(
        self,
        path: str | PathLike[str],
        compression: str | None = None,
        shard_func: Callable[..., int] | None = None,
        checkpoint_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Write all elements to a folder, now; `Dataset.load` reads them, in the same order.

        `shard_func(element)` returns the number of the file that an element goes to. Without it, files of 256 MB are
        filled one after another. `compression` is `"GZIP"`, `"ZLIB"` or none. Elements may be what `cache(filename)`
        can write.

        The folder is `<path>.partial` until it is complete. An empty folder at `path` is replaced. A save that was
        stopped continues when it is called again, from at most five seconds before the stop, or
        `checkpoint_args={"checkpoint_interval": n}` elements. If steps, functions, data in memory or seeds have changed
        by then, it is a `ResumeError`: delete the `.partial` folder.

        >>> import asyncdata as ad, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "squares")
        >>> ad.Dataset.range(4).map(lambda x: (x, x * x)).save(path)
        >>> squares = ad.Dataset.load(path)
        >>> len(squares), squares[3]
        (4, (3, 9))
        """
        from asyncdata.identity.content_hash import contents
        from asyncdata.persistence.saved_dataset import save
        from asyncdata.storage import local_path

        digests = contents(self._plan), chosen_seeds(self._plan)
        save(self, next_block, local_path(path), compression, shard_func, checkpoint_args, *digests)

    def write_tfrecords(
        self,
        path: str | PathLike[str],
        shards: int | None = None,
        compression_type: str | None = None,
        *,
        shard_bytes: int = 1 << 28,
        storage_options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[str]:
        """Write elements that are `bytes` to TFRecord files in a folder, which may be a URL; return their paths.

        Each file holds consecutive elements. There are `shards` files of as many elements each if the number of
        elements is known, else files of `shard_bytes` (256 MiB) before compression by `"GZIP"` or `"ZLIB"`. Their names
        are `00000.tfrecord` and so on; read in this order they give the dataset. A file appears when it is complete. If
        writing was stopped, another call continues after the last complete file; with other steps, functions, data in
        memory, seeds or shards that is a `ResumeError`. `progress(elements, shards)` is called after each file.
        `storage_options` are for `s3://`, `gs://` and `az://`.

        >>> import asyncdata as ad, os, tempfile
        >>> names = ad.Dataset.from_list([b"a", b"b", b"c"]).write_tfrecords(tempfile.mkdtemp(), shards=2)
        >>> [os.path.basename(name) for name in names], list(ad.TFRecordDataset(names))
        (['00000.tfrecord', '00001.tfrecord'], [b'a', b'b', b'c'])
        """
        from asyncdata.persistence.shard_formats import TFRecords

        return self._write_shards(TFRecords(), path, shards, shard_bytes, compression_type, storage_options, progress)

    def write_jsonl(
        self,
        path: str | PathLike[str],
        shards: int | None = None,
        compression_type: str | None = None,
        *,
        shard_bytes: int = 1 << 28,
        storage_options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[str]:
        """Write elements to files of JSON Lines in a folder, as `write_tfrecords` does; return their paths.

        Elements are values that JSON has, and arrays and numbers of NumPy, which become lists and numbers. Tuples
        become lists, and keys of dicts become strings.

        >>> import asyncdata as ad, tempfile
        >>> ds = ad.Dataset.from_iterable([{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}])
        >>> list(ad.JsonLinesDataset(ds.write_jsonl(tempfile.mkdtemp())))
        [{'id': 1, 'tags': ['a']}, {'id': 2, 'tags': []}]
        """
        from asyncdata.persistence.shard_formats import JsonLines

        return self._write_shards(JsonLines(), path, shards, shard_bytes, compression_type, storage_options, progress)

    def write_webdataset(
        self,
        path: str | PathLike[str],
        shards: int | None = None,
        compression_type: str | None = None,
        *,
        shard_bytes: int = 1 << 28,
        storage_options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[str]:
        """Write samples to tar archives in a folder, as `write_tfrecords` does; return their paths.

        An element is a dict of values by extension, as `WebDataset` reads them: a `str` for `txt`, an `int` for `cls`,
        a JSON value for `json`, an array for `npy`, and `bytes` for these and any other. `"__key__"` names the sample;
        the default is its number. Other names `__like_this__` are left out. A sample that could not be read back raises
        `StructureError`: one whose key has a dot, or is the key of the sample before it.

        >>> import asyncdata as ad, tempfile
        >>> ds = ad.Dataset.range(2).map(lambda x: {"jpg": b"(a picture)", "cls": x})
        >>> list(ad.WebDataset(ds.write_webdataset(tempfile.mkdtemp())))[1]
        {'__key__': '000000001', 'jpg': b'(a picture)', 'cls': 1}
        """
        from asyncdata.persistence.shard_formats import Samples

        return self._write_shards(Samples(), path, shards, shard_bytes, compression_type, storage_options, progress)

    def write_parquet(
        self,
        path: str | PathLike[str],
        shards: int | None = None,
        compression_type: str | None = None,
        *,
        schema: Any = None,
        shard_bytes: int = 1 << 28,
        storage_options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[str]:
        """Write rows to Parquet files in a folder, as `write_tfrecords` does; return their paths.

        An element is a dict of values by column; a missing column is None. `schema` is a `pyarrow.Schema` for all
        files. Without it the first row group (about 32 MB) decides the types: arrays of one shape have a fixed size,
        and arrays of one axis and several lengths are lists. A later value that does not fit is a `StructureError`.
        Pages are compressed by `"SNAPPY"`, `"ZSTD"`, `"GZIP"`, `"BROTLI"`, `"LZ4"` or `""`, none. `shard_bytes` counts
        compressed bytes, and a file ends with a row group. Needs `pip install 'asyncdata[parquet]'`.

        >>> import asyncdata as ad, tempfile
        >>> ds = ad.Dataset.range(3).map(lambda x: {"id": x, "name": f"n{x}"})
        >>> names = ds.write_parquet(tempfile.mkdtemp(), shards=1)  # doctest: +SKIP
        >>> next(iter(ad.ParquetDataset(names, ["id"]).batch(3)))  # doctest: +SKIP
        {'id': array([0, 1, 2])}
        """
        from asyncdata.persistence.shard_formats import ParquetRows

        form = ParquetRows(schema, compression_type, shard_bytes)
        return self._write_shards(form, path, shards, shard_bytes, None, storage_options, progress)

    def _write_shards(
        self,
        form: ShardFormat,
        path: str | PathLike[str],
        shards: int | None,
        shard_bytes: int,
        compression: str | None,
        storage_options: Mapping[str, Any] | None,
        progress: Callable[[int, int], object] | None,
    ) -> list[str]:
        from asyncdata.identity.content_hash import contents
        from asyncdata.persistence.shards import ShardedWrite

        digests_seeds_total = contents(self._plan), chosen_seeds(self._plan), self.cardinality()
        job = (path, shards, shard_bytes, compression, storage_options, progress, digests_seeds_total)
        return ShardedWrite.of(form, *job).run(self)

    # iteration

    def iterate(
        self, *, state: Mapping[str, Any] | None = None, strict: bool = True, epoch: int | None = None
    ) -> DatasetIterator[T_co]:
        """Return an iterator that is also a context manager: leaving `with` or `async with` ends all that it started.

        It is the next epoch, or epoch number `epoch`, after which the next ones follow.

        With a `state` from `DatasetIterator.state_dict` it resumes where that iterator stood, and the next iteration is
        the epoch after that one. `ResumeError` if the state is of another pipeline.

        With `strict=False` only the names of the steps must be the same. Maps and filters may be added, removed or
        changed; other steps may have other arguments, files other names and sizes. Below steps that may read their
        input again and count its elements (`cache`, `snapshot`, `unbatch`, `rebatch`, `flat_map`, `scan`,
        `group_by_window`, `unique`) only maps may change, and the key function, the reduction and the window size of
        `group_by_window` may not: `ResumeError`. Elements are lost only where a new filter or `skip` leaves them out, a
        smaller `take` ends earlier, or a new `drop_remainder=True` drops a remainder.

        >>> import asyncdata as ad
        >>> with ad.Dataset.counter().iterate() as numbers:
        ...     next(numbers)
        0
        """
        strictly = check_flag("iterate", "strict", strict)
        place = self._begin(epoch) if state is None else self._resume(state_without_epoch(state, epoch), strictly)
        return DatasetIterator(self._planner, place, self._resume)

    def state_before(
        self, step: int, *, epoch: int | None = None, record: str | PathLike[str] | None = None
    ) -> dict[str, Any]:
        """Return the state before a step of a recorded run: the next element that it gives is number `step`, from 0.

        The log is `record`, or that of `Options(record=)`, each as given there: of a dataset of one share it is that
        share's. If several runs came to the step, it is the state of the last one; `epoch` is needed if that is in
        several epochs. The elements since the last state in the log are made again, or skipped without reading them,
        as `DatasetIterator.skip` does. Records that `exclude` leaves out now were not left out then: the state is that
        of the run as it was.

        `DataLossError` if the log has no such step. `ResumeError` if it was written by another pipeline, if the data
        has changed, and, where the order was not fixed (`deterministic=False`), between two states.

        >>> import pathlib, tempfile
        >>> import asyncdata as ad
        >>> log = pathlib.Path(tempfile.mkdtemp(), "run.jsonl")
        >>> ds = ad.Dataset.range(8).shuffle(8, seed=1).batch(2).with_options(ad.Options(record=log))
        >>> [batch.tolist() for batch in ds]
        [[1, 4], [0, 3], [6, 7], [5, 2]]
        >>> [batch.tolist() for batch in ds.iterate(state=ds.state_before(2))]
        [[6, 7], [5, 2]]
        """
        from asyncdata.recorder.earlier_states import state_before

        return state_before(self._plan, self._options, record, check_count("state_before", "step", step, 0), epoch)

    def replay(self, origins: Iterable[Mapping[str, Any]]) -> Replay[T_co]:
        """Return exactly the elements with these origins, in this order: those of any steps, epochs and ranks.

        They are equal to the last bit, if functions and data are the same; a function that takes `rng=` gets the random
        numbers that it had. The elements before them are not made, and are not read where the source has random access;
        a source that is run again from its beginning runs again. `ResumeError` if an origin is of another pipeline, or
        of a source that can be read only once. See `DatasetIterator.origin`.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(8).map(lambda x, rng: x + rng.random(), rng=True, seed=1).batch(2)
        >>> batches, origins = [], []
        >>> with ds.iterate() as elements:
        ...     for batch in elements:
        ...         batches.append(batch.tolist())
        ...         origins.append(elements.origin())
        >>> again = [batch.tolist() for batch in ds.replay([origins[3], origins[0]])]
        >>> again == [batches[3], batches[0]]
        True
        """
        from asyncdata.recorder.replay import replayed

        return replayed(self._plan, origins, self._options)

    def locate(self, origin: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the records that the element with this origin was made from, in its order, as dicts.

        Each names a file and the record's number in it, or a source and the number there, both from 0. Nothing is
        read. What a step does not tell has the name `unknown`.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(5).repeat(2).batch(2)
        >>> with ds.iterate() as batches:
        ...     _ = next(batches), next(batches), next(batches)
        ...     ds.locate(batches.origin())
        [{'source': 'range(5)', 'index': 4, 'turn': 0}, {'source': 'range(5)', 'index': 0, 'turn': 1}]
        """
        from asyncdata.recorder.locations import records_of
        from asyncdata.recorder.replay import check_origin

        place = place_of_origins(self._plan, [check_origin(origin)])
        return records_of(place.plan, place.start.back[0])

    def exclude(self, records: Exclusion, *, keep_steps: bool = False) -> Dataset[T_co]:
        """Return a dataset in which some records are never given: of this pipeline, so call it last.

        Records are origins (`DatasetIterator.origin`), of which all records are left out, or dicts as `locate` returns
        them, such as `{"file": "a.tfrecord", "record": 12}`, whose file may be named without its folder; or the path of
        a file with such values, one a line, as `asyncdata replay --records` prints them. They are left out in every
        epoch and turn, also from a state that was taken before they were excluded.

        By default the next elements close the hole: batches are full, and the last one is smaller. With
        `keep_steps=True` each batch has the records that it would have had, without these, so steps keep their numbers,
        and all ranks have as many; a batch of which nothing is left is not given.

        An element that was made of several records before the first batch, as by `zip`, or by a function of `flat_map`,
        is left out as a whole. `PlanError` where single records cannot be left out, as of a cache of batches.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(8).shuffle(8, seed=1).batch(3)
        >>> [batch.tolist() for batch in ds]
        [[1, 4, 0], [3, 6, 7], [5, 2]]
        >>> bad = [{"source": "range(8)", "index": index} for index in (3, 4)]
        >>> [batch.tolist() for batch in ds.exclude(bad).iterate(epoch=0)]
        [[1, 0, 6], [7, 5, 2]]
        >>> [batch.tolist() for batch in ds.exclude(bad, keep_steps=True).iterate(epoch=0)]
        [[1, 0], [6, 7], [5, 2]]
        """
        from asyncdata.recorder.exclusion import excluded

        return self._next(excluded(self._plan, records, check_flag("exclude", "keep_steps", keep_steps)))

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next iteration, from 0. The order of `shuffle` and other random draws depend on it.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(9).shuffle(seed=1)
        >>> epochs = [list(ds) for _ in range(3)]
        >>> ds.set_epoch(1)
        >>> list(ds) == epochs[1], list(ds) == epochs[2], list(ds.iterate(epoch=0)) == epochs[0]
        (True, True, True)
        """
        self._epochs.set(check_count("set_epoch", "epoch", epoch, 0))

    def __iter__(self) -> DatasetIterator[T_co]:
        return self.iterate()

    def __aiter__(self) -> DatasetIterator[T_co]:
        return self.iterate()

    def as_numpy_iterator(self) -> DatasetIterator[Any]:
        """Iterate with every number as a NumPy scalar and every list as an array.

        >>> import asyncdata as ad
        >>> next(ad.Dataset.range(3).as_numpy_iterator()).dtype
        dtype('int64')
        """
        numpied = Map(self._plan, (Call("map", as_arrays, spread=False),))
        return DatasetIterator(Planner(self._options), ResumePoint(numpied, self._epochs.begin()))

    def tee(self, n: int, buffer_size: int = 16) -> tuple[Consumer[T_co], ...]:
        """Start one iteration for `n` consumers, each of which gets every element; nothing is read or made twice.

        Read each consumer with `for` in a thread of its own, or all with `async for` in tasks of one loop. A consumer
        that is `buffer_size` elements behind blocks the others, so read them together, not one after the other. A
        consumer that leaves early (by `with` or `close()`) does not block the others. The last one to leave ends the
        pipeline. An error in an element's place is raised for all. Arrays are shared and read-only: take a `.copy()` to
        change one.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> async def total(numbers):
        ...     return sum([x async for x in numbers])
        >>> async def both():
        ...     first, second = ad.Dataset.range(100).tee(2)
        ...     return await asyncio.gather(total(first), total(second))
        >>> asyncio.run(both())
        [4950, 4950]
        """
        from asyncdata.tee import consumers

        check_count("tee", "n", n, 1)
        return consumers(self.iterate(), n, check_count("tee", "buffer_size", buffer_size, 1))

    # for training loops

    @overload
    def loader(self: Dataset[Never], device: Any = None) -> Loader[Any]: ...
    @overload
    def loader(self: Dataset[Numbers], device: str | None = None) -> Loader[Tensor]: ...
    @overload
    def loader(self: Dataset[NamedTupleLike], device: Any = None) -> Loader[Any]: ...
    @overload
    def loader(self: Dataset[tuple[Any, Any]], device: Any = None) -> Loader[tuple[Any, Any]]: ...
    @overload
    def loader(self: Dataset[tuple[Any, Any, Any]], device: Any = None) -> Loader[tuple[Any, Any, Any]]: ...
    @overload
    def loader(self: Dataset[dict[str, Any]], device: Any = None) -> Loader[dict[str, Any]]: ...
    @overload
    def loader(self, device: Any = None) -> Loader[Any]: ...

    def loader(self, device: Any = None, **of_torch: Never) -> Loader[Any]:
        """Return a loader for trainers: batches as tensors, with `len`, `set_epoch` and a state that resumes.

        Each `for` or `async for` over it is an epoch. The loader has `state_dict` and `load_state_dict`, so Lightning
        and accelerate save its state in their checkpoints: see docs/pytorch.md. Arrays of numbers become tensors of
        PyTorch that share their memory, other leaves stay what they are. With a `device`, such as `"cuda"`, batches are
        copied to it ahead of time; with a device of JAX they are JAX's arrays: see `prefetch_to_device`. It has no
        arguments of PyTorch's DataLoader: the `TypeError` for one says what to write instead.

        >>> import asyncdata as ad
        >>> batches = ad.Dataset.range(6).batch(2).loader()  # doctest: +SKIP
        >>> next(iter(batches))  # doctest: +SKIP
        tensor([0, 1])
        """
        from asyncdata.integrations.loader import loader_for

        return loader_for(self, device, of_torch)

    def to_torch(self) -> Any:
        """Return a `torch.utils.data.IterableDataset` with elements as tensors, for programs that require one.

        Where this dataset makes the batches, use `DataLoader(ds.to_torch(), batch_size=None)`. With `num_workers=n`
        each worker runs the entire pipeline and gives every n-th element; the order is the same as without workers.
        Leave it at 0: the pipeline has threads and processes of its own, and a worker of a DataLoader may start no
        processes. Its iterators have `state_dict` and `load_state_dict`, for `torchdata.stateful_dataloader`. See
        docs/pytorch.md.

        >>> import asyncdata as ad
        >>> from torch.utils.data import DataLoader  # doctest: +SKIP
        >>> batches = DataLoader(ad.Dataset.range(6).batch(2).to_torch(), batch_size=None)  # doctest: +SKIP
        >>> next(iter(batches))  # doctest: +SKIP
        tensor([0, 1])
        """
        from asyncdata.integrations.torch_dataset import torch_dataset

        return torch_dataset(self)

    def to_keras(self) -> Any:
        """Return a dataset for Keras's `fit`, `evaluate` and `predict`, with the batches that this dataset makes.

        A batch is `(inputs, targets)`, or another form that Keras accepts. Each of Keras's epochs is one of this
        dataset. With the backends torch and jax it is a `keras.utils.PyDataset` that has `state_dict` and
        `load_state_dict`, see docs/pytorch.md; with tensorflow it is a `tf.data.Dataset`, which has none.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.from_tensor_slices(([[1.0], [2.0]], [[2.0], [4.0]])).batch(2)
        >>> model.fit(ds.to_keras(), epochs=3)  # doctest: +SKIP
        """
        from asyncdata.integrations.keras import keras_dataset

        return keras_dataset(self)

    # elements by number

    def at(self, index: int) -> T_co:
        """Return element `index` alone, as in the first epoch; `dataset[index]` is the same, from the end if negative.

        `PlanError` if the dataset has no random access, `IndexError` if it has fewer elements. The error of a damaged
        file that `skip` or `shard` raises although they leave out its place has no number. It takes about 25 µs in
        the calling thread if no step waits; this includes `from_source`, and functions that are `pure` or placed by
        AUTOTUNE. Elsewhere (threads that you asked for, processes, coroutine functions, files) a call starts a
        pipeline, which takes half a millisecond.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(10**9).map(lambda x: x * x).at(10**6)
        1000000000000
        """
        chosen, by_hand = Chosen.of(self._plan, index), self._planner.runs_by_hand(self._plan, alone=True)
        if by_hand is not None:
            return single(elements_by_hand(Chosen(by_hand, chosen.places), 1, self._epochs.first), "at")
        return single(first_epoch(Dataset[T_co](chosen, self._options), self._epochs.first), "at")

    def __getitem__(self, index: int) -> T_co:
        return self.at(index)

    # what it is

    def progress(self, description: str = "") -> Progress[T_co]:
        """Iterate with a bar: elements, pace, time left, and for how much of its time the loop waited for elements.

        It runs the next epoch, as `iterate` does, and works with `for` and `async for`; the iterator itself is
        `.elements`. The bar is tqdm's (`pip install 'asyncdata[observe]'`), on terminals and in notebooks; elsewhere
        nothing is shown.

        >>> import asyncdata as ad
        >>> list(ad.Dataset.range(5).progress("numbers"))  # doctest: +SKIP
        numbers: 100%|██████████| 5/5 [00:00<00:00, 9532.51 elements/s, waiting 3%]
        [0, 1, 2, 3, 4]
        """
        from asyncdata.integrations.progress import progress_of

        return progress_of(self.iterate, self._plan.cardinality, description)

    def cardinality(self) -> int:
        """Return the number of elements, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(10).batch(3).cardinality()
        4
        """
        return self._plan.cardinality

    def __len__(self) -> int:
        return length(self._plan.cardinality)

    def __bool__(self) -> bool:
        return True

    @property
    def element_spec(self) -> Any:
        """The structure of elements, as `TensorSpec`s: from the plan, else from the first element.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(3).batch(2).element_spec
        TensorSpec(shape=(None,), dtype=int64)
        """
        known = self._plan.signature
        return spec_of_first(self.head(1)) if known is None else known

    def fingerprint(self) -> str:
        """Return a hash of the pipeline: its steps, their arguments, functions, data in memory and the seeds given.

        Two pipelines with the same hash resume from each other's states, whichever share they read. Compare it between
        processes, or store it with results. Functions are compared by their code, as for `cache(filename)`, within one
        minor version of Python; files by full path, size and modification time.

        >>> import asyncdata as ad
        >>> ad.Dataset.range(9).shuffle(4, seed=1).fingerprint() == ad.Dataset.range(9).shuffle(4, seed=2).fingerprint()
        False
        """
        return fingerprint(self._plan)

    def explain(self) -> Explanation:
        """Return the plan before and after the rewrites, how it resumes from a state, and what each rewrite did.

        Where functions name `decode_image` and the like, it says by which packages these decode. `exact` means that it
        resumes at the element. Otherwise it names the steps that repeat work; the elements are
        the same either way. The datasets that `flat_map` and `interleave` will make are not included.

        Notebooks show it as a picture, the plan beside what runs, and `explain().plot("plan.svg")` writes that. After
        an iteration in this process it also shows the measurements of each step.

        >>> import asyncdata as ad
        >>> print(ad.Dataset.range(9).skip(0).take(2).explain())
        plan       range(9) → skip(0) → take(2)
        runs as    range(9) → take(2) → prefetch(AUTOTUNE)
        placement  thread
        resume     exact
        rewrites
          noop_elimination  range(9) → skip(0)  ⇒  range(9)
          inject_prefetch  range(9) → take(2)  ⇒  range(9) → take(2) → prefetch(AUTOTUNE)
        """
        from asyncdata.observe.explanation import explanation_of

        return explanation_of(self._plan, self._options, self._planner.ran)

    def __repr__(self) -> str:
        return f"<Dataset {self._plan}>"

    def _begin(self, epoch: int | None = None) -> ResumePoint:
        """Return the start of an epoch; the default is the next one."""
        number = None if epoch is None else check_count("iterate", "epoch", epoch, 0)
        return ResumePoint(self._plan, self._epochs.begin(number), run=self._epochs.run)

    def _resume(self, state: Mapping[str, Any], strict: bool) -> ResumePoint:
        """Return the place in a state; the next epoch is the one after it."""
        place = place_of(self._plan, state, strict, self._options)
        self._plan = plan_of_next_epoch(place.plan)
        return self._epochs.resume(place)

    def _next(self, plan: Node, options: Options | None = None, *others: Dataset[Any]) -> Dataset[Any]:
        return Dataset(plan, options or self._options, (self, *others))

    def _part(self, plan: Node) -> Dataset[Any]:
        return Dataset(plan, self._options)


def epochs_of(dataset: Dataset[Any]) -> Epochs:
    return dataset._epochs  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


# Not as decorators: type checkers take only `staticmethod` itself for one.
for method_name in ("zip", "sample_from_datasets", "choose_from_datasets"):
    setattr(Dataset, method_name, MethodOfClass(getattr(Dataset, method_name)))


def zipped(args: tuple[Any, ...]) -> Dataset[Any]:
    from asyncdata.transforms.zip import Zip

    structure = args[0] if len(args) == 1 else args
    level = open_level(structure)
    if level is None:
        return dataset_for("zip", structure)
    datasets = [zipped((part,)) for part in level.parts]
    if not datasets:
        raise PlanError("zip needs at least one dataset")
    options = Options()
    for dataset in datasets:
        options = options.merge(dataset.options())
    rebuild = tuple if type(structure) is tuple else level.rebuild
    return Dataset(Zip(tuple(dataset.plan for dataset in datasets), rebuild), options, datasets)


def loaded(
    saved: Saved, spec: Any, reader_func: Callable[[Dataset[Dataset[Any]]], Dataset[Any]] | None
) -> Dataset[Any]:
    """Return the saved dataset, read with the arguments of `load`."""
    dataset = Dataset[Any](saved.plan())
    if reader_func is not None:
        shards = Dataset.from_iterable([Dataset[Any](saved.file(path)) for path in saved.shards])
        dataset = dataset_for("load(reader_func=)", reader_func(shards))
    if spec is None:
        return dataset
    call = Call("load", partial(conform, signature=check_signature("load(element_spec=)", spec)), spread=False)
    call.label = "load(element_spec=)"  # a line inside this package would not help the user
    return Dataset(Map(dataset.plan, (call,)), made_from=(dataset,))


def sampled(
    datasets: Any,
    weights: Any,
    seed: int | None,
    stop: bool,
    rerandomize: bool | None,
    cost: Callable[..., float] | None,
) -> Dataset[Any]:
    """Return the dataset of elements that are drawn from several."""
    from asyncdata.transforms.sample_from_datasets import Sample

    names, plans, options = named_plans_of("sample_from_datasets", datasets)
    plan = Sample.of(plans, weights, seed, stop=stop, rerandomize=rerandomize, names=names, cost=cost)
    return Dataset(plan, options, [*datasets.values()] if names else datasets)


def chosen(
    plans: tuple[Node, ...], options: Options, choices: Dataset[Any], datasets: Sequence[Dataset[Any]], stop: bool
) -> Dataset[Any]:
    """Return the dataset whose elements `choices` selects."""
    from asyncdata.transforms.sample_from_datasets import Choose

    return Dataset(Choose.of(plans, choices.plan, stop=stop), options, (*datasets, choices))


def first_epoch(dataset: Dataset[U], epoch: int) -> list[U]:
    """Return an epoch of a dataset of few elements, made in this thread if possible, as that starts sooner.

    It is not possible if an event loop already runs here, or if the options choose another placement.
    """
    options = dataset.options().without("record")  # looking is no run
    if options.placement is None and running_loop() is None:
        options = options.merge(Options(placement="current"))
    with DatasetIterator[U](Planner(options), ResumePoint(dataset.plan, epoch)) as elements:
        return list(elements)

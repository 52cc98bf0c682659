"""asyncdata: data pipelines for training, asyncio inside, tf.data's vocabulary outside.

Layout, lowest first. A module imports only from those before it (`tests/test_architecture.py` has the exact order).
Names in brackets are the files to begin with.

    lazy_names        how a package imports a module when a name of it is asked for first
    errors            the exceptions of the package, which hide secrets in their texts (redaction)
    system/           what surrounds a pipeline: forks (forks), Ctrl-C and signals (sigint, signal_handlers), cores,
                      memory (host_resources), ranks (rank), packages that may be missing (optional_packages)
    memory/           reused buffers for large arrays (buffer_pool), copies by two threads, `empty()`
    elements/         elements: what may be one (tree), tensors (tensors), specs, columns, ragged rows
    formats/          bytes to records and back, without I/O; compressions (compression)
    options           Options and the constants of tf.data; Cluster (cluster_settings)
    runtime/          what exists while elements flow: blocks (block), positions of elements (tickets), queues (queue),
                      the memory budget (memory_budget), open files (open_files), resharding (resharding)
    statistics/       what is counted while a pipeline runs (statistics), and which resource is the limit (bottleneck)
    storage/          bytes at a path or URL: local files (local), object stores (objects), parallel requests
                      (read_ahead, request_limit), retries (retries), a cache on disk
    executors/        how functions are called: in threads, as tasks, in worker processes; the order of results and how
                      many are in flight (inflight_window), AUTOTUNE (autotune); process/: the pool, and what happens
                      when a worker dies (pool)
    graph/            the tree of nodes (node), the stages that run them (stages), which workers a step has
    sources/          the nodes without an input, a file for each kind; they open and close files (parsed_files)
    steps             what the author of a step may touch: all that a step is written with
    transforms/       the nodes with inputs, a file for each method; how some resume (interleave_position)
    engines/          where a pipeline runs: current loop, thread, no loop
    identity/         what makes two pipelines the same (labels, content_hash), and whether a position fits one
                      (position_check, similar_plan, mixtures)
    cluster/          the same calls made by actors of a Ray cluster
    devices/          copies to an accelerator: what a new one implements (base), the thread that copies (copy_thread),
                      what the consumer reads (queue)
    planning/         what becomes of a plan before it runs: rewrite rules (optimizer), steps that a cluster runs
    observe/          traces, pictures of the plan, metrics, the dashboard (its numbers are those of statistics/)
    process_engine/   a pipeline in a process of its own
    states            what states hold, and whether they fit a pipeline
    checkpoint        states in files, merging them
    epochs            which epoch comes next
    persistence/      elements on disk: caches, snapshots, saved datasets, shards
    grouping          the methods of Dataset that put elements together, or take them apart
    transformations   its other methods that return a dataset; what they are given (transformation_arguments)
    iterator          one pass over a dataset
    torch/            `asyncdata.torch.DataLoader`, with PyTorch's arguments (dataloader)
    integrations/     loaders of PyTorch, Lightning, Keras; progress bars
    web/              an ASGI application that takes POST requests (http), the channel that they go to (channel),
                      what makes elements of them (received), queues of other services (kafka_topic, queue_reader)
    recorder/         which records made an element, logs of runs, and records left out
    dataset, tee      the class Dataset, and what its methods are given (dataset_arguments, source_arguments); several
                      consumers of one iteration
    readers/          the datasets of files that users see, a file for each format
    experimental      the names of tf.data.experimental
    testing           for tests of users
    demo/             the example training job
    cli/, __main__    the command line
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncdata.lazy_names import importer

if TYPE_CHECKING:
    from asyncdata import checkpoint, experimental, observe, web
    from asyncdata import errors as errors
    from asyncdata.cluster_settings import Cluster
    from asyncdata.dataset import Dataset
    from asyncdata.elements.ragged import Ragged
    from asyncdata.elements.spec import RaggedTensorSpec, TensorSpec
    from asyncdata.errors import (
        AsyncDataError,
        ChannelFull,
        ClosedError,
        ConcurrentUseError,
        DataLossError,
        DeviceNotFoundError,
        MissingDependencyError,
        PlanError,
        ResumeError,
        StageError,
        StructureError,
        WorkerCrashed,
    )
    from asyncdata.executors.retry import with_retries, with_timeout
    from asyncdata.formats.audio import decode_audio
    from asyncdata.formats.images import decode_image
    from asyncdata.formats.tf_example import (
        FixedLenFeature,
        VarLenFeature,
        decode_example,
        make_example,
        parse_example,
        parse_single_example,
    )
    from asyncdata.formats.tfrecord import TFRecordWriter
    from asyncdata.formats.video import decode_video_clip
    from asyncdata.iterator import DatasetIterator
    from asyncdata.memory.output_buffers import empty
    from asyncdata.observe.trace import Trace, trace
    from asyncdata.options import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Options
    from asyncdata.readers.array_record import ArrayRecordDataset
    from asyncdata.readers.arrow import ArrowDataset
    from asyncdata.readers.energon import EnergonDataset
    from asyncdata.readers.fixed_length_record import FixedLengthRecordDataset
    from asyncdata.readers.image_folder import ImageFolderDataset
    from asyncdata.readers.json_lines import JsonLinesDataset
    from asyncdata.readers.lance import LanceDataset
    from asyncdata.readers.lerobot import LeRobotDataset
    from asyncdata.readers.litdata import LitDataset
    from asyncdata.readers.mds import MdsDataset
    from asyncdata.readers.npy import NpyDataset
    from asyncdata.readers.parquet import ParquetDataset
    from asyncdata.readers.safetensors import SafetensorsDataset
    from asyncdata.readers.text_line import TextLineDataset
    from asyncdata.readers.tfds import TfdsDataset
    from asyncdata.readers.tfrecord import TFRecordDataset
    from asyncdata.readers.tokens import TokenDataset
    from asyncdata.readers.webdataset import WebDataset
    from asyncdata.readers.zarr import ZarrDataset
    from asyncdata.sources.stateful import Stateful
    from asyncdata.storage import CacheDir, read_file
    from asyncdata.transforms.group_by_reducer import Reducer
    from asyncdata.web.channel import Channel
    from asyncdata.web.durable import DurableChannel

__version__ = "0.2.0"

__all__ = (
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArrayRecordDataset",
    "ArrowDataset",
    "AsyncDataError",
    "CacheDir",
    "Channel",
    "ChannelFull",
    "ClosedError",
    "Cluster",
    "ConcurrentUseError",
    "DataLossError",
    "Dataset",
    "DatasetIterator",
    "DeviceNotFoundError",
    "DurableChannel",
    "EnergonDataset",
    "FixedLenFeature",
    "FixedLengthRecordDataset",
    "ImageFolderDataset",
    "JsonLinesDataset",
    "LanceDataset",
    "LeRobotDataset",
    "LitDataset",
    "MdsDataset",
    "MissingDependencyError",
    "NpyDataset",
    "Options",
    "ParquetDataset",
    "PlanError",
    "Ragged",
    "RaggedTensorSpec",
    "Reducer",
    "ResumeError",
    "SafetensorsDataset",
    "StageError",
    "Stateful",
    "StructureError",
    "TFRecordDataset",
    "TFRecordWriter",
    "TensorSpec",
    "TextLineDataset",
    "TfdsDataset",
    "TokenDataset",
    "Trace",
    "VarLenFeature",
    "WebDataset",
    "WorkerCrashed",
    "ZarrDataset",
    "checkpoint",
    "decode_audio",
    "decode_example",
    "decode_image",
    "decode_video_clip",
    "empty",
    "experimental",
    "make_example",
    "observe",
    "parse_example",
    "parse_single_example",
    "read_file",
    "trace",
    "web",
    "with_retries",
    "with_timeout",
)

SUBMODULES: Final = ("checkpoint", "errors", "experimental", "observe", "web")
"""Modules that are there without an import of their own."""

MODULES: Final = {
    "cluster_settings": ("Cluster",),
    "dataset": ("Dataset",),
    "elements.ragged": ("Ragged",),
    "elements.spec": ("RaggedTensorSpec", "TensorSpec"),
    "errors": (
        "AsyncDataError",
        "ChannelFull",
        "ClosedError",
        "ConcurrentUseError",
        "DataLossError",
        "DeviceNotFoundError",
        "MissingDependencyError",
        "PlanError",
        "ResumeError",
        "StageError",
        "StructureError",
        "WorkerCrashed",
    ),
    "executors.retry": ("with_retries", "with_timeout"),
    "formats.audio": ("decode_audio",),
    "formats.images": ("decode_image",),
    "formats.tf_example": (
        "FixedLenFeature",
        "VarLenFeature",
        "decode_example",
        "make_example",
        "parse_example",
        "parse_single_example",
    ),
    "formats.tfrecord": ("TFRecordWriter",),
    "formats.video": ("decode_video_clip",),
    "iterator": ("DatasetIterator",),
    "memory.output_buffers": ("empty",),
    "observe.trace": ("Trace", "trace"),
    "options": ("AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "Options"),
    "readers.array_record": ("ArrayRecordDataset",),
    "readers.arrow": ("ArrowDataset",),
    "readers.energon": ("EnergonDataset",),
    "readers.fixed_length_record": ("FixedLengthRecordDataset",),
    "readers.image_folder": ("ImageFolderDataset",),
    "readers.json_lines": ("JsonLinesDataset",),
    "readers.lance": ("LanceDataset",),
    "readers.lerobot": ("LeRobotDataset",),
    "readers.litdata": ("LitDataset",),
    "readers.mds": ("MdsDataset",),
    "readers.npy": ("NpyDataset",),
    "readers.parquet": ("ParquetDataset",),
    "readers.safetensors": ("SafetensorsDataset",),
    "readers.text_line": ("TextLineDataset",),
    "readers.tfds": ("TfdsDataset",),
    "readers.tfrecord": ("TFRecordDataset",),
    "readers.tokens": ("TokenDataset",),
    "readers.webdataset": ("WebDataset",),
    "readers.zarr": ("ZarrDataset",),
    "sources.stateful": ("Stateful",),
    "storage": ("CacheDir", "read_file"),
    "transforms.group_by_reducer": ("Reducer",),
    "web.channel": ("Channel",),
    "web.durable": ("DurableChannel",),
}
"""Where the names are defined. A module is imported when a name of it is asked for first, so a worker process, which
needs few of them, starts in less time."""


if not TYPE_CHECKING:  # to a type checker a name that is not here is an error
    __getattr__, __dir__ = importer(__name__, MODULES, SUBMODULES)

"""asyncdata: data pipelines for training, asyncio inside, tf.data's vocabulary outside.

Layout, lowest first. A module imports only from those before it (`tests/test_architecture.py` has the exact order):

    errors            the exceptions of the package
    memory/           buffers that are used again, large copies, memory that functions fill
    elements/         what an element is: structures, specs, columns, ragged rows, tensors
    options           Options and the constants of tf.data
    runtime/          what exists while elements flow: blocks, tickets, queues, host resources, forks
    formats/          bytes to records and back, without I/O
    storage/          bytes at a path
    executors/        how functions are called: in place, in threads, as tasks, in worker processes; AUTOTUNE
    graph/            the node, the stages, the rewrite rules, fingerprints, epochs
    sources/          the nodes without an input, a file for each kind
    transforms/       the nodes with inputs, a file for each method
    engines/          where a pipeline runs: current loop, thread, no loop, a process of its own
    devices/          copies from the host to an accelerator
    checkpoint        what a state says, whether it fits, and how it is kept in a file
    persistence/      elements on disk: caches, snapshots, saved datasets
    transformations   the methods of Dataset that give a dataset
    iterator          one pass over a dataset
    integrations/     loaders of PyTorch, Lightning, Keras
    web/              channels that services fill, and an ASGI application
    dataset, tee
    readers/          the datasets of files, a file for each format
    experimental      the names of tf.data.experimental
    testing           for tests of users
    demo/, __main__   the main job and the command line
"""

from __future__ import annotations

from asyncdata import checkpoint, experimental, observe, web
from asyncdata.cluster.settings import Cluster
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
from asyncdata.formats.tf_example import (
    FixedLenFeature,
    VarLenFeature,
    decode_example,
    make_example,
    parse_example,
    parse_single_example,
)
from asyncdata.formats.tfrecord import TFRecordWriter
from asyncdata.iterator import DatasetIterator
from asyncdata.memory.output_buffers import empty
from asyncdata.observe.trace import Trace, trace
from asyncdata.options import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Options
from asyncdata.readers import (
    ArrayRecordDataset,
    ArrowDataset,
    FixedLengthRecordDataset,
    ImageFolderDataset,
    JsonLinesDataset,
    NpyDataset,
    ParquetDataset,
    TextLineDataset,
    TFRecordDataset,
    WebDataset,
)
from asyncdata.sources.stateful import Stateful
from asyncdata.storage import CacheDir, read_file
from asyncdata.transforms.group_by_reducer import Reducer
from asyncdata.web.channel import Channel
from asyncdata.web.durable import DurableChannel

__version__ = "0.1.0"

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
    "FixedLenFeature",
    "FixedLengthRecordDataset",
    "ImageFolderDataset",
    "JsonLinesDataset",
    "MissingDependencyError",
    "NpyDataset",
    "Options",
    "ParquetDataset",
    "PlanError",
    "Ragged",
    "RaggedTensorSpec",
    "Reducer",
    "ResumeError",
    "StageError",
    "Stateful",
    "StructureError",
    "TFRecordDataset",
    "TFRecordWriter",
    "TensorSpec",
    "TextLineDataset",
    "Trace",
    "VarLenFeature",
    "WebDataset",
    "WorkerCrashed",
    "checkpoint",
    "decode_example",
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

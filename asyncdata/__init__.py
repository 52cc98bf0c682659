"""asyncdata: data pipelines for training, asyncio inside, tf.data's vocabulary outside.

General layout, lowest first; a module imports only from those before it:

    errors, options, structure,
    closing, ragged, zeros       what everybody uses
    trying                       functions that are tried again or given up
    formats                      encodings without I/O: TFRecord framing, tf.Example, lines, records of a fixed length
    runtime                      what exists while elements flow: blocks, tickets, queues, executors, stages
    plan                         Node, the immutable tree that a Dataset is
    storage                      bytes at a path
    sources, transforms          the nodes, one file each
    optimize                     the rewrite rules
    runtime.pipeline, .bridge    a run of a plan, and how its consumer waits for it
    runtime.threads, .by_hand    those with a thread of their own, or without an event loop
    beside                       a run in a process of its own
    devices                      what copies elements to an accelerator
    attributes                   which attributes of an object tell it from others
    contents                     what elements that are kept depend on, as hashes
    identity                     what a state says of a step
    checkpoint                   what a state says, whether it fits, and how it is kept in a file
    kept                         elements on disk: caches, saved datasets
    transformations              what a dataset can be made into
    iterator                     one pass over a dataset
    integrations                 what training loops of others take
    web                          what services give, and streams of others
    dataset, readers,
    tables, tee, experimental    what users see
    testing, demo, __main__      for users' tests; the main job; the command line
"""

from __future__ import annotations

from asyncdata import checkpoint, experimental, web
from asyncdata.dataset import Dataset
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
from asyncdata.formats.example import (
    FixedLenFeature,
    VarLenFeature,
    decode_example,
    make_example,
    parse_example,
    parse_single_example,
)
from asyncdata.formats.tfrecord import TFRecordWriter
from asyncdata.iterator import DatasetIterator
from asyncdata.options import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Options
from asyncdata.ragged import Ragged
from asyncdata.readers import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from asyncdata.room import empty
from asyncdata.sources.stateful import Stateful
from asyncdata.spec import RaggedTensorSpec, TensorSpec
from asyncdata.storage import read_file
from asyncdata.transforms.group_by_reducer import Reducer
from asyncdata.trying import with_retries, with_timeout
from asyncdata.web.channel import Channel

__version__ = "0.1.0"

__all__ = (
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "AsyncDataError",
    "Channel",
    "ChannelFull",
    "ClosedError",
    "ConcurrentUseError",
    "DataLossError",
    "Dataset",
    "DatasetIterator",
    "DeviceNotFoundError",
    "FixedLenFeature",
    "FixedLengthRecordDataset",
    "MissingDependencyError",
    "Options",
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
    "VarLenFeature",
    "WorkerCrashed",
    "checkpoint",
    "decode_example",
    "empty",
    "experimental",
    "make_example",
    "parse_example",
    "parse_single_example",
    "read_file",
    "web",
    "with_retries",
    "with_timeout",
)

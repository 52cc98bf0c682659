"""Datasets that read files: TFRecordDataset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from os import PathLike, fspath
from typing import Any, cast

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.formats.compression import decompressor
from asyncdata.options import AUTOTUNE
from asyncdata.plan import Node, check_count
from asyncdata.runtime.executors import Call
from asyncdata.sources.memory import Items
from asyncdata.sources.record_index import Indexes, RecordCatalog
from asyncdata.sources.tfrecord import RecordFile
from asyncdata.storage import BLOCK_BYTES, store_for
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.interleave import CYCLE_LENGTH, Interleave

__all__ = ("TFRecordDataset",)


class TFRecordDataset(Dataset[bytes]):
    """The records of TFRecord files, as `bytes`; both checksums of each are checked.

    A corrupt record is a `DataLossError` in its place that names file and offset; a file that is missing, cut short or
    has a corrupt length is one error, and the next file follows.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "greetings.tfrecord"
    ...     with ad.TFRecordWriter(path) as writer:
    ...         writer.write(b"hello")
    ...         writer.write(b"world")
    ...     list(ad.TFRecordDataset(path))
    ...     ad.TFRecordDataset(path, index=True)[1]
    [b'hello', b'world']
    b'world'
    """

    def __init__(
        self,
        filenames: str | PathLike[str] | Sequence[str | PathLike[str]] | Dataset[str],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `compression_type` is `"GZIP"`, `"ZLIB"` or none. Files are read in blocks of `buffer_size` bytes (2 MB),
        one after the other, or `num_parallel_reads` at once, in turn.

        With `index=True` any record can be had without those before it. The elements are the same; their number is
        known; `dataset[i]`, `shuffle()` without a buffer and the like read the records that they need and no others, if
        the names are known (a path, a list, `list_files(shuffle=False)`) and there is no `num_parallel_reads`; going on
        from a state reads no others either. The index of `a.tfrecord` is made when it is first needed and kept beside
        it as `.a.tfrecord.index`, or else in the user's cache; it is made anew when the file has changed.
        """
        super().__init__(records_of(filenames, compression_type, buffer_size, num_parallel_reads, index))


def records_of(
    filenames: Any, compression: str | None, buffer_size: int | None, reads: int | None, index: bool
) -> Node:
    decompressor(compression)  # raises where the mistake is made
    if index and compression:
        raise PlanError(
            f"TFRecordDataset(index=True) is not for compression_type={compression!r}: what is compressed can be read "
            "from its beginning only; leave index away, or write the files without compression"
        )
    indexes = Indexes() if index else None
    size = check_count(
        "TFRecordDataset", "buffer_size", AUTOTUNE if buffer_size is None else buffer_size, 1, (AUTOTUNE,)
    )
    size = BLOCK_BYTES if size == AUTOTUNE else size
    open_one = partial(record_file, compression=compression or None, block_bytes=size, indexes=indexes)
    if isinstance(filenames, (str, PathLike)):
        return open_one(fspath(cast("str | PathLike[str]", filenames)))
    plan = (
        filenames.plan if isinstance(filenames, Dataset) else Items([checked(name) for name in filenames], files=True)
    )
    call = Call("TFRecordDataset", open_one, spread=False)
    if reads is None:
        names = plan.items if isinstance(plan, Items) and plan.files else None
        return FlatMap(plan, call, None if names is None or indexes is None else RecordCatalog(names, indexes))
    workers = check_count("TFRecordDataset", "num_parallel_reads", reads, 1, (AUTOTUNE,))
    return Interleave(plan, call, CYCLE_LENGTH if workers == AUTOTUNE else workers, workers=workers)


def record_file(
    filename: str | PathLike[str], compression: str | None, block_bytes: int, indexes: Indexes | None
) -> RecordFile:
    """Return the source for one file."""
    return RecordFile(checked(filename), compression, block_bytes, indexes)


def checked(filename: str | PathLike[str]) -> str:
    """Return a file name as a string; another scheme than one we can read is an error here."""
    name = fspath(filename)
    store_for(name)
    return name

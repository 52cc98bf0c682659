"""Datasets that read files: TFRecordDataset, TextLineDataset, FixedLengthRecordDataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike, fsdecode
from typing import Any, TypeAlias, cast

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.executors.interleave_tuner import InterleaveTuner
from asyncdata.formats.compression import decompressor
from asyncdata.formats.fixed_length import FixedLayout
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import Node, check_count
from asyncdata.options import AUTOTUNE
from asyncdata.sources.fixed_length import FixedFile, FixedFiles
from asyncdata.sources.in_memory import Items
from asyncdata.sources.parsed_files import FileCatalog, RandomAccessFiles
from asyncdata.sources.text_lines import LineFile
from asyncdata.sources.tfrecord import RecordFile
from asyncdata.sources.tfrecord_random_access import IndexCache
from asyncdata.storage import BLOCK_BYTES, StorageOptions, is_local, store_for
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.interleave import CYCLE_LENGTH, Interleave

__all__ = (
    "Filename",
    "Filenames",
    "FixedLengthRecordDataset",
    "StorageMapping",
    "TFRecordDataset",
    "TextLineDataset",
    "block_size",
    "checked",
    "files_of",
)

Filename: TypeAlias = str | bytes | PathLike[str]
StorageMapping: TypeAlias = Mapping[str, Any] | None
Filenames: TypeAlias = Filename | Sequence[Filename] | Dataset[str] | Dataset[bytes]


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
        filenames: Filenames,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        max_record_bytes: int = MAX_RECORD_BYTES,
        storage_options: StorageMapping = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `compression_type` is `"GZIP"`, `"ZLIB"` or none. Files are read in blocks of `buffer_size` bytes (2 MB),
        one after the other, or `num_parallel_reads` at once, in turn. A record of more than `max_record_bytes`
        (256 MiB) is a `DataLossError` in its place, and the rest of its file is not read. `storage_options` are for
        files at URLs, as `list_files` has them.

        With `index=True` any record can be had without those before it. The elements are the same; their number is
        known; `dataset[i]`, `shuffle()` without a buffer and the like read the records that they need and no others, if
        the names are known (a path, a list, `list_files(shuffle=False)`) and there is no `num_parallel_reads`; going on
        from a state reads no others either. The index of `a.tfrecord` is made when it is first needed and kept beside
        it as `.a.tfrecord.index`, or else in the user's cache; it is made anew when the file has changed.
        """
        most = check_count("TFRecordDataset", "max_record_bytes", max_record_bytes, 1)
        storage = StorageOptions.of("TFRecordDataset", storage_options)
        super().__init__(records_of(filenames, compression_type, buffer_size, num_parallel_reads, index, most, storage))


class TextLineDataset(Dataset[bytes]):
    r"""The lines of text files, as `bytes` without `\n`; every `\r` is left out too, as tf.data does.

    What follows the last newline is a line if it is not empty. A file that is missing, or whose compressed stream is
    damaged, is one error after the lines before it, and the next file follows.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "lines.txt"
    ...     _ = path.write_text("one\n\nthree")
    ...     list(ad.TextLineDataset(path))
    [b'one', b'', b'three']
    """

    def __init__(
        self,
        filenames: Filenames,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        max_record_bytes: int = MAX_RECORD_BYTES,
        storage_options: StorageMapping = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `compression_type` is `"GZIP"`, `"ZLIB"` or none. Files are read in blocks of `buffer_size` bytes (2 MB),
        one after the other, or `num_parallel_reads` at once, in turn. A line of more than `max_record_bytes` (256 MiB)
        is a `DataLossError` in its place, and the rest of its file is not read. `storage_options` are for files at
        URLs, as `list_files` has them.
        """
        decompressor(compression_type)  # raises where the mistake is made
        size = block_size("TextLineDataset", buffer_size)
        most = check_count("TextLineDataset", "max_record_bytes", max_record_bytes, 1)
        storage = StorageOptions.of("TextLineDataset", storage_options)
        open_one = partial(
            line_file, compression=compression_type or None, block_bytes=size, max_record_bytes=most, storage=storage
        )
        super().__init__(files_of("TextLineDataset", filenames, open_one, num_parallel_reads, None, storage))


class FixedLengthRecordDataset(Dataset[bytes]):
    """The records of files that are nothing but records of one length, after a header and before a footer.

    Their number is known, and `dataset[i]` and `shuffle()` without a buffer read the records that they need and no
    others, if the names are known (a path, a list, `list_files(shuffle=False)`), nothing is compressed and there is no
    `num_parallel_reads`. A file whose size is of no whole number of records, or that is missing, is one `DataLossError`
    or `OSError` in its place, and the next file follows.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "letters"
    ...     _ = path.write_bytes(b"#aabbcc")
    ...     ds = ad.FixedLengthRecordDataset(path, record_bytes=2, header_bytes=1)
    ...     list(ds), len(ds), ds[1]
    ([b'aa', b'bb', b'cc'], 3, b'bb')
    """

    def __init__(
        self,
        filenames: Filenames,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        *,
        storage_options: StorageMapping = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `compression_type` is `"GZIP"`, `"ZLIB"` or none; the lengths are those of what is not compressed. Files are
        read in blocks of `buffer_size` bytes (2 MB), one after the other, or `num_parallel_reads` at once, in turn.
        `storage_options` are for files at URLs, as `list_files` has them; those have no known number of records.
        """
        method = "FixedLengthRecordDataset"
        layout = FixedLayout(
            check_count(method, "record_bytes", record_bytes, 1),
            check_count(method, "header_bytes", header_bytes or 0, 0),
            check_count(method, "footer_bytes", footer_bytes or 0, 0),
        )
        decompressor(compression_type)  # raises where the mistake is made
        files, size = FixedFiles(layout), block_size(method, buffer_size)
        storage = StorageOptions.of(method, storage_options)
        open_one = partial(
            fixed_file, compression=compression_type or None, block_bytes=size, files=files, storage=storage
        )
        library = None if compression_type else files
        super().__init__(files_of(method, filenames, open_one, num_parallel_reads, library, storage))


def records_of(
    filenames: Any,
    compression: str | None,
    buffer_size: int | None,
    reads: int | None,
    index: bool,
    most: int,
    storage: StorageOptions | None,
) -> Node:
    decompressor(compression)  # raises where the mistake is made
    index = check_flag("TFRecordDataset", "index", index)
    if index and compression:
        raise PlanError(
            f"TFRecordDataset(index=True) is not for compression_type={compression!r}: what is compressed can be read "
            "from its beginning only; leave index away, or write the files without compression"
        )
    indexes = IndexCache(most) if index else None
    size = block_size("TFRecordDataset", buffer_size)
    open_one = partial(
        record_file,
        compression=compression or None,
        block_bytes=size,
        indexes=indexes,
        max_record_bytes=most,
        storage=storage,
    )
    return files_of("TFRecordDataset", filenames, open_one, reads, indexes, storage)


def block_size(method: str, buffer_size: int | None) -> int:
    """Return how many bytes to read at once."""
    size = check_count(method, "buffer_size", 0 if buffer_size is None else buffer_size, 0, (AUTOTUNE,))
    return size if size > 0 else BLOCK_BYTES


def files_of(
    method: str,
    filenames: Any,
    open_one: Callable[[Filename], Node],
    reads: int | None,
    library: RandomAccessFiles | None = None,
    storage: StorageOptions | None = None,
) -> Node:
    """Return the plan that reads files, whose names may come from a dataset, one after the other or several at once.

    With a `library` the elements of files whose names are known can be had in any order.
    """
    if isinstance(filenames, (str, bytes, PathLike)):
        return open_one(cast("Filename", filenames))
    if not hasattr(filenames, "__iter__"):
        raise PlanError(f"{method}(filenames=) must be a path, several, or a dataset of paths, got {filenames!r:.80}")
    plan = names_of(method, filenames, storage)
    call = Call(method, open_one, spread=False)
    call.label = f"{method}(filenames)"  # a line of ours would tell nobody anything
    if reads is None:
        names = plan.items if isinstance(plan, Items) and plan.files and all(map(is_local, plan.items)) else None
        return FlatMap(plan, call, None if names is None or library is None else FileCatalog(names, library))
    workers = check_count(method, "num_parallel_reads", reads, 1, (AUTOTUNE,))
    if workers == AUTOTUNE:
        return Interleave(plan, call, CYCLE_LENGTH, workers=workers, tuner=InterleaveTuner(CYCLE_LENGTH))
    return Interleave(plan, call, workers, workers=workers)


def names_of(method: str, filenames: Any, storage: StorageOptions | None) -> Node:
    """Return the plan that gives the names of several files; `PlanError` if its elements are known to be none."""
    if not isinstance(filenames, Dataset):
        return Items([checked(method, name, storage) for name in filenames], files=True)
    spec = filenames.plan.signature
    if spec is None or (isinstance(spec, TensorSpec) and not spec.shape and np.dtype(spec.dtype).kind in "OSU"):
        return filenames.plan
    mend = "; take them apart by unbatch()" if isinstance(spec, TensorSpec) and spec.shape else ""
    raise PlanError(f"{method}(filenames=) needs a dataset with one path an element, and its elements are {spec}{mend}")


def record_file(
    filename: Filename,
    compression: str | None,
    block_bytes: int,
    indexes: IndexCache | None,
    max_record_bytes: int,
    storage: StorageOptions | None,
) -> RecordFile:
    """Return the source for one file."""
    path = checked("TFRecordDataset", filename, storage)
    if indexes is not None and not is_local(path):
        raise PlanError(f"TFRecordDataset(index=True) is for files of this machine, got {path!r}; leave index away")
    return RecordFile(path, compression, block_bytes, indexes, max_record_bytes=max_record_bytes, storage=storage)


def line_file(
    filename: Filename, compression: str | None, block_bytes: int, max_record_bytes: int, storage: StorageOptions | None
) -> LineFile:
    """Return the source for one file."""
    path = checked("TextLineDataset", filename, storage)
    return LineFile(path, compression, block_bytes, max_record_bytes=max_record_bytes, storage=storage)


def fixed_file(
    filename: Filename, compression: str | None, block_bytes: int, files: FixedFiles, storage: StorageOptions | None
) -> FixedFile:
    """Return the source for one file."""
    path = checked(FixedFile.method, filename, storage)
    return FixedFile(path, compression, block_bytes, files=files, storage=storage)


def checked(method: str, filename: Any, storage: StorageOptions | None = None) -> str:
    """Return a file name as a string; what is none, or of another scheme than one we can read, is an error here."""
    try:
        name = fsdecode(filename)
    except TypeError:
        raise PlanError(
            f"{method}: a path is a str, bytes or a PathLike, got {type(filename).__name__}: {filename!r:.80}; give "
            "several as a flat list, or as a dataset with one path an element (unbatch() one of batches)"
        ) from None
    store_for(name, storage)
    return name

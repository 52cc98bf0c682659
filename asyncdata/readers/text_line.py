"""TextLineDataset: the lines of text files."""

from __future__ import annotations

from functools import partial

from asyncdata.dataset import Dataset
from asyncdata.formats.compression import decompressor
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.readers.files import (
    CacheFolder,
    Filename,
    Filenames,
    StorageMapping,
    block_size,
    checked,
    files_of,
    storage_for,
)
from asyncdata.sources.text_lines import LineFile
from asyncdata.storage import StorageOptions

__all__ = ("TextLineDataset",)


class TextLineDataset(Dataset[bytes]):
    r"""The lines of text files, as `bytes` without `\n`; every `\r` is also removed, as in tf.data.

    The text after the last newline is a line unless it is empty. A file that is missing, or whose compressed stream is
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
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        gzip, bzip2 and zstd are detected from the first bytes of a file, unless `compression_type` is given:
        `"GZIP"`, `"ZLIB"`, `"BZ2"`, `"ZSTD"`, or `""` for none. Files are read in blocks of `buffer_size` bytes (2 MB),
        one after another, or `num_parallel_reads` at once, in turn. A line of more than `max_record_bytes` (256 MiB)
        is a `DataLossError` in its place, and the rest of its file is not read. `storage_options` are for files at
        URLs, as for `list_files`; `cache_dir` is a folder or a `CacheDir` that caches them on this machine.
        """
        decompressor(compression_type)  # raises here for a wrong argument
        size = block_size("TextLineDataset", buffer_size)
        most = check_count("TextLineDataset", "max_record_bytes", max_record_bytes, 1)
        storage = storage_for("TextLineDataset", filenames, storage_options, cache_dir)
        open_one = partial(
            line_file, compression=compression_type, block_bytes=size, max_record_bytes=most, storage=storage
        )
        super().__init__(files_of("TextLineDataset", filenames, open_one, num_parallel_reads, None, storage))


def line_file(
    filename: Filename, compression: str | None, block_bytes: int, max_record_bytes: int, storage: StorageOptions | None
) -> LineFile:
    """Return the source for one file."""
    path = checked("TextLineDataset", filename, storage)
    return LineFile(path, compression, block_bytes, max_record_bytes=max_record_bytes, storage=storage)

"""TextLineDataset: the lines of text files."""

from __future__ import annotations

from asyncdata.dataset import Dataset
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping
from asyncdata.sources.text_lines import LineFile

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
        method = "TextLineDataset"
        given = FileArguments.of(
            method, filenames, compression_type, buffer_size, num_parallel_reads, storage_options, cache_dir
        )
        most = check_count(method, "max_record_bytes", max_record_bytes, 1)
        super().__init__(given.plan(LineFile, max_record_bytes=most))

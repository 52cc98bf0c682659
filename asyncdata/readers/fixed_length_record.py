"""FixedLengthRecordDataset: the records of files whose records have one length."""

from __future__ import annotations

from asyncdata.dataset import Dataset
from asyncdata.formats.fixed_length import FixedLayout
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping
from asyncdata.sources.fixed_length import FixedFile, FixedFiles

__all__ = ("FixedLengthRecordDataset",)


class FixedLengthRecordDataset(Dataset[bytes]):
    """The records of files that consist of records of one length, after a header and before a footer.

    The number of records is known, and `dataset[i]` and `shuffle()` without a buffer read only the records that they
    need, if the names are known (a path, a list, `list_files(shuffle=False)`), nothing is compressed and there is no
    `num_parallel_reads`. A file whose size does not fit the length, or that is missing, is one `DataLossError` or
    `OSError` in its place, and the next file follows.

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
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `compression_type` is `"GZIP"`, `"ZLIB"`, `"BZ2"`, `"ZSTD"` or none. It is not detected, as the first bytes may
        be a record. All lengths are those of the uncompressed data. Files are read in blocks of `buffer_size`
        bytes (2 MB), one after another, or `num_parallel_reads` at once, in turn. `storage_options` are for files at
        URLs, as for `list_files`; `cache_dir` is a folder or a `CacheDir` that caches them on this machine. Without
        that those have no known number of records.
        """
        method = "FixedLengthRecordDataset"
        layout = FixedLayout(
            check_count(method, "record_bytes", record_bytes, 1),
            check_count(method, "header_bytes", header_bytes or 0, 0),
            check_count(method, "footer_bytes", footer_bytes or 0, 0),
        )
        given = FileArguments.of(
            method, filenames, compression_type or None, buffer_size, num_parallel_reads, storage_options, cache_dir
        )
        super().__init__(given.plan(FixedFile, FixedFiles(layout, given.storage), layout=layout))

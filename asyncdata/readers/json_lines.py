"""JsonLinesDataset: the values in JSON Lines files."""

from __future__ import annotations

from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping, check_index
from asyncdata.sources.json_lines import JsonLinesFile, JsonLinesFiles

__all__ = ("JsonLinesDataset",)


class JsonLinesDataset(Dataset[Any]):
    r"""The values in JSON Lines files (`.jsonl`, `.ndjson`), mostly a dict on each line.

    Values are those of `json.loads` for a line of UTF-8; with `msgspec` installed (`pip install 'asyncdata[formats]'`)
    they are the same, in a third of the time. Blank lines are skipped. A line that is not valid JSON is a
    `DataLossError` in its place that names file and byte, and the next line follows. A file that is missing, or whose
    compressed stream is damaged, is an error, and the next file follows. Lists are leaves: `batch` makes arrays of them
    if they have one length.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "people.jsonl"
    ...     _ = path.write_text('{"name": "Ann", "age": 41}\n{"name": "Bo", "age": 7}\n')
    ...     list(ad.JsonLinesDataset(path))
    [{'name': 'Ann', 'age': 41}, {'name': 'Bo', 'age': 7}]
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
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        gzip, bzip2 and zstd are detected from the first bytes of a file, unless `compression_type` is given:
        `"GZIP"`, `"ZLIB"`, `"BZ2"`, `"ZSTD"`, or `""` for none. Files are read in blocks of `buffer_size` bytes (2 MB),
        one after another, or `num_parallel_reads` at once, in turn. A line of more than `max_record_bytes` (256 MiB)
        is a `DataLossError` in its place, and the rest of its file is not read. `storage_options` are for files at
        URLs, as for `list_files`; `cache_dir` is a folder or a `CacheDir` that caches them on this machine.

        With `index=True`, of files that are not compressed, any value can be read by its number, and the number of them
        is known, as for `TFRecordDataset`. The index of `a.jsonl` is made when it is first needed and stored
        next to it as `.a.jsonl.index`, or else in the user's cache.
        """
        method = "JsonLinesDataset"
        given = FileArguments.of(
            method, filenames, compression_type, buffer_size, num_parallel_reads, storage_options, cache_dir
        )
        most = check_count(method, "max_record_bytes", max_record_bytes, 1)
        files = JsonLinesFiles(most, given.storage) if check_index(method, index, compression_type) else None
        super().__init__(given.plan(JsonLinesFile, files, max_record_bytes=most))

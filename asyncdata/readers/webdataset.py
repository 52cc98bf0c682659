"""WebDataset: the samples in tar archives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.sample_decoders import Decoder
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping, check_index
from asyncdata.sources.webdataset import SampleFile, SampleFiles

__all__ = ("WebDataset",)


class WebDataset(Dataset[dict[str, Any]]):
    """The samples in tar archives in the format of the package webdataset: consecutive members with the same key.

    A sample is a dict. `"__key__"` is the path up to the first dot in the name of the file; the text after that dot, in
    lower case, is the extension and the key of the member's value: `txt` is a `str`, `cls` an `int`, `json` a value,
    `npy` an array, and others, such as images, are `bytes` to decode in a `map`. Pickled members (`pkl`, `pyd`, `pt`)
    are refused unless `decoders` has a function for them. Members without an extension and folders are skipped.

    A sample with a member that cannot be decoded, or is a link, is an error in its place. An archive that is damaged or
    cut short, or in which members of a sample stand apart from the others, is one error after the samples before, and
    the next file follows.

    >>> import asyncdata as ad, io, tarfile, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "train-000.tar"
    ...     with tarfile.open(path, "w") as archive:
    ...         for name, content in {"a.txt": b"cat", "a.cls": b"3", "b.txt": b"dog", "b.cls": b"5"}.items():
    ...             info = tarfile.TarInfo(name)
    ...             info.size = len(content)
    ...             archive.addfile(info, io.BytesIO(content))
    ...     list(ad.WebDataset(path))
    [{'__key__': 'a', 'txt': 'cat', 'cls': 3}, {'__key__': 'b', 'txt': 'dog', 'cls': 5}]
    """

    def __init__(
        self,
        filenames: Filenames,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        decoders: Mapping[str, Decoder] | None = {},
        max_record_bytes: int = MAX_RECORD_BYTES,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `decoders` are functions by extension, `{"pkl": pickle.loads}`, which take the `bytes` of a member, in addition
        to the standard ones; the one for `"png"` is also used for `"seg.png"`. They are called one after another in the
        pipeline's thread: decode slow formats, such as images, in `map(num_parallel_calls=)`.
        With `decoders=None` all members are `bytes`.

        gzip, bzip2 and zstd are detected from the first bytes of a file, unless `compression_type` is given:
        `"GZIP"`, `"ZLIB"`, `"BZ2"`, `"ZSTD"`, or `""` for none. Files are read in blocks of `buffer_size` bytes (2 MB),
        one after another, or `num_parallel_reads` at once, in turn. A sample of more than `max_record_bytes`
        (256 MiB) with its headers is a `DataLossError` in its place, and the rest of its file is not read.
        `storage_options` are for files at URLs, as for `list_files`; `cache_dir` is a folder or a `CacheDir` that
        caches them on this machine.

        With `index=True`, of files that are not compressed, any sample can be read by its number, and the number of
        them is known, as for `TFRecordDataset`. The index of `a.tar` is made when it is first needed and stored next to
        it as `.a.tar.index`, or else in the user's cache.
        """
        method = "WebDataset"
        given = FileArguments.of(
            method, filenames, compression_type, buffer_size, num_parallel_reads, storage_options, cache_dir
        )
        known, most = checked_decoders(decoders), check_count(method, "max_record_bytes", max_record_bytes, 1)
        files = SampleFiles(known, most, given.storage) if check_index(method, index, compression_type) else None
        super().__init__(given.plan(SampleFile, files, decoders=known, max_record_bytes=most))


def checked_decoders(decoders: Any) -> Mapping[str, Decoder] | None:
    """Return decoders; `PlanError` if they are not functions by extension."""
    if decoders is None:
        return None
    if isinstance(decoders, Mapping):
        given: dict[Any, Any] = dict(cast("Mapping[Any, Any]", decoders))
        if all(isinstance(name, str) for name in given) and all(map(callable, given.values())):
            return given
    raise PlanError(f"WebDataset(decoders=) must be None, or functions by extension, got {decoders!r:.80}")

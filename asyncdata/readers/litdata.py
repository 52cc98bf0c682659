"""LitDataset: the samples in the folders that Lightning's package litdata writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Final, cast

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.formats.litdata import LitFolder, LitFormat, folder_of
from asyncdata.formats.tokens import TokenWindows
from asyncdata.graph.node import Node, check_count
from asyncdata.readers.files import (
    CacheFolder,
    FileArguments,
    Filename,
    StorageMapping,
    block_size,
    check_index,
    checked,
    source_of,
)
from asyncdata.readers.folder_index import inside, joined, reading_index
from asyncdata.readers.tokens import token_file
from asyncdata.sources.shards import LitFile, LitFiles
from asyncdata.sources.tokens import TokenFiles, TokenLayout
from asyncdata.storage import StorageOptions, without_query

__all__ = ("LitDataset",)

METHOD: Final = "LitDataset"


class LitDataset(Dataset[Any]):
    """The samples in the folders that Lightning's package `litdata` writes (`optimize`), in the structure they had.

    That package is not needed. Leaves are decoded as it does, except that tensors are NumPy's arrays, and that pictures
    and other files stay encoded: `jpeg`, `image`, `audio` and so on are the bytes of a file, `pil` those of LitData,
    for a function in `map`. Arrays may be changed. Pickled leaves are refused unless `allow_pickle=True`, as they can
    run any code. A damaged sample is one `DataLossError` in its place; a chunk that is cut short is one after its
    complete samples, and the next chunk follows.

    >>> import asyncdata as ad, json, struct, tempfile, pathlib
    >>> leaf = {"type": None, "context": None, "children_spec": []}
    >>> config = {"data_format": ["int"], "data_spec": json.dumps([1, leaf]), "compression": None}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "chunk-0-0.bin"
    ...     _ = path.write_bytes(struct.pack("<4I", 2, 16, 28, 40) + struct.pack("<IqIq", 8, 5, 8, 7))
    ...     chunks = [{"filename": path.name, "chunk_size": 2, "dim": None}]
    ...     _ = pathlib.Path(folder, "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    ...     ds = ad.LitDataset(folder, index=True)
    ...     list(ds), ds[1]
    ([5, 7], 7)
    """

    def __init__(
        self,
        filenames: Filename | Sequence[Filename],
        window: int | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        allow_pickle: bool = False,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a folder with an `index.json`, or several.

        With `window`, an element is so many of the tokens in a folder that was written with a `TokensLoader`: an
        array, as `TokenDataset` gives, which needs no `index`. Chunks that zstd has compressed, as a whole or sample by
        sample, are decompressed. Files are read in blocks of `buffer_size` bytes (2 MB), one after another, or
        `num_parallel_reads` at once, in turn. `storage_options` and `cache_dir` are as for `TFRecordDataset`.

        With `index=True` any sample can be read by its number, and the number of samples is known: `dataset[i]`,
        `shuffle()` without a buffer and the like read only the samples that they need, for chunks that are not
        compressed as a whole, if there is no `num_parallel_reads`.
        """
        storage = StorageOptions.of(METHOD, storage_options, cache_dir)
        chunks = dict[str, Chunk]()
        paths = paths_of(filenames, bool(check_flag(METHOD, "allow_pickle", allow_pickle)), storage, chunks)
        if window is not None:
            length = check_count(METHOD, "window", window, 1)
            tokens = FileArguments(METHOD, paths, num_parallel_reads, storage, "")
            super().__init__(windows_of(tokens, chunks, length))
            return
        known = LitFiles(form_of(chunks), storage)
        files = known if check_index(METHOD, index, None) else None
        if files and (packed := [path for path, chunk in chunks.items() if chunk.folder.compression]):
            raise PlanError(
                f"{METHOD}(index=True): {without_query(packed[0])} is compressed, and can only be read from its "
                "beginning: leave index out, or write chunks with compression_level='sample'"
            )
        given = FileArguments(METHOD, paths, num_parallel_reads, storage, block_bytes=block_size(METHOD, buffer_size))
        super().__init__(given.plan(lit_file, files, chunks=chunks, known=known))


@dataclass(frozen=True)
class Chunk:
    """What is known of a chunk by the index of its folder."""

    folder: LitFolder
    samples: int
    tokens: int | None


def paths_of(filenames: Any, allow_pickle: bool, storage: StorageOptions | None, chunks: dict[str, Chunk]) -> list[str]:
    """Return the paths of the chunks of folders, in order; what is known of them is added to `chunks`."""
    alone = isinstance(filenames, (str, bytes, PathLike))
    if isinstance(filenames, Dataset) or not (alone or hasattr(filenames, "__iter__")):
        raise PlanError(f"{METHOD}(filenames=) must be a folder, or several in a list, got {filenames!r:.80}")
    found: list[str] = []
    for given in cast("list[Any]", [filenames] if alone else filenames):
        root = checked(METHOD, given, storage)
        with reading_index(root, "LitData", storage) as index:
            folder = folder_of(index, allow_pickle=allow_pickle)
            for name, samples, tokens in zip(folder.names, folder.samples, folder.tokens, strict=True):
                found.append(path := joined(root, inside(name)))
                chunks[path] = Chunk(folder, samples, tokens)
    return found


def form_of(chunks: Mapping[str, Chunk]) -> LitFormat:
    """Return the format of chunks."""
    layouts = {path: chunk.folder.layout for path, chunk in chunks.items()}
    return LitFormat(layouts, {path: chunk.samples for path, chunk in chunks.items()})


def lit_file(filename: Filename, chunks: Mapping[str, Chunk], **how: Any) -> LitFile:
    """Return the source for one chunk."""
    file = source_of(LitFile, filename, form=how["known"].lit, **how)
    return replace(file, compression=chunks[file.path].folder.compression)


def windows_of(given: FileArguments, chunks: Mapping[str, Chunk], length: int) -> Node:
    """Return the plan that reads windows of the tokens in chunks."""
    dtypes = {chunk.folder.dtype for chunk in chunks.values()}
    if len(dtypes) > 1 or None in dtypes or any(chunk.folder.compression for chunk in chunks.values()):
        raise PlanError(f"{METHOD}(window=) is for folders of tokens of one dtype that are not compressed as a whole")
    dtype = dtypes.pop() if dtypes else np.dtype("uint16")
    spans: dict[str, tuple[int, int]] = {}
    for path, chunk in chunks.items():
        begin = 4 * (chunk.samples + 2)
        spans[path] = begin, begin + (chunk.tokens or 0) * cast("np.dtype[Any]", dtype).itemsize
    layout = TokenLayout(TokenWindows(length), dtype)
    return given.plan(token_file, TokenFiles(layout, given.storage, spans), layout=layout)

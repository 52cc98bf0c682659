"""TokenDataset: tokens in Megatron's indexed files and in raw ones, as windows, documents or sequences."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy.typing as npt

from asyncdata.dataset import Dataset
from asyncdata.elements.validation import check_dtype, check_flag
from asyncdata.errors import PlanError
from asyncdata.formats.tokens import TokenWindows
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filename, Filenames, StorageMapping, checked
from asyncdata.sources.tokens import TokenFile, TokenFiles, TokenLayout
from asyncdata.storage import StorageOptions, is_local_or_cached, without_query

__all__ = ("TokenDataset",)

METHOD: Final = "TokenDataset"

BY_INDEX: Final = ("document", "sequence")


class TokenDataset(Dataset[npt.NDArray[Any]]):
    """Tokens, as windows of one length, documents or sequences: arrays of one axis, of the dtype of the file.

    Reads the pairs of files that Megatron writes (`.bin` and `.idx`), and raw ones, as nanoGPT writes. Nothing is
    loaded: any element is read by its number, so `len`, `dataset[i]`, `shuffle()` without a buffer and `shard` take no
    memory, if the names are known (a path, a list, `list_files(shuffle=False)`) and there is no `num_parallel_reads`.
    Arrays may be changed. Files whose sizes do not fit are one `DataLossError`, and the next file follows. Tokens
    have no checksums.

    >>> import asyncdata as ad, numpy as np, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "train.bin"
    ...     np.arange(10, dtype=np.uint16).tofile(path)
    ...     ds = ad.TokenDataset(path, window=4, overlap=1, dtype="uint16")
    ...     len(ds), [window.tolist() for window in ds]
    (3, [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]])
    """

    def __init__(
        self,
        filenames: Filenames,
        window: int | Literal["document", "sequence"] = "document",
        overlap: int = 0,
        dtype: npt.DTypeLike | None = None,
        *,
        header_bytes: int = 0,
        drop_remainder: bool = True,
        num_parallel_reads: int | None = None,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: the path of a `.bin` file, several, or a dataset of paths.

        With a number as `window`, an element is so many tokens, of which it shares the first `overlap` with the window
        before: `window=1025, overlap=1` gives 1024 tokens and the labels of each. Windows pass over the ends of
        documents, not of files. Those at the end of a file that fill no window are left out, unless
        `drop_remainder=False`. `"document"` and `"sequence"` are those of Megatron's index: a document is one
        sequence or several.

        Without `dtype` the `.idx` file beside each file is read. With a `dtype`, such as `"uint16"`, files are raw:
        nothing but tokens after `header_bytes`. Files are read one after another, or `num_parallel_reads` at once, in
        turn. `storage_options` and `cache_dir` are as for `TFRecordDataset`; remote files need `cache_dir=`.
        """
        given = FileArguments.of(METHOD, filenames, "", None, num_parallel_reads, storage_options, cache_dir)
        kind = None if dtype is None else check_dtype(f"{METHOD}(dtype=)", dtype)
        header = check_count(METHOD, "header_bytes", header_bytes, 0)
        if kind is not None and kind.kind not in "iuf":
            raise PlanError(f"{METHOD}(dtype=) must be a dtype of numbers, got {dtype!r:.80}")
        if header and kind is None:
            raise PlanError(f"{METHOD}(header_bytes=) is for raw files: give their dtype, too")
        layout = TokenLayout(window_of(window, overlap, drop_remainder, raw=kind is not None), kind, header)
        super().__init__(given.plan(token_file, TokenFiles(layout, given.storage), layout=layout))


def window_of(window: Any, overlap: Any, drop_remainder: Any, *, raw: bool) -> TokenWindows | str:
    """Return what elements are; `PlanError` for other arguments."""
    drop = check_flag(METHOD, "drop_remainder", drop_remainder)
    if window not in BY_INDEX:
        shared = check_count(METHOD, "overlap", overlap, 0)
        if isinstance(window, str):
            raise PlanError(
                f"{METHOD}(window=) must be a number of tokens, 'document' or 'sequence', got {window!r:.80}"
            )
        return TokenWindows(check_count(METHOD, "window", window, shared + 1), shared, bool(drop))
    if raw:
        raise PlanError(
            f"{METHOD}(window={window!r}) needs an index, which raw files do not have: give a number of tokens"
        )
    if overlap or not drop:
        raise PlanError(f"{METHOD}(window={window!r}) has no overlap and no remainder")
    return window


def token_file(filename: Filename, layout: TokenLayout, storage: StorageOptions | None, **how: Any) -> TokenFile:
    """Return the source for one file."""
    path = checked(METHOD, filename, storage)
    if not is_local_or_cached(path, storage):
        raise PlanError(f"{METHOD}: remote files need cache_dir=, a local folder that caches them, got {path!r}")
    if layout.dtype is None and not without_query(path).endswith(".bin"):
        raise PlanError(
            f"{METHOD}: {without_query(path)} is no .bin file with an .idx file beside it; for raw tokens give their "
            "dtype, such as 'uint16'"
        )
    return TokenFile(path, layout=layout, storage=storage, **how)

"""The files of a reader: names, and datasets of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fsdecode
from typing import Any, Final, Self, TypeAlias, TypeVar, cast

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.executors.interleave_tuner import InterleaveTuner
from asyncdata.formats.compression import decompressor
from asyncdata.graph.node import Node, check_count, nodes_of
from asyncdata.options import AUTOTUNE
from asyncdata.sources.file_names import FileNames
from asyncdata.sources.in_memory import FOREVER
from asyncdata.sources.listing import Listing
from asyncdata.sources.numbered_files import NumberedFiles
from asyncdata.sources.parsed_files import FileCatalog, ParsedFile, RandomAccessFiles
from asyncdata.sources.random_access import InMemorySource
from asyncdata.storage import BLOCK_BYTES, CacheDir, StorageOptions, is_local_or_cached, store_for
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.global_shuffle import Permute
from asyncdata.transforms.interleave import CYCLE_LENGTH, Interleave
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.repeat import Repeat
from asyncdata.transforms.shard import Shard
from asyncdata.transforms.shuffle import Shuffle
from asyncdata.transforms.skip import Skip
from asyncdata.transforms.take import Take

__all__ = (
    "CacheFolder",
    "FileArguments",
    "Filename",
    "Filenames",
    "StorageMapping",
    "block_size",
    "check_index",
    "checked",
    "files_of",
    "names_given",
    "one_path",
    "path_of",
    "source_of",
    "storage_for",
)

Filename: TypeAlias = str | bytes | PathLike[str]
StorageMapping: TypeAlias = Mapping[str, Any] | None
CacheFolder: TypeAlias = str | PathLike[str] | CacheDir | None
UNCHANGED: Final = (Permute, Prefetch, Repeat, Shard, Shuffle, Skip, Take)
"""Steps that pass on names as they are."""

AnyFile = TypeVar("AnyFile", bound=ParsedFile)

Filenames: TypeAlias = Filename | Sequence[Filename] | Dataset[str] | Dataset[bytes]


@dataclass(frozen=True)
class FileArguments:
    """The arguments that readers of files share, checked."""

    method: str
    filenames: Any
    reads: int | None
    storage: StorageOptions | None
    compression: str | None = None
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def of(
        cls,
        method: str,
        filenames: Any,
        compression: str | None,
        buffer_size: int | None,
        reads: int | None,
        storage_options: StorageMapping,
        cache_dir: CacheFolder,
    ) -> Self:
        """Return the arguments of a reader; `PlanError` for wrong ones."""
        decompressor(compression)
        storage = storage_for(method, filenames, storage_options, cache_dir)
        return cls(method, filenames, reads, storage, compression, block_size(method, buffer_size))

    def plan(
        self, kind: type[ParsedFile] | Callable[..., Node], files: NumberedFiles | None = None, **others: Any
    ) -> Node:
        """Return the plan that reads the files: the class of the source of one, or a function that returns it. `files`
        reads elements by number; it is an argument of the source, too."""
        how: dict[str, Any] = {"compression": self.compression, "block_bytes": self.block_bytes, **others}
        how |= {} if files is None else {"files": files}
        open_one = partial(source_of, kind) if isinstance(kind, type) else kind
        open_one = partial(open_one, **how, storage=self.storage)
        library = None if self.compression else files
        return files_of(self.method, self.filenames, open_one, self.reads, library, self.storage)


def source_of(kind: type[AnyFile], filename: Filename, **how: Any) -> AnyFile:
    """Return the source for one file, from the arguments that `FileArguments.plan` passes on."""
    indexed = how.get("files") is not None and not kind.numbered_anywhere
    return kind(path_of(kind.method, filename, how["storage"], indexed=indexed), **how)


def block_size(method: str, buffer_size: int | None) -> int:
    """Return the block size in bytes."""
    size = check_count(method, "buffer_size", 0 if buffer_size is None else buffer_size, 0, (AUTOTUNE,))
    return size if size > 0 else BLOCK_BYTES


def storage_for(
    method: str, filenames: Any, storage_options: StorageMapping, cache_dir: CacheFolder
) -> StorageOptions | None:
    """Return the options for a reader's files: those given, else those with which `list_files` has found the names."""
    given = StorageOptions.of(method, storage_options, cache_dir)
    if storage_options is not None or not isinstance(filenames, Dataset):
        return given
    lists = [node for node in nodes_of(filenames.plan) if isinstance(node, (FileNames, Listing))]
    found = {one.storage.key: one.storage for one in lists if one.storage is not None}
    if len(found) > 1:
        raise PlanError(
            f"{method}: its file names were listed with several storage_options: give it the ones to read with, or "
            "make a dataset for each list and concatenate these"
        )
    for storage in found.values():
        return StorageOptions(storage.values, None if given is None else given.cache)
    return given


def files_of(
    method: str,
    filenames: Any,
    open_one: Callable[[Filename], Node],
    reads: int | None,
    library: RandomAccessFiles | None = None,
    storage: StorageOptions | None = None,
) -> Node:
    """Return the plan that reads files, whose names may come from a dataset, one after another or several at once.

    With a `library`, files whose names are known have random access.
    """
    if isinstance(filenames, (str, bytes, PathLike)):
        return open_one(cast("Filename", filenames))
    if not hasattr(filenames, "__iter__"):
        raise PlanError(f"{method}(filenames=) must be a path, several, or a dataset of paths, got {filenames!r:.80}")
    plan = names_of(method, filenames, storage)
    call = Call(method, open_one, spread=False)
    call.label = call.shown = f"{method}(filenames)"  # a line of this package would not help the user
    if reads is None:
        names = (
            plan.items
            if isinstance(plan, FileNames) and all(is_local_or_cached(name, storage) for name in plan.items)
            else None
        )
        return FlatMap(plan, call, None if names is None or library is None else FileCatalog(names, library))
    workers = check_count(method, "num_parallel_reads", reads, 1, (AUTOTUNE,))
    if workers == AUTOTUNE:
        return Interleave(plan, call, CYCLE_LENGTH, workers=workers, tuner=InterleaveTuner(CYCLE_LENGTH))
    return Interleave(plan, call, workers, workers=workers)


def check_index(method: str, index: Any, compression: str | None) -> bool:
    """Return whether elements are read by number; `PlanError` for files with a compression type."""
    if check_flag(method, "index", index) and compression:
        raise PlanError(
            f"{method}(index=True) is not for compression_type={compression!r}: compressed files can only be read "
            "from the beginning; leave index out, or write the files without compression"
        )
    return bool(index)


def path_of(method: str, filename: Filename, storage: StorageOptions | None, *, indexed: bool) -> str:
    """Return the path of one file; `PlanError` if it is not a path, or if it cannot have an index but must."""
    path = checked(method, filename, storage)
    if indexed and not is_local_or_cached(path, storage):
        raise PlanError(
            f"{method}(index=True) of remote files needs cache_dir=, a local folder that caches them, got {path!r}"
        )
    return path


def names_of(method: str, filenames: Any, storage: StorageOptions | None) -> Node:
    """Return the plan of the names of several files; `PlanError` if its elements are known not to be names."""
    if not isinstance(filenames, Dataset):
        return FileNames([checked(method, name, storage) for name in filenames])
    spec = filenames.plan.signature
    if spec is None or (isinstance(spec, TensorSpec) and not spec.shape and np.dtype(spec.dtype).kind in "OSU"):
        return as_files(filenames.plan)
    cure = "; split them with unbatch()" if isinstance(spec, TensorSpec) and spec.shape else ""
    raise PlanError(
        f"{method}(filenames=) needs a dataset with one path per element, and its elements are {spec}{cure}"
    )


def as_files(plan: Node) -> Node:
    """Return a plan of names in which those in memory are known to be of files, whose sizes and times are compared."""
    if isinstance(plan, UNCHANGED):
        return plan.with_inputs(as_files(plan.input))
    if not isinstance(plan, InMemorySource) or not plan.is_in_memory or plan.size == FOREVER:
        return plan
    names = plan.rows(0, plan.size)
    return FileNames([*map(fsdecode, names)]) if all(isinstance(name, (str, bytes)) for name in names) else plan


def names_given(method: str, argument: str, names: Any, least: int = 0) -> list[str] | None:
    """Return names as a list, each once, or `None`; `PlanError` if they are not at least so many names."""
    if names is None:
        return None
    found: list[Any] = [*dict.fromkeys(names)]
    if isinstance(names, str) or not all(isinstance(name, str) for name in found) or len(found) < least:
        raise PlanError(f"{method}({argument}=) must be a list of names, got {names!r:.80}")
    return found


def one_path(method: str, filename: Any, storage: StorageOptions | None, hint: str = "") -> str:
    """Return the only path that a reader takes, as a string; `PlanError` if it is not one, or several."""
    if isinstance(filename, (str, bytes, PathLike)):
        return checked(method, filename, storage)
    raise PlanError(
        f"{method} takes one path or URL, got {type(filename).__name__}: {filename!r:.80}; several are a dataset each, "
        f"which concatenate or sample_from_datasets puts together{hint}"
    )


def checked(method: str, filename: Any, storage: StorageOptions | None = None) -> str:
    """Return a file name as a string; raise if it is not one, or if its scheme is not supported."""
    try:
        name = fsdecode(filename)
    except TypeError:
        raise PlanError(
            f"{method}: a path must be a str, bytes or a PathLike, got {type(filename).__name__}: {filename!r:.80}; "
            "give several as a flat list, or as a dataset with one path per element (unbatch() one of batches)"
        ) from None
    store_for(name, storage)
    return name

"""Storage of files' indexes: an index is read if it is stored, else made and stored; several at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol, TypeVar

from asyncdata.errors import DataLossError
from asyncdata.formats.compression import HEAD_BYTES, not_supported, recognised
from asyncdata.storage import (
    AnyPart,
    StorageOptions,
    cache_folder,
    is_local,
    open_file,
    store_for,
    without_query,
    write_atomically,
)
from asyncdata.storage.base import Status

__all__ = ("explain_compressed", "make_several", "read_or_make")

LARGEST_EMPTY: Final = 1 << 10
"""An index of a file without records is smaller than this, in bytes."""

READERS: Final = 8
"""How many indexes are read or made at once."""


class Index(Protocol):
    """An index that can be stored."""

    def to_bytes(self) -> bytes:
        """Return the serialized index."""
        ...


AnyIndex = TypeVar("AnyIndex", bound=Index)


def read_or_make(
    path: str,
    file: AnyPart,
    status: Status,
    parse: Callable[[bytes], AnyIndex],
    fits: Callable[[AnyIndex], bool],
    make: Callable[[], AnyIndex],
) -> AnyIndex:
    """Return the index of an open file with this status: a stored one that fits, else a new one, stored if possible."""
    index = next(filter(fits, stored(path, status.size, parse)), None)
    if index is None:
        index = make()
        if file.status() == status:
            store(path, index)
    return index


def stored(path: str, size: int, parse: Callable[[bytes], AnyIndex]) -> Iterator[AnyIndex]:
    """Yield the stored indexes for a file of this size."""
    for place in index_paths(path):
        with suppress(OSError, ValueError):
            if place.stat().st_size <= size + LARGEST_EMPTY:  # a record needs more bytes in its file than in the index
                yield parse(place.read_bytes())


def store(path: str, index: Index) -> None:
    """Write an index to the first place that is writable; if there is none, it stays in memory only."""
    content = index.to_bytes()
    for place in index_paths(path):
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, content, durable=False)
            return


def index_paths(path: str) -> Iterator[Path]:
    """Yield the paths of an index: next to the file (hidden from patterns), then in the cache; for URLs only there."""
    if is_local(path):
        data = Path(os.path.abspath(store_for(path)[1]))
        yield data.with_name(f".{data.name}.index")
    else:
        data = without_query(path)
    with suppress(RuntimeError):  # there is no home folder
        yield cache_folder() / "records" / f"{blake2b(os.fsencode(data), digest_size=16).hexdigest()}.index"


def make_several(paths: Sequence[str], known: Mapping[str, object], make: Callable[[str], object]) -> None:
    """Read or make the indexes that are not in memory yet, several at once."""
    new = [path for path in dict.fromkeys(paths) if path not in known]
    if len(new) > 1:
        pool = ThreadPoolExecutor(min(READERS, len(new)), "asyncdata-index")
        try:
            list(pool.map(make, new))
        finally:
            pool.shutdown(cancel_futures=True)


def explain_compressed(error: Exception, path: str, storage: StorageOptions | None) -> None:
    """Add a note to the error of a record if its file is compressed, as such files have no index."""
    if not isinstance(error, DataLossError):
        return
    with suppress(OSError):
        if (found := compression_of(path, storage)) is not None:
            error.add_note(f"the file is compressed ({found}), so it cannot be read by number, with index=True")


@lru_cache(maxsize=16)  # many records of a damaged file may fail
def compression_of(path: str, storage: StorageOptions | None) -> str | None:
    """Return how a file is compressed."""
    with open_file(path, storage) as file:
        head = file.read_at(0, HEAD_BYTES)
    return recognised(head) or not_supported(head)

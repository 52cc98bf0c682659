"""ZarrTable: arrays of Zarr with equally many rows, read by number, chunks or shards as a whole."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, final

import numpy as np

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import AsyncDataError, DataLossError, PlanError
from asyncdata.formats.column_parser import ROWS, part_of
from asyncdata.redaction import redacted
from asyncdata.sources.table_rows import Segment, distinct
from asyncdata.storage import ObjectStore, StorageOptions, is_local, is_web, local_path, store_for, without_query
from asyncdata.storage.objects import check_not_forked, open_store
from asyncdata.storage.retries import explained
from asyncdata.system.optional_packages import require

__all__ = ("METHOD", "ZarrTable", "zarr")

METHOD: Final = "ZarrDataset"

AT_ONCE: Final = 8 << 20
"""About how many bytes of small chunks are read together."""

RETRIES: Final = {"max_retries": 10}
"""How often the requests of an object store are tried again, which obstore does."""


KNOWN: Final = (DataLossError, FileNotFoundError, PermissionError, ConnectionError, TimeoutError)
"""Errors that say what is wrong; all others are a `DataLossError`."""


def zarr(module: str = "zarr") -> Any:
    """Return a module of the package, or raise an error that says what to install."""
    return require(module, METHOD, "'zarr>=3'")


@final
class ZarrTable:
    """Reads the rows of an array, or of several as dicts; or their chunks, each an element. Thread-safe."""

    method = METHOD

    def __init__(
        self, uri: str, names: Sequence[str] | None, element: str, storage: StorageOptions | None = None
    ) -> None:
        self.uri = uri
        self.names = names
        self.element = element
        self.storage = storage
        self.shown = without_query(uri)
        self.arrays = arrays_in(uri, names, storage)
        (self.rows,) = {array.shape[0] for array in self.arrays.values()}
        chunks = [(array.shards or array.chunks)[0] for array in self.arrays.values()]
        self.chunk = max(1, *chunks)
        """How many rows are in a chunk, or a shard: of several arrays in the largest one."""
        row = sum(prod(array.shape[1:]) * array.dtype.itemsize for array in self.arrays.values())
        self.step = 1 if element == "chunk" else self.chunk * max(1, AT_ONCE // max(1, self.chunk * row))
        self.count = -(-self.rows // self.chunk) if element == "chunk" else self.rows

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (self.identity, self.uri, self.names, self.element, self.storage)

    @property
    def identity(self) -> str:
        """The shapes and dtypes, and in which order chunks are elements."""
        arrays = {name: (*array.shape, str(array.dtype)) for name, array in self.arrays.items()}
        return f"{arrays}, {self.element}{f' of {self.chunk} rows' if self.element == 'chunk' else ''}"

    def read(self, rows: Sequence[int]) -> list[Segment]:
        """Return elements by their numbers; each row of a chunk that cannot be read is an error in its place."""
        if self.element == "chunk":
            return [self.one_chunk(number) for number in rows]
        try:
            arrays = self.rows_at(rows)
            spans = [(begin, min(begin + ROWS, len(rows))) for begin in range(0, len(rows), ROWS)]
            return [ColumnBatch(part_of(arrays, begin, end), end - begin) for begin, end in spans]
        except KNOWN as error:
            if len({row // self.chunk for row in rows}) == 1:
                return [copy.copy(error).with_traceback(None) for _ in rows]
        half = len(rows) // 2
        return [*self.read(rows[:half]), *self.read(rows[half:])]

    def one_chunk(self, number: int) -> Segment:
        """Return a chunk as an element."""
        begin = number * self.chunk
        try:
            return [self.rows_at(range(begin, min(self.rows, begin + self.chunk)))]
        except KNOWN as error:
            return error.with_traceback(None)

    def rows_at(self, rows: Sequence[int]) -> Any:
        """Return arrays of the rows with these numbers, by one call for each array: zarr requests their chunks at once,
        each a single time."""
        numbers, places = distinct(rows)
        first, last = int(numbers[0]), int(numbers[-1])
        together = last - first + 1 == len(numbers)
        found = dict[str, Any]()
        for name, array in self.arrays.items():
            try:
                part = array[first : last + 1] if together else array.oindex[numbers]
            except Exception as error:  # noqa: BLE001  each codec has its own
                shown = f"{self.shown}{f', array {name!r}' if name else ''}"
                raise known(error, f"{shown}: rows {first} to {last} cannot be read", self.uri) from None
            part = np.asarray(part)
            part = part.astype(object) if part.dtype.kind == "T" else part
            found[name] = part if places is None else part[places]
        return found[""] if self.names is None and [*found] == [""] else found


def reopened(identity: str, uri: str, names: Any, element: str, storage: StorageOptions | None) -> ZarrTable:
    """Open arrays again, in another process; `DataLossError` if they were replaced."""
    table = ZarrTable(uri, names, element, storage)
    if table.identity != identity:
        raise DataLossError(f"{table.shown}: its arrays are others than when the dataset was made")
    return table


def arrays_in(uri: str, names: Sequence[str] | None, storage: StorageOptions | None) -> dict[str, Any]:
    """Return the arrays at a path or URL by name: of an array itself, of those in a group, or of some of these."""
    found = open_node(uri, storage)
    if hasattr(found, "shape"):
        if names is not None:
            raise PlanError(f"{METHOD}(arrays=): {without_query(uri)} is an array, and no group of arrays")
        arrays: dict[str, Any] = {"": found}
    elif names is None:
        if is_web(uri):
            raise PlanError(f"{METHOD}({without_query(uri)}): a web server cannot list a group: give arrays=")
        arrays = {name: one for name, one in attempt(uri, lambda: sorted(found.members())) if hasattr(one, "shape")}
    else:
        arrays = {name: member(found, name, uri) for name in names}
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len({shape[:1] for shape in shapes.values()} | {()}) != 2:
        raise PlanError(
            f"{METHOD}({without_query(uri)}): arrays must have equally many rows along their first axis, and these "
            f"have the shapes {shapes}: give arrays= with those that do"
        )
    return arrays


def member(group: Any, name: str, uri: str) -> Any:
    """Return an array of a group; `PlanError` if there is none of this name."""
    found = attempt(uri, lambda: group.get(name))
    if not hasattr(found, "shape"):
        try:
            known = f", whose arrays are {sorted(group.array_keys())!r:.300}"
        except Exception:  # noqa: BLE001  each store has its own, if it cannot be listed
            known = ""
        raise PlanError(f"{METHOD}(arrays=): there is no array {name!r} in {without_query(uri)}{known}")
    return found


def open_node(uri: str, storage: StorageOptions | None) -> Any:
    """Return the array or group at a path or URL; consolidated metadata may be older than the arrays."""
    return attempt(uri, lambda: zarr().open(store=store_of(uri, storage), mode="r", use_consolidated=False))


def attempt(uri: str, call: Callable[[], Any]) -> Any:
    """Return what a call of the package returns; if it fails, one of `KNOWN` or a `DataLossError`."""
    try:
        return call()
    except (AsyncDataError, ImportError):
        raise
    except Exception as error:  # noqa: BLE001  each store has its own
        raise known(error, f"{METHOD}({without_query(uri)}) cannot be opened", uri) from None


def known(error: Exception, what: str, uri: str) -> Exception:
    """Return an error of zarr, of a codec or of a store as one of `KNOWN`, without secrets."""
    cause = explained(error, uri) if type(error).__module__.startswith("obstore") else error
    words = redacted(str(cause).partition("\n")[0]) or type(cause).__name__
    return next((kind for kind in KNOWN if isinstance(cause, kind)), DataLossError)(f"{what}: {words}")


def store_of(uri: str, storage: StorageOptions | None) -> Any:
    """Return zarr's store for a path or URL."""
    if is_local(uri):
        return local_path(uri)
    store, _ = store_for(uri, storage)
    values: Mapping[str, Any] = {} if storage is None else storage.values
    stores = zarr("zarr.storage")
    if not isinstance(store, ObjectStore):
        return stores.FsspecStore.from_url(uri, storage_options=dict(values), read_only=True)
    check_not_forked()
    how = dict(values)
    retries = how.pop("retry_config", RETRIES)
    return stores.ObjectStore(open_store(uri, how, dict(retries)), read_only=True)

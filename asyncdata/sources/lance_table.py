"""LanceTable: one version of a Lance dataset, whose rows are read by number or by a filter, as columns."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from asyncdata.elements.borrowed_columns import borrowed
from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.arrow_columns import arrow, check_values, columns_of
from asyncdata.formats.column_parser import ROWS, part_of
from asyncdata.redaction import redacted
from asyncdata.sources.table_rows import Segment, distinct
from asyncdata.storage import StorageOptions, is_local, store_for, without_query
from asyncdata.storage.servers import endpoint_of
from asyncdata.system.optional_packages import require

__all__ = ("METHOD", "ROW_BITS", "LanceTable", "lance")

METHOD: Final = "LanceDataset"

SCHEMES: Final = ("s3", "gs", "az", "abfss")
"""Object stores of which the package and ours have the same options."""

AT_ONCE: Final = 8 << 20
"""About how many bytes are decoded together."""

FIRST: Final = 8
"""How many rows are read first, which tells how large rows are; then up to eight times as many each time."""

MOST: Final = 32768
"""The most rows that are read together: to plan a reading takes as long as reading thousands of small rows."""

ROW_BITS: Final = 32
"""An address is the number of a fragment, and in so many bits the row in it."""

SCAN: Final = {"batch_readahead": 2, "fragment_readahead": 1, "io_buffer_size": 32 << 20, "scan_in_order": True}
"""How far the package reads ahead for a filter; by default it takes gigabytes."""

PLACE: Final = re.compile(r",? ?[^\s,]*\.rs:\d+(:\d+)?")
"""A place in the package's code, in its errors."""

VOLATILE: Final = re.compile(r"\b(random|uuid)\s*\(", re.IGNORECASE)
"""A function in a condition that gives another value each time."""

QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--.*")
"""Text, a name or a comment in a condition."""

LEGACY: Final = "0.1"
"""The format of files of which the package takes rows by number, but does not filter them by it."""

NOT_FOUND: Final = "not found"

NO_FIELD: Final = "No field named"

EXPECTED: Final = (OSError, ValueError, RuntimeError, NotImplementedError)
"""Errors of the package. It may also panic, which no class of exceptions but `BaseException` covers."""

Numbers: TypeAlias = npt.NDArray[Any]


def lance() -> Any:
    """Return the package's module, or raise an error that says what to install."""
    return require("lance", METHOD, "'asyncdata[lance]'")


@final
class LanceTable:
    """Reads a version of a table. Thread-safe."""

    method = METHOD

    def __init__(
        self,
        uri: str,
        version: int | str | None = None,
        columns: Sequence[str] | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        self.uri = uri
        self.columns = columns
        self.storage = storage
        self.shown = without_query(uri)
        self.dataset, self.digest = open_version(uri, version, storage)
        """The package's dataset, and what identifies its rows: versions that only differ in their indices have the same
        digest."""
        self.version: int = self.dataset.version
        """The number of the version, also where a tag was given."""
        self.fragments = by_number(self.shown, self.dataset.get_fragments())
        self.numbers: Numbers = np.array([*self.fragments], np.uint64)
        counts, deleted = attempt(f"{METHOD}({self.shown}) cannot be opened", self.counted)
        self.begins: Numbers = np.cumsum([0, *counts], dtype=np.int64)[:-1]
        """The number of the first row of each fragment."""
        self.deleted: Numbers = np.array(deleted, np.int64)
        self.count: int = sum(counts)
        self.step = FIRST
        """How many rows are read together."""
        self.row_bytes = 0
        """How large the rows were that were read last, 0 if none was read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (self.digest, self.uri, self.version, self.columns, self.storage)

    @property
    def identity(self) -> str:
        """What identifies the rows."""
        return f"{self.count} rows {self.digest}"

    def counted(self) -> tuple[list[int], list[int]]:
        """Return how many rows each fragment has, and how many were deleted; old metadata do not say, or wrongly."""
        found = self.fragments.values()
        return [one.count_rows() for one in found], [one.num_deletions for one in found]

    def check(self, filters: str | None) -> None:
        """Raise `PlanError` for columns that are not there, and for a filter that is none or not always the same."""
        if self.columns is not None and "_rowaddr" in self.columns:
            raise PlanError(f"{METHOD}(columns=) cannot have _rowaddr, by which rows are found: _rowid is possible")
        if filters is not None:
            check_whole(filters)
        try:
            self.scanner(filter=None if filters is None else f"({filters}\n)").explain_plan()
        except (ValueError, OSError) as error:
            reason, names = reason_of(error), f" The columns are {self.dataset.schema.names!r:.300}"
            raise PlanError(f"{METHOD}({self.shown}): {reason}{names if NO_FIELD in reason else ''}") from None

    def scanner(self, **how: Any) -> Any:
        """Return a reader of some rows, which decodes blobs too."""
        return self.dataset.scanner(columns=self.columns, blob_handling="all_binary", **{**SCAN, **how})

    def read(self, rows: Sequence[int]) -> list[Segment]:
        """Return the rows with these numbers, in this order; each that cannot be read is an error in its place."""
        try:
            columns = self.columns_at(rows)
            spans = [(begin, min(begin + ROWS, len(rows))) for begin in range(0, len(rows), ROWS)]
            return [borrowed(part_of(columns, begin, end), end - begin) for begin, end in spans]
        except DataLossError as error:
            if len(rows) == 1:
                return [error.with_traceback(None)]
        half = len(rows) // 2
        return [*self.read(rows[:half]), *self.read(rows[half:])]

    def columns_at(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the columns of the rows with these numbers."""
        numbers, places = distinct(rows)
        first, last = int(numbers[0]), int(numbers[-1])
        what = f"row {first}" if first == last else f"rows {first} to {last}"
        found = self.checked(what, partial(self.table_at, numbers, last - first + 1 == len(numbers)))
        if not self.are_at(numbers, found.column("_rowaddr").to_numpy()):
            raise DataLossError(f"{self.shown}: {what} should be {len(numbers)} rows, and others are there")
        found = found.drop_columns(["_rowaddr"])
        self.row_bytes = -(-found.nbytes // len(numbers))
        step = max(1, min(MOST, 8 * max(self.step, len(numbers)), AT_ONCE // max(1, self.row_bytes)))
        self.step = step - step % ROWS or step
        return self.decoded(what, found if places is None else found.take(places))

    def table_at(self, numbers: Numbers, consecutive: bool) -> Any:
        """Return the rows with these rising numbers as the package's table, with their addresses."""
        if consecutive:
            how: dict[str, Any] = {"offset": int(numbers[0]), "limit": len(numbers)}
        elif self.dataset.data_storage_version == LEGACY:
            columns = self.dataset.schema.names if self.columns is None else self.columns
            return self.dataset.take(numbers.tolist(), columns=[*columns, "_rowaddr"])
        else:
            how = {"filter": f"_rowoffset in ({','.join(map(str, numbers.tolist()))})"}
        return self.scanner(with_row_address=True, batch_size=len(numbers), **how).to_table()

    def are_at(self, rows: Numbers, addresses: Numbers) -> bool:
        """Return whether rows with these numbers may have these addresses: those of deleted rows are left out.

        Where a file is damaged, the package may take other rows for them, also of the next fragment.
        """
        if len(rows) != len(addresses):
            return False
        index: Numbers = np.searchsorted(self.begins, rows, side="right") - 1
        places: Numbers = (addresses & ((1 << ROW_BITS) - 1)).astype(np.int64)
        before: Numbers = places - (rows - self.begins[index])
        rising = (places[1:] > places[:-1]) | (index[1:] != index[:-1])
        within = (before >= 0) & (before <= self.deleted[index])
        return bool(np.all(rising) and np.all(within) and np.all(addresses >> ROW_BITS == self.numbers[index]))

    def matching(self, fragment: int, address: int, filters: str) -> Iterator[tuple[ColumnBatch, list[int]]]:
        """Yield the rows of a fragment, from an address on, that match a filter, with their addresses."""
        what = f"fragment {fragment}"
        if not self.row_bytes:
            self.read(range(min(self.count, FIRST)))
        size = max(1, min(ROWS, AT_ONCE // max(1, self.row_bytes)))
        how = {"filter": f"({filters}\n) AND _rowaddr >= {address}", "batch_size": size}
        one = [self.fragments[fragment]]
        scan = self.checked(what, lambda: self.scanner(fragments=one, with_row_address=True, **how).to_batches())
        while (found := self.checked(what, lambda: next(scan, None))) is not None:
            if found.num_rows:
                columns = self.decoded(what, arrow("pyarrow", METHOD).Table.from_batches([found]))
                addresses: Numbers = columns.pop("_rowaddr")
                first, last = int(addresses[0]), int(addresses[-1])  # as NumPy 1 makes a float of a uint64 and an int
                inside = address <= first and last >> ROW_BITS == fragment
                if not inside or (addresses[1:] <= addresses[:-1]).any():
                    raise DataLossError(f"{self.shown}: {what} should have its own rows, and others are there")
                yield borrowed(columns, len(addresses)), addresses.tolist()

    def read_matches(self, addresses: Sequence[int], filters: str) -> list[Segment]:
        """Return the rows at these addresses if they match a filter, else an error in their places."""
        what = "rows that were read before"
        how = {"filter": f"({filters}\n) AND _rowaddr in ({','.join(map(str, addresses))})"}
        try:
            table = self.checked(what, lambda: self.scanner(with_row_address=True, **how).to_table())
            columns = self.decoded(what, table)
        except DataLossError as error:
            return [error.with_traceback(None)] * len(addresses)
        places = {address: place for place, address in enumerate(columns.pop("_rowaddr").tolist())}
        rows, gone = (
            ColumnBatch(columns, len(places)),
            f"{self.shown}: a row at this address matches the filter no more",
        )
        found = [places.get(address) for address in addresses]
        return [DataLossError(gone) if place is None else rows[place : place + 1] for place in found]

    def decoded(self, what: str, table: Any) -> dict[str, Any]:
        """Return columns of NumPy; damage that the package has not noticed may be an error here."""

        def columns() -> dict[str, Any]:
            check_values(table)
            return columns_of(table)

        return self.checked(what, columns)

    def checked(self, what: str, call: Callable[[], Any]) -> Any:
        """Return what a call of the package returns; `DataLossError` if it fails."""
        return attempt(f"{self.shown}: {what} cannot be read", call)

    def version_with(self, digest: str) -> int | None:
        """Return the newest version of the table that has these rows, `None` if none has that is still there."""
        for found in sorted((found["version"] for found in self.dataset.versions()), reverse=True):
            with suppress(OSError, DataLossError):
                if open_version(self.uri, found, self.storage)[1] == digest:
                    return found
        return None


def by_number(shown: str, fragments: Sequence[Any]) -> dict[int, Any]:
    """Return fragments by their numbers; `DataLossError` if two have the same, as rows are found by it."""
    found = {one.fragment_id: one for one in fragments}
    if len(found) < len(fragments):
        raise DataLossError(f"{shown}: two of its fragments have one number: {[one.fragment_id for one in fragments]}")
    return found


def reopened(digest: str, uri: str, version: int, columns: Any, storage: StorageOptions | None) -> LanceTable:
    """Open a version again, in another process; `DataLossError` if the table was replaced."""
    table = LanceTable(uri, version, columns, storage)
    if table.digest != digest:
        raise DataLossError(f"{table.shown}: version {version} is another one than when the dataset was made")
    return table


def check_whole(filters: str) -> None:
    """Raise `PlanError` for a condition that is none within brackets, and for one that gives other rows each time."""
    plain = QUOTED.sub("", filters)
    if min(accumulate({"(": 1, ")": -1}.get(sign, 0) for sign in f"({plain}")) < 1:
        raise PlanError(f"{METHOD}(filters=): a bracket is closed that was not opened in {filters!r:.80}")
    if found := VOLATILE.search(plain):
        raise PlanError(
            f"{METHOD}(filters=): {found[1]}() gives other rows each time, also to a run that resumes: use "
            "Dataset.filter"
        )


def open_version(uri: str, version: int | str | None, storage: StorageOptions | None) -> tuple[Any, str]:
    """Return the package's dataset, and the digest of its rows."""
    path, options = (store_for(uri)[1], None) if is_local(uri) else (uri, options_for(uri, storage))
    name = f"{METHOD}({without_query(uri)})"
    if is_local(uri) and os.path.isfile(path):
        raise NotADirectoryError(f"{name}: it is a file, and a Lance dataset is a folder")
    try:
        what = f"{name} cannot be opened"
        found = attempt(what, lambda: lance().dataset(path, version=version, storage_options=options))
        return found, attempt(what, lambda: digest_of(found))
    except DataLossError as error:
        if NOT_FOUND not in str(error).lower():
            raise
        if version is None:
            raise FileNotFoundError(str(error)) from None
    newest, _ = open_version(uri, None, storage)
    raise FileNotFoundError(
        f"{name} has no version {version!r}: the newest is {newest.version}, older ones may have been removed, and the "
        f"tags are {[*newest.tags.list()]!r:.300}"
    )


def attempt(what: str, call: Callable[[], Any]) -> Any:
    """Return what a call of the package returns; `DataLossError` if it fails, or panics on damaged data."""
    try:
        return call()
    except BaseException as error:
        if isinstance(error, EXPECTED) or type(error).__name__ == "PanicException":
            raise DataLossError(f"{what}: {reason_of(error)}") from None
        raise


def options_for(uri: str, storage: StorageOptions | None) -> dict[str, str]:
    """Return the options of an object store in the package's form; `PlanError` for a store that it does not have."""
    if uri.partition("://")[0].lower() not in SCHEMES:
        raise PlanError(
            f"{METHOD} reads local folders and {', '.join(f'{scheme}://' for scheme in SCHEMES)}, got "
            f"{without_query(uri)!r}"
        )
    values: dict[str, Any] = {} if storage is None else dict(storage.values)
    if "credential_provider" in values:
        raise PlanError(
            f"{METHOD}(storage_options=) cannot have a credential_provider, which the package does not call"
        )
    client: Mapping[str, Any] = values.pop("client_options", {})
    retries: Mapping[str, Any] = values.pop("retry_config", {})
    if "max_retries" in retries:
        values["client_max_retries"] = retries["max_retries"]
    if endpoint_of(values).startswith("http://"):
        values["allow_http"] = True
    return {name: text_of(value) for name, value in {**values, **client}.items()}


def text_of(value: Any) -> str:
    """Return the value of an option as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def digest_of(dataset: Any) -> str:
    """Return a digest of the files that hold a version's rows, whose names are random, and of its columns."""
    digest = blake2b(repr([(name, str(kind)) for name, kind in names_and_types(dataset)]).encode(), digest_size=6)
    for fragment in dataset.get_fragments():
        digest.update(repr(sorted(fragment.metadata.to_json().items())).encode())
    return digest.hexdigest()


def names_and_types(dataset: Any) -> list[tuple[str, Any]]:
    """Return the columns of a dataset."""
    return [(column.name, column.type) for column in dataset.schema]


def reason_of(error: BaseException) -> str:
    """Return the words of an error of the package, without places in its code."""
    return redacted(PLACE.sub("", str(error).partition("\n")[0]).strip() or type(error).__name__)

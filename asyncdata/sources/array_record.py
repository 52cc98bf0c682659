"""Records of ArrayRecord files, read by number with the package array_record."""

from __future__ import annotations

import copy
import os
import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from asyncdata.errors import DataLossError, PlanError
from asyncdata.sources.tfrecord_random_access import of_another_count
from asyncdata.storage import is_local, local_path
from asyncdata.system.optional_packages import require

__all__ = ("ArrayRecords",)

METHOD: Final = "ArrayRecordDataset"

OPTIONS: Final = "readahead_buffer_size:0"
"""Records are read by number, so reading ahead would be wasted."""


class ArrayRecords:
    """The records of several files, one file after the other. Each file is opened once and stays open.

    A file that cannot be opened has one record, which is the error.
    """

    def __init__(self, paths: Sequence[str], lengths: Sequence[int] | None = None) -> None:
        """Open files, which have so many records as `lengths` says; if one has not, that is its error."""
        self.paths = [checked(path) for path in paths]
        self.sizes = [size_of(path) for path in self.paths]
        self.errors: dict[int, OSError | DataLossError] = {}
        self._begin()
        self.lengths = lengths
        self.ends = [*accumulate(map(self._count, range(len(self.paths))))]

    def _begin(self) -> None:
        self._readers: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths, "sizes": self.sizes, "errors": self.errors, "ends": self.ends, "lengths": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> bytes:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
        """Return the records with these numbers."""
        found: list[bytes] = [b""] * len(indices)
        places: dict[int, list[int]] = {}
        for place, index in enumerate(indices):
            places.setdefault(bisect_right(self.ends, index), []).append(place)
        for file, those in places.items():
            before = self.ends[file - 1] if file else 0
            numbers = [indices[place] - before for place in those]
            try:
                records = self._reader(file).read(numbers)
            except (RuntimeError, ValueError, IndexError) as error:
                reason = str(error).partition("\n")[0]
                raise DataLossError(f"{self.paths[file]}: record {numbers[0]} cannot be read: {reason}") from None
            for place, record in zip(those, records, strict=True):
                found[place] = record
        return found

    def _count(self, file: int) -> int:
        """Return how many records a file has; 1 if it cannot be opened."""
        try:
            count: int = self._reader(file).num_records()
            expected = count if self.lengths is None else self.lengths[file]
            if count == expected:
                return count
            self.errors[file] = of_another_count(self.paths[file], count, expected)
        except (OSError, DataLossError) as error:
            self.errors[file] = error.with_traceback(None)
        return 1

    def _reader(self, file: int) -> Any:
        """Return the reader of a file; raise the error that it had when the dataset was made."""
        if file in self.errors:
            raise copy.copy(self.errors[file])
        with self._lock:
            if file not in self._readers:
                self._readers[file] = self._opened(file)
            return self._readers[file]

    def _opened(self, file: int) -> Any:
        path = self.paths[file]
        size = os.stat(path).st_size
        if size != self.sizes[file]:
            raise DataLossError(f"{path}: it had {self.sizes[file]} bytes when the dataset was made, now {size}")
        reader = array_record().ArrayRecordReader(path, OPTIONS)
        if not reader.ok():
            raise DataLossError(
                f"{path}: it is cut short, or not an ArrayRecord file: the index of its records was expected in the "
                f"64 KB before byte {size}, where it ends: {why_not(reader)}"
            )
        return reader


def size_of(path: str) -> int:
    """Return the size of a file in bytes, -1 if it is unknown: opening the file then raises the reason."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def why_not(reader: Any) -> str:
    """Return the error of a reader that could not open its file."""
    try:
        reader.close()
    except (RuntimeError, ValueError) as error:
        return str(error).partition("\n")[0]
    return "no reason given"


def checked(path: str) -> str:
    """Return a path; `PlanError` unless it is local."""
    if not is_local(path):
        raise PlanError(f"{METHOD} reads local files, got {path!r}")
    return local_path(path)


def array_record() -> Any:
    """Return the package's module, or raise an error that says what to install."""
    return require("array_record.python.array_record_module", METHOD, "'asyncdata[array-record]'")

"""ArrayRows: the rows of an array in a file, as of HDF5 and Zarr, which is read chunk by chunk."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from copy import deepcopy
from itertools import groupby
from math import prod
from typing import Any, ClassVar, Final, final

import numpy as np

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import PlanError
from asyncdata.sources.file_list_digest import stamps
from asyncdata.sources.numbered_files import runs
from asyncdata.system.optional_packages import require

__all__ = ("ArrayRows", "is_array_in_file")

KEPT: Final = 4
"""How many chunks are kept, as the next rows are in them."""

LARGEST: Final = 64 << 20
"""Larger chunks are not kept, and only the rows that are needed are read of them."""


def is_array_in_file(source: Any) -> bool:
    """Return whether something is read by slices, as arrays in files are: it has a shape and no `len`, or is HDF5's."""
    if not hasattr(source, "shape") or not hasattr(source, "__getitem__"):
        return False
    return not hasattr(source, "__len__") or is_hdf5(source)


def is_hdf5(source: Any) -> bool:
    return package_of(source) == "h5py" and type(source).__name__ == "Dataset"


def package_of(value: Any) -> str:
    """Return the name of the package that a value's class is of."""
    return type(value).__module__.partition(".")[0]


@final
class ArrayRows:
    """The rows along the first axis, each of which may be changed. Thread-safe."""

    counted: ClassVar = ("origin",)

    def __init__(self, array: Any) -> None:
        check_open(array)
        if not array.shape:
            raise PlanError(f"from_source needs an array with rows, and this one holds a single value: {array!r:.80}")
        self.array = array
        self.origin = origin_of(array)
        """What a cache of the rows depends on."""
        chunks = getattr(array, "chunks", None)
        self.step = chunks[0] if chunks and isinstance(chunks[0], int) else 1
        """How many rows are read together."""
        if self.step * prod(array.shape[1:]) * getattr(dtype_of(array), "itemsize", 1) > LARGEST:
            self.step = 1
        self.chunks: OrderedDict[int, Future[Any]] = OrderedDict()
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where the array is, to be opened again."""
        return (reopened, place_of(self.array)) if is_hdf5(self.array) else (ArrayRows, (self.array,))

    def __len__(self) -> int:
        return self.array.shape[0]

    def __getitem__(self, index: int) -> Any:
        return next(iter(self.__getitems__([index])))

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """Return the rows with these numbers."""
        parts: list[Any] = []
        check_open(self.array)
        if self.step == 1:
            parts = [np.asarray(self.array[start:stop]) for start, stop in runs(indices)]
        else:
            for chunk, numbers in groupby(indices, lambda number: number // self.step):
                parts.append(self.chunk(chunk)[[number - chunk * self.step for number in numbers]])
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts, dtype=parts[0].dtype)  # as it is stored
        if rows.dtype.hasobject:  # as arrays of several lengths, of a chunk that is kept
            references = {id(item): item for item in rows.flat if package_of(item) == "h5py"}
            rows = deepcopy(rows, references)  # which cannot be copied, and are not changed
        elif rows.base is not None:  # of something in memory
            rows = rows.copy()
        return ColumnBatch.of(rows, owned=True) or list(rows)

    def chunk(self, number: int) -> Any:
        """Return the rows of a chunk, which only one thread reads at a time."""
        with self.lock:
            known = self.chunks.get(number)
            found = self.chunks.setdefault(number, Future[Any]())
            self.chunks.move_to_end(number)
            if len(self.chunks) > KEPT:
                self.chunks.popitem(last=False)
        if known is None:
            try:
                found.set_result(np.asarray(self.array[number * self.step : (number + 1) * self.step]))
            except BaseException as error:
                with self.lock:
                    self.chunks.pop(number, None)
                found.set_exception(error)
                raise
        return found.result()


def check_open(array: Any) -> None:
    """Raise `ValueError` for an array of HDF5 whose file is closed; h5py's own errors do not say so."""
    if is_hdf5(array) and not array:
        raise ValueError("the HDF5 file of this array is closed: it must be open as long as the pipeline reads it")


def origin_of(array: Any) -> tuple[str, ...]:
    """Return where an array is, as far as that is known, and in HDF5 which version of the file."""
    where = (stamps([array.file.filename]), array.name) if is_hdf5(array) else getattr(array, "store_path", "")
    return str(where), str(array.shape), str(dtype_of(array))


def dtype_of(array: Any) -> Any:
    """Return the dtype of an array if it says which, as variables of NetCDF in SciPy do not."""
    return getattr(array, "dtype", None)


def place_of(dataset: Any) -> tuple[str, str, bool]:
    """Return how a dataset of HDF5 is opened again; `TypeError` if that is not possible."""
    file = dataset.file
    if file.mode != "r" or file.driver not in ("sec2", "stdio"):
        raise TypeError(
            f"an HDF5 file is opened again in another process: open it with mode='r' and without driver=, got "
            f"{file.filename!r} with mode={file.mode!r} and driver={file.driver!r}"
        )
    return os.path.abspath(file.filename), dataset.name, file.swmr_mode


def reopened(filename: str, name: str, swmr: bool) -> ArrayRows:
    """Open a dataset of HDF5 in this process."""
    return ArrayRows(require("h5py", "from_source of HDF5", "h5py").File(filename, "r", swmr=swmr)[name])

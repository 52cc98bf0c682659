"""The rows of the arrays in a file of HDF5, or in a folder of Zarr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.readers.zarr import ZarrDataset
from asyncdata.sources.zarr_table import open_node
from asyncdata.storage import StorageOptions, local_path
from asyncdata.system.optional_packages import require

__all__ = ("ZARR", "is_zarr", "rows_of_hdf5", "rows_of_zarr")

ZARR: Final = ("zarr.json", ".zarray", ".zgroup")
"""One of these files is in a folder of Zarr."""


def rows_of_hdf5(paths: Sequence[str], *, storage_options: object = None) -> Dataset[Any]:
    """Return the rows of the arrays in files, which have the same names in each."""
    first, *others = [rows_of(path, members_of_hdf5(local_path(path, "HDF5 files"))) for path in paths]
    for other in others:
        first = first.concatenate(other)
    return first


def members_of_hdf5(path: str) -> dict[str, Any]:
    """Return what is in a file and in its groups."""
    found: dict[str, Any] = {}
    require("h5py", "HDF5", "h5py").File(path, "r").visititems(found.__setitem__)
    return found


def is_zarr(folder: str) -> bool:
    """Return whether a folder is an array or a group of Zarr."""
    return any(Path(folder, name).exists() for name in ZARR)


def rows_of_zarr(folder: str, storage_options: Mapping[str, Any] | None = None) -> Dataset[Any]:
    """Return the rows of an array, or of those in a group."""
    found = open_node(folder, StorageOptions.of("ZarrDataset", storage_options))
    if hasattr(found, "shape"):
        return ZarrDataset(folder, storage_options=storage_options)
    names = [name for name, one in found.members(max_depth=None) if hasattr(one, "shape")]
    return ZarrDataset(folder, names, storage_options=storage_options)


def rows_of(path: str, members: dict[str, Any]) -> Dataset[Any]:
    """Return dicts of the rows of the arrays among these; `PlanError` if they have not equally many."""
    arrays = {name: one for name, one in members.items() if hasattr(one, "shape")}
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len({shape[:1] for shape in shapes.values()} | {()}) != 2:
        raise PlanError(f"{path}: its arrays have not equally many rows, {shapes}: give one of them to from_source")
    return Dataset.zip({name: Dataset[Any].from_source(array) for name, array in arrays.items()})

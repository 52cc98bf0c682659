"""Files that nobody here wrote: those that packages bring with them for their own tests and examples."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

pytestmark = pytest.mark.formats


def files(package: str, pattern: str) -> list[Path]:
    """Return the files of an installed package."""
    try:
        module = importlib.import_module(package)
    except ImportError:
        return []
    return sorted(Path(module.__path__[0]).glob(pattern))


ARRAYS = [
    path for package in ("numpy.lib", "scipy") for ending in ("npy", "npz") for path in files(package, f"**/*.{ending}")
]


def loaded(path: Path) -> Any:
    """Return what NumPy reads, `None` for what has no rows, or has objects."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of files that Python 2 wrote
            found = np.load(path)
        if path.suffix == ".npy":
            return found if found.ndim else None
        arrays = dict(found)
    except ValueError:
        return None
    lengths = {len(array) if array.ndim else -1 for array in arrays.values()}
    return arrays if len(lengths) == 1 and -1 not in lengths else None


@pytest.mark.parametrize("path", ARRAYS, ids=lambda path: path.name)
@pytest.mark.parametrize("index", [False, True])
def test_arrays_of_numpy_and_scipy(path: Path, index: bool) -> None:
    found, ds = loaded(path), ad.NpyDataset(path, index=index)
    if found is None:
        with pytest.raises(ad.DataLossError, match=path.name):
            list(ds)
        return
    rows = list(ds)
    if isinstance(found, dict):
        for name, array in found.items():
            assert np.array_equal(np.array([row[name] for row in rows]).reshape(array.shape), array, equal_nan=True)
    else:
        assert np.array_equal(np.array(rows).reshape(found.shape), found)


TABLES = files("pyarrow", "tests/data/parquet/*.parquet")


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
@pytest.mark.parametrize("index", [False, True])
def test_tables_of_pyarrow(path: Path, index: bool) -> None:
    table = pytest.importorskip("pyarrow.parquet").read_table(path)
    rows = list(ad.ParquetDataset(path, index=index))
    assert len(rows) == table.num_rows > 0
    for name in table.column_names:
        expected = table.column(name)
        if str(expected.type) in ("double", "int64", "string"):
            assert [row[name] for row in rows] == expected.to_pylist()


@pytest.mark.parametrize("path", files("pyarrow", "tests/data/feather/*.feather"), ids=lambda path: path.name)
def test_feather_of_pyarrow(path: Path) -> None:
    table = pytest.importorskip("pyarrow.feather").read_table(path)
    rows = list(ad.ArrowDataset(path))
    assert len(rows) == table.num_rows > 0
    for name in table.column_names:
        assert [row[name] for row in rows] == table.column(name).to_pylist()


def test_pictures_of_scikit_learn() -> None:
    (path,) = files("sklearn", "datasets/images/china.jpg")
    ds = ad.ImageFolderDataset(path.parents[1])
    assert "images" in ds.class_names
    pictures = dict(zip(sorted(one.name for one in path.parent.glob("*.jpg")), ds))
    assert pictures["china.jpg"] == (path.read_bytes(), ds.class_names.index("images"))


def test_enough_files_are_there() -> None:
    assert len(ARRAYS) > 10
    assert len(TABLES) > 2

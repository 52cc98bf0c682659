"""Rows of arrays in files: of a class that has no `len`, and of the packages h5py and zarr."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.identity.content_hash import contents
from asyncdata.sources.array_rows import ArrayRows
from asyncdata.testing import check_resumes
from tests.pages import DOCS

NUMBERS = np.arange(300, dtype=np.int16).reshape(50, 3, 2)


class Sliced:
    """An array in chunks that has no `len`, and counts what is read of it."""

    def __init__(self, chunks: tuple[int, ...] | None, damaged: int | None = None) -> None:
        self.shape, self.dtype, self.chunks = NUMBERS.shape, NUMBERS.dtype, chunks
        self.damaged = damaged
        self.rows: Any = NUMBERS
        self.read: list[tuple[int, int]] = []

    def __getitem__(self, rows: Any) -> Any:
        self.read.append((rows.start, rows.stop))
        if self.damaged is not None and rows.start <= self.damaged < rows.stop:
            raise OSError("damaged")
        return self.rows[rows]


def hdf5(path: Path, mode: str = "r", **how: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    if not path.exists():
        with h5py.File(path, "w") as file:
            file.create_dataset("a", data=NUMBERS, chunks=(8, 3, 2), compression="gzip", fletcher32=True)
            file.create_dataset("group/plain", data=NUMBERS)
    return h5py.File(path, mode, **how)


def zarr(path: Path, **how: Any) -> Any:
    array = pytest.importorskip("zarr").create_array(
        store=str(path), shape=NUMBERS.shape, dtype="int16", **{"chunks": (4, 3, 1), "shards": (8, 3, 2)} | how
    )
    array[:] = NUMBERS
    return array


ARRAYS: dict[str, Any] = {
    "chunks": lambda _: Sliced((8, 3, 2)),
    "no chunks": lambda _: Sliced(None),
    "HDF5": lambda folder: hdf5(folder / "a.h5")["a"],
    "HDF5 without chunks": lambda folder: hdf5(folder / "a.h5")["group/plain"],
    "Zarr": lambda folder: zarr(folder / "a.zarr"),
    "Zarr without shards": lambda folder: zarr(folder / "a.zarr", shards=None, chunks=(7, 2, 2)),
}

KINDS = [pytest.param(kind, marks=pytest.mark.formats if kind[0] in "HZ" else ()) for kind in ARRAYS]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_any_order_and_from_any_place(kind: str, tmp_path: Path) -> None:
    array = ARRAYS[kind](tmp_path)
    ds = ad.Dataset.from_source(array)
    assert len(ds) == 50
    assert ds[-3].tolist() == NUMBERS[-3].tolist()
    for calls in (None, 4):
        many = ad.Dataset.from_source(array, num_parallel_calls=calls)
        assert np.array_equal(list(many), NUMBERS)
        assert np.array_equal(next(iter(many.batch(50))), NUMBERS)
    shuffled = list(ds.shuffle(seed=1))
    assert not np.array_equal(shuffled, NUMBERS)
    assert sorted(row.tolist() for row in shuffled) == NUMBERS.tolist()
    for row in ds:
        row[...] = 0  # it may be changed, and is in no other
    assert np.array_equal(list(ds), NUMBERS)
    check_resumes(lambda: ad.Dataset.from_source(array), places=50)
    check_resumes(lambda: ad.Dataset.from_source(array).shuffle(seed=1).batch(4), places=5)


def test_chunks_are_read_once_in_order_and_as_a_whole() -> None:
    array = Sliced((16, 3, 2))  # as many chunks as are kept, however far threads are apart
    assert np.array_equal(list(ad.Dataset.from_source(array, num_parallel_calls=3)), NUMBERS)
    assert sorted(array.read) == [(begin, begin + 16) for begin in range(0, 50, 16)]
    array = Sliced((8, 3, 2))
    array.dtype = np.dtype("V20000000")  # chunks of more bytes than are kept
    assert np.array_equal(list(ad.Dataset.from_source(array)), NUMBERS)
    assert [*np.concatenate([range(*span) for span in array.read])] == [*range(50)]


def test_what_cannot_be_read_is_an_error_in_its_place() -> None:
    ds = ad.Dataset.from_source(Sliced((8, 3, 2), damaged=20))
    assert np.array_equal(list(ds.ignore_errors()), np.delete(NUMBERS, range(16, 24), axis=0))
    with pytest.raises(OSError, match="damaged") as caught:
        list(ds)
    assert caught.value.__notes__ == ["in from_source(ArrayRows of 50), element 16"]


def test_what_has_no_rows() -> None:
    array = Sliced(None)
    array.shape = ()
    with pytest.raises(ad.PlanError, match="holds a single value"):
        ad.Dataset.from_source(array)


def doubled(row: Any) -> Any:
    return row * 2


@pytest.mark.formats
@pytest.mark.parametrize("kind", ["HDF5", "Zarr"])
def test_each_process_opens_the_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    array = ARRAYS[kind](Path())
    again = pickle.loads(pickle.dumps(ArrayRows(array)))
    assert again.array is not array
    assert np.array_equal([*again.__getitems__([*range(50)])], NUMBERS)
    ds = ad.Dataset.from_source(array)
    assert contents(ds.plan) == contents(ad.Dataset.from_source(again.array).plan)
    for placed in (ds.map(doubled, executor="process"), ds.map(doubled).with_options(ad.Options(placement="process"))):
        assert np.array_equal(list(placed), NUMBERS * 2)


@pytest.mark.formats
def test_files_of_hdf5_that_other_processes_cannot_open(tmp_path: Path) -> None:
    hdf5(tmp_path / "a.h5").close()
    for how in ({"mode": "r+"}, {"driver": "core", "backing_store": False}):
        with hdf5(tmp_path / "a.h5", **how) as file:
            rows = ArrayRows(file["a"])
            with pytest.raises(TypeError, match="open it with mode='r' and without driver="):
                pickle.dumps(rows)
            assert np.array_equal(list(ad.Dataset.from_source(file["a"])), NUMBERS)


@pytest.mark.formats
def test_a_path_is_no_source_and_a_closed_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    array = hdf5(tmp_path / "a.h5")["a"]
    ds = ad.Dataset.from_source(array)
    array.file.close()
    for read in (ds.peek, lambda: ad.Dataset.from_source(array)):
        with pytest.raises(ValueError, match="is closed"):
            read()
    for path in (tmp_path / "a.h5", str(tmp_path / "a.h5")):
        with pytest.raises(ad.PlanError, match="open a file first"):
            ad.Dataset.from_source(path)  # pyright: ignore[reportArgumentType]


@pytest.mark.formats
def test_groups_have_names(tmp_path: Path) -> None:
    with hdf5(tmp_path / "a.h5") as file, pytest.raises(ad.PlanError, match=r"File has names.*such as source\['a'\]"):
        ad.Dataset.from_source(file)
    group = pytest.importorskip("zarr").open_group(str(tmp_path / "a.zarr"), mode="w")
    group.create_array("x", shape=(3,), dtype="int32")
    with pytest.raises(ad.PlanError, match=r"Group has names.*such as source\['x'\]"):
        ad.Dataset.from_source(group)


@pytest.mark.formats
def test_damaged_chunks(tmp_path: Path) -> None:
    """A checksum finds them, and rows of others come."""
    with hdf5(tmp_path / "a.h5") as file:
        info = file["a"].id.get_chunk_info(2)
    content = bytearray((tmp_path / "a.h5").read_bytes())
    content[info.byte_offset + 20] ^= 1
    (tmp_path / "a.h5").write_bytes(content)
    rest = np.delete(NUMBERS, range(16, 24), axis=0)
    with hdf5(tmp_path / "a.h5") as file:
        assert np.array_equal(list(ad.Dataset.from_source(file["a"]).ignore_errors()), rest)
    array = zarr(tmp_path / "a.zarr", chunks=(8, 3, 2), shards=None)
    (path,) = tmp_path.glob("a.zarr/c/2/*/*")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Exception, match=r".*"):
        array[17:18]
    assert np.array_equal(list(ad.Dataset.from_source(array).ignore_errors()), rest)


@pytest.mark.formats
def test_values_of_other_kinds(tmp_path: Path) -> None:
    """Strings, records and numbers of big-endian machines, as the packages give them."""
    h5py = pytest.importorskip("h5py")
    records = np.array([(1, 2.5), (3, 4.5)], [("n", "<i4"), ("x", "<f8")])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("text", data=["one", "three"], chunks=(1,))
        file.create_dataset("records", data=records)
        file.create_dataset("big", data=np.array([1, 256], ">i2"))
    with h5py.File(tmp_path / "a.h5") as file:
        assert list(ad.Dataset.from_source(file["text"])) == [b"one", b"three"]
        assert list(ad.Dataset.from_source(file["text"].asstr())) == ["one", "three"]
        assert list(ad.Dataset.from_source(file["records"])) == [*records]
        assert list(ad.Dataset.from_source(file["big"])) == [1, 256]
    text = pytest.importorskip("zarr").create_array(store={}, shape=(2,), chunks=(1,), dtype="str")
    text[:] = np.array(["one", "three"], object)
    assert list(ad.Dataset.from_source(text)) == ["one", "three"]


@pytest.mark.parametrize("chunks", [(8, 3, 2), None])
def test_rows_have_the_dtype_of_the_file_wherever_chunks_begin(chunks: Any) -> None:
    gaps = np.dtype({"names": ["x", "y"], "formats": [">i2", "<f8"], "offsets": [1, 7], "itemsize": 20})
    for dtype in (">i2", gaps):
        array = Sliced(chunks)
        array.rows, array.dtype = np.zeros(NUMBERS.shape, dtype), np.dtype(dtype)
        for ds in (ad.Dataset.from_source(array), ad.Dataset.from_source(array).shuffle(seed=1)):
            assert {row.dtype for row in ds} == {array.dtype}


def test_rows_that_are_objects_may_be_changed() -> None:
    """As those of HDF5 with several lengths: the chunk that has them is kept."""
    array = Sliced((8, 3, 2))
    array.rows = np.empty(50, object)
    array.rows[:] = [np.arange(length) for length in range(1, 51)]
    for row in (ds := ad.Dataset.from_source(array).take(6)):
        row.fill(100)
    assert [row.tolist() for row in ds] == [[*range(length)] for length in range(1, 7)]


@pytest.mark.formats
def test_references_of_hdf5(tmp_path: Path) -> None:
    """Files of MATLAB 7.3 have cell arrays of them."""
    h5py: Any = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.mat", "w") as file:
        for number in range(3):
            file[f"#refs#/{number}"] = np.arange(number + 1)
        cells = [[file[f"#refs#/{number}"].ref] for number in range(3)]
        file.create_dataset("cells", data=np.array(cells, h5py.ref_dtype), dtype=h5py.ref_dtype)
    with h5py.File(tmp_path / "a.mat") as file:
        ds = ad.Dataset.from_source(file["cells"]).map(lambda cell: file[cell[0]][...])
        assert [cell.tolist() for cell in ds] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.formats
def test_the_recipe_for_netcdf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of docs/recipes.md are those of the package that defines the format."""
    netcdf: Any = pytest.importorskip("netCDF4")
    monkeypatch.chdir(tmp_path)
    temperatures = np.ma.masked_less(np.linspace(260, 300, 240).reshape(20, 3, 4), 262)
    with netcdf.Dataset("era5.nc", "w") as file:
        for name, length in {"time": None, "latitude": 3, "longitude": 4}.items():
            file.createDimension(name, length)
        packed = file.createVariable(
            "t2m", "i2", ("time", "latitude", "longitude"), chunksizes=(6, 3, 4), zlib=True, fill_value=-1
        )
        packed.scale_factor, packed.add_offset = 0.01, 273.15
        packed[:] = temperatures
        expected = file["t2m"][:].filled(np.nan)
    (recipe,) = re.findall(r"```py\n(.*?)```", (DOCS / "recipes.md").read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {"ad": ad, "np": np}
    exec(recipe, found)
    assert np.array_equal(list(found["ds"]), expected, equal_nan=True)
    assert 0 < np.isnan(expected).sum() < 30
    assert sorted(len(batch) for batch in found["batches"]) == [20]
    found["file"].close()

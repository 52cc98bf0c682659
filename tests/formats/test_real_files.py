"""Files that nobody here wrote: those that packages bring with them for their own tests and examples.

TensorFlow's has no records, tables or archives: texts, and messages of protobuf.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
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
        spec = importlib.util.find_spec(package)
    except ImportError:
        return []
    return sorted(Path(spec.origin).parent.glob(pattern)) if spec is not None and spec.origin else []


ARRAYS = [
    path
    for package in ("numpy.lib", "scipy", "joblib")
    for ending in ("npy", "npz")
    for path in files(package, f"**/*.{ending}")
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
def test_arrays_of_numpy_scipy_and_joblib(path: Path, index: bool) -> None:
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


def test_arrays_of_h5py() -> None:
    """Compound types with gaps, and strings of several lengths and encodings, also of a big-endian machine."""
    h5py: Any = pytest.importorskip("h5py")
    arrays = 0
    for path in files("h5py", "tests/data_files/*.h5"):
        with h5py.File(path) as file:
            for name, array in [*file.items()]:  # a loop over items holds h5py's lock
                if not isinstance(array, h5py.Dataset) or not array.shape:
                    continue
                expected, arrays = array[...], arrays + 1
                for ds in (ad.Dataset.from_source(array), ad.Dataset.from_source(array).batch(4).unbatch()):
                    assert [*map(repr, ds)] == [*map(repr, expected)], (path, name)
    assert arrays >= 3


@pytest.mark.parametrize("path", files("scipy", "io/tests/data/*.nc"), ids=lambda path: path.name)
def test_variables_of_netcdf_of_scipy(path: Path) -> None:
    """Files of the classic format, big-endian; a variable has a shape, and neither `len` nor dtype."""
    with pytest.importorskip("scipy.io").netcdf_file(path, mmap=False) as file:
        for name, variable in file.variables.items():
            found, expected = list(ad.Dataset.from_source(variable)), variable[:]
            kind = np.issubdtype(expected.dtype, np.floating)
            assert np.array_equal(np.array(found), expected, equal_nan=kind), name


SOUNDS = files("scipy", "io/tests/data/*.wav")


@pytest.mark.parametrize("path", SOUNDS, ids=lambda path: path.name)
def test_sounds_of_scipy(path: Path) -> None:
    """WAV of all depths, byte orders and headers: as soundfile reads them; but a file that is cut short is an error."""
    soundfile: Any = pytest.importorskip("soundfile")
    try:
        expected, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError:
        expected, rate = None, None
    if "eof" in path.name or "incomplete" in path.name:
        with pytest.raises(ad.DataLossError, match="it is cut short"):
            ad.decode_audio(path)
    elif expected is None and "64bit" not in path.name:  # which PyAV knows
        with pytest.raises(ad.DataLossError, match="without a decoder"):
            ad.decode_audio(path)
    else:
        found, samples_per_second = ad.decode_audio(path)
        assert samples_per_second == (rate or 8000)
        assert expected is None or np.array_equal(found, expected)


def test_pictures_of_scikit_learn() -> None:
    (path,) = files("sklearn", "datasets/images/china.jpg")
    ds = ad.ImageFolderDataset(path.parents[1])
    assert "images" in ds.class_names
    pictures = dict(zip(sorted(one.name for one in path.parent.glob("*.jpg")), ds))
    assert pictures["china.jpg"] == (path.read_bytes(), ds.class_names.index("images"))


COMPRESSED = [path for path in files("sklearn", "**/*.gz") if path.suffixes[-2:] != [".csv", ".gz"]]


@pytest.mark.parametrize("path", [path for path in COMPRESSED if path.name.endswith("json.gz")], ids=lambda p: p.name)
def test_json_of_scikit_learn(path: Path) -> None:
    """What OpenML answers: a value on one line is an element, one over many lines is none."""
    text = gzip.decompress(path.read_bytes())
    ds = ad.JsonLinesDataset(path)
    if text.strip().count(b"\n"):
        with pytest.raises(ad.DataLossError, match="is not valid JSON"):
            list(ds)
    else:
        assert list(ds) == [json.loads(text)]


@pytest.mark.parametrize("path", COMPRESSED, ids=lambda path: path.name)
def test_compressed_text_of_scikit_learn(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).replace(b"\r", b"")
    assert list(ad.TextLineDataset(path)) == text.removesuffix(b"\n").split(b"\n")


def test_tables_of_scikit_learn() -> None:
    (path,) = files("sklearn", "datasets/data/digits.csv.gz")
    rows = list(ad.experimental.CsvDataset(path, [np.float64] * 65))
    assert np.array_equal(np.array(rows), np.loadtxt(path, delimiter=","))
    (path,) = files("sklearn", "datasets/data/iris.csv")
    rows = list(ad.experimental.CsvDataset(path, [np.float64] * 5, header=True))
    assert np.array_equal(np.array(rows), np.loadtxt(path, delimiter=",", skiprows=1))


def test_an_archive_of_dateutil() -> None:
    """Its members have no extensions, so they are of no sample; and the archive is whole."""
    archives = files("dateutil", "zoneinfo/*.tar.gz")
    if not archives:
        pytest.skip("dateutil is not installed, or version 4, which has no archive")
    for path in archives:
        assert list(ad.WebDataset(path)) == []


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_texts_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow", exc_type=ImportError)
    texts = [str(path) for path in [*files("tensorflow", "*.txt"), *files("tensorflow", "_api/**/*.txt")]]
    texts += [str(path) for path in files("tensorflow", "include/**/*.cuh")[:100]]
    assert len(texts) > 50
    assert list(ad.TextLineDataset(texts)) == [*tf.data.TextLineDataset(texts).as_numpy_iterator()]


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_messages_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow", exc_type=ImportError)
    for path in files("tensorflow", "**/*.bin"):
        for size in (16, max(1, path.stat().st_size)):
            footer = path.stat().st_size % size
            ours = ad.FixedLengthRecordDataset(path, size, footer_bytes=footer)
            theirs = tf.data.FixedLengthRecordDataset(str(path), size, footer_bytes=footer)
            assert list(ours) == [*theirs.as_numpy_iterator()]


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_events_that_tensorflow_writes(tmp_path: Path) -> None:
    """Files for TensorBoard are TFRecord files, written by its own code."""
    tf = pytest.importorskip("tensorflow", exc_type=ImportError)
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        for step in range(30):
            tf.summary.write("loss", 1 / (step + 1), step=step)
    (path,) = tmp_path.glob("*tfevents*")
    found = [tf.compat.v1.Event.FromString(record) for record in ad.TFRecordDataset(path)]
    assert [event.step for event in found if event.summary.value] == [*range(30)]
    assert found == [*tf.compat.v1.train.summary_iterator(str(path))]


def test_enough_files_are_there() -> None:
    assert len(ARRAYS) > 10
    assert len(SOUNDS) > 15
    assert len(TABLES) > 2
    assert len(COMPRESSED) > 50

"""What is different on purpose: what docs/from-tfdata.md says of both, where it is a matter of one odd call."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.experimental import CsvDataset, make_csv_dataset
from tests.reference import Failed
from tests.running import results

OF_TENSORFLOW = (pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180))


@pytest.fixture(params=["here", pytest.param("there", marks=OF_TENSORFLOW)])
def there(request: pytest.FixtureRequest) -> Any:
    """TensorFlow, or `None` where a test is to look at what is here."""
    return request.getfixturevalue("tf") if request.param == "there" else None


def test_python_numbers_have_the_dtypes_of_numpy(there: Any) -> None:
    dataset = there.data.Dataset if there else ad.Dataset
    ((number, real),) = dataset.from_tensor_slices(([1], [0.5])).as_numpy_iterator()
    assert (number.dtype, real.dtype) == ((np.int32, np.float32) if there else (np.int64, np.float64))


def test_no_part_of_an_element_is_overwritten_with_the_mask(there: Any) -> None:
    parts = {"a": [1, 2]}
    if there:
        pad = there.data.experimental.pad_to_cardinality(3, mask_key="a")
        theirs = there.data.Dataset.from_tensor_slices(parts).apply(pad)
        assert list(theirs.as_numpy_iterator()) == [{"a": True}, {"a": True}, {"a": False}]
        return
    with pytest.raises(ad.StructureError, match="already has a part 'a'"):
        ad.Dataset.from_tensor_slices(parts).pad_to_cardinality(3, mask_key="a").to_list()


def test_a_cardinality_that_proves_wrong_is_not_left_out_below_ignore_errors() -> None:
    ds = ad.Dataset.range(2).filter(lambda x: x >= 0).assert_cardinality(3).ignore_errors()
    with ds.iterate() as elements:
        assert [next(elements), next(elements)] == [0, 1]
        with pytest.raises(ad.StageError, match="ended after 2"):
            next(elements)


def test_rows_of_ragged_batches_are_stacked_when_they_are_batched_anew(there: Any) -> None:
    lengths = [1, 1, 2]
    if there:
        rows = there.data.Dataset.from_tensor_slices(there.constant(lengths, there.int64)).map(there.range)
        first, last = rows.ragged_batch(3).rebatch(2)
        assert (first.to_list(), last.to_list()) == ([[0], [0]], [[0, 1]])
        return
    ragged = ad.Dataset.from_iterable(lengths).map(np.arange).ragged_batch(3)
    first, last = ragged.rebatch(2)
    assert (first.tolist(), last.tolist()) == ([[0], [0]], [[0, 1]])
    with pytest.raises(ad.StructureError, match=r"has shape \(2,\)"):
        ragged.rebatch(3).to_list()
    assert [batch.to_list() for batch in ragged.unbatch().ragged_batch(3)] == [[[0], [0], [0, 1]]]


def test_compressed_lines_that_are_cut_short_are_an_error_at_their_end(there: Any, tmp_path: Path) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"a\nbc\n")[:-9])
    if there:
        assert list(there.data.TextLineDataset(str(path), "GZIP").as_numpy_iterator()) == [b"a", b"bc"]
    else:
        assert results(ad.TextLineDataset(path, "GZIP")) == [b"a", b"bc", Failed("DataLossError")]


def test_a_blank_line_in_a_file_of_one_column_is_an_empty_field(there: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("n\n1\n\n3\n")
    if there:
        with pytest.raises(ValueError, match="0 number of fields"):
            there.data.experimental.make_csv_dataset(str(path), 3, shuffle=False, num_epochs=1)
        return
    (batch,) = make_csv_dataset(path, 3, shuffle=False, num_epochs=1)
    assert batch["n"].tolist() == [1, 0, 3]


@pytest.mark.parametrize(("field", "value"), [("0x1", 1.0), ("nan(1)", np.nan)])
def test_floats_of_c_are_no_numbers(there: Any, tmp_path: Path, field: str, value: float) -> None:
    path = tmp_path / "one.csv"
    path.write_text(f"{field}\n0.5\n")
    if there:
        rows = list(there.data.experimental.CsvDataset(str(path), [there.float64]).as_numpy_iterator())
        np.testing.assert_equal(rows, [(value,), (0.5,)])
    else:
        assert results(CsvDataset(path, [np.float64])) == [Failed("DataLossError"), (0.5,)]


def test_one_dataset_has_one_order_in_an_epoch(there: Any) -> None:
    dataset = there.data.Dataset if there else ad.Dataset
    one = dataset.range(1000).shuffle(1000)
    assert all(int(a) == int(b) for a, b in dataset.zip((one, one))) is not bool(there)
    other = dataset.range(1000).shuffle(1000)
    assert not all(int(a) == int(b) for a, b in dataset.zip((one, other)))


def test_each_loop_is_an_epoch_and_repeat_draws_for_its_repetitions() -> None:
    def ds() -> ad.Dataset[int]:
        return ad.Dataset.range(100).shuffle(100, seed=1)

    one = ds()
    assert [*one, *one] != list(ds().repeat(2))


def test_a_generator_gets_its_arguments_as_they_are(there: Any) -> None:
    found: list[type] = []

    def generate(numbers: Any) -> Any:
        found.append(type(numbers))
        yield 1

    list((there.data.Dataset if there else ad.Dataset).from_generator(generate, "int64", args=([1, 2],)))
    assert found == [np.ndarray if there else list]


def test_a_number_of_numpys_is_no_bool(there: Any) -> None:
    ds = (there.data.Dataset if there else ad.Dataset).from_generator(lambda: iter([np.int64(3)]), np.bool_)
    assert ([bool(one) for one in ds] == [True]) if there else (results(ds) == [Failed("StructureError")])


def test_windows_are_arrays_for_numpy(there: Any) -> None:
    windows = (there.data.Dataset if there else ad.Dataset).range(3).window(2)
    if there:
        with pytest.raises(TypeError):
            windows.as_numpy_iterator()
        return
    assert [one.tolist() for one in windows.as_numpy_iterator()] == [[0, 1], [2]]


def test_a_reader_of_shards_leaves_the_length_open(there: Any, tmp_path: Path) -> None:
    dataset, path = there.data.Dataset if there else ad.Dataset, str(tmp_path / "saved")
    dataset.range(5).save(path)
    ds = dataset.load(path, reader_func=lambda shards: shards.interleave(lambda shard: shard))
    assert int(ds.cardinality()) == (5 if there else ad.UNKNOWN_CARDINALITY)

"""Signatures of leaves: what they take, and what they say of batches and rows."""

from __future__ import annotations

import datetime
import decimal
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.structure import common_spec, conform, prefixed, spec_of, unprefixed
from asyncdata.testing.checks import same
from tests.reference import Failed
from tests.running import results

PAIRS = ad.Ragged(np.arange(6).reshape(3, 2), [0, 1, 1, 3])
ROWS = ad.Ragged(np.arange(3), [0, 1, 1, 3])


@pytest.mark.parametrize(
    ("shape", "dtype", "value", "expected"),
    [
        ((None, None), "int32", [[1], [2, 3]], ad.Ragged(np.array([1, 2, 3], "int32"), [0, 1, 3])),
        ((None, None), "int32", ([1], (2, 3)), ad.Ragged(np.array([1, 2, 3], "int32"), [0, 1, 3])),
        ((None, None), "int32", [], ad.Ragged(np.zeros(0, "int32"), [0])),
        ((2, None), "float32", [[], []], ad.Ragged(np.zeros(0, "float32"), [0, 0, 0])),
        ((2, None, 2), "float32", [[[1, 2]], []], ad.Ragged(np.array([[1, 2]], "float32"), [0, 1, 1])),
        ((None, None), "int64", np.arange(4).reshape(2, 2), ad.Ragged(np.arange(4), [0, 2, 4])),
        ((3, None), "int64", ROWS, ROWS),
        ((None, None, None), "int64", PAIRS, PAIRS),
        (None, "int8", PAIRS, ad.Ragged(PAIRS.values.astype("int8"), PAIRS.row_splits)),
        ((None, None), str, [["a"], ["b", "c"]], ad.Ragged(np.array(["a", "b", "c"], object), [0, 1, 3])),
    ],
)
def test_what_fits_becomes_a_ragged_of_the_dtype(shape: Any, dtype: Any, value: Any, expected: ad.Ragged) -> None:
    found = conform(value, ad.RaggedTensorSpec(shape, dtype))
    assert found == expected
    assert found.dtype == expected.dtype


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "neither a Ragged nor a list"),
        ("ab", "neither a Ragged nor a list"),
        ([1, 2], "len"),
        ([[1.5], []], "cannot hold"),
        ([[1]], r"shape \(1, None\)"),
        ([[[1]], [[2]]], "dimension"),
        (PAIRS, r"shape \(3, None, 2\)"),
    ],
)
def test_what_does_not_fit_is_named(value: Any, words: str) -> None:
    signature = {"rows": ad.RaggedTensorSpec((2, None), np.int32)}
    with pytest.raises(ad.StructureError, match=rf"leaf \['rows'\]: expected RaggedTensorSpec.*{words}"):
        conform({"rows": value}, signature)


@pytest.mark.parametrize("shape", [(), (None,), (3, 2), (None, 0, None)])
def test_shapes_without_an_open_second_size_are_refused(shape: Any) -> None:
    with pytest.raises(ad.PlanError, match="second size of a Ragged is None"):
        ad.RaggedTensorSpec(shape)


@pytest.mark.parametrize("spec", [ad.TensorSpec, ad.RaggedTensorSpec])
def test_a_number_is_no_shape(spec: type[ad.TensorSpec]) -> None:
    wrong: Any = 5
    with pytest.raises(ad.PlanError, match=rf"{spec.__name__}\(shape=\) is a list of sizes, as \[5\]"):
        spec(wrong)


def test_more_ragged_axes_than_one_are_refused() -> None:
    assert ad.RaggedTensorSpec((2, None), ragged_rank=1) == ad.RaggedTensorSpec((2, None))
    with pytest.raises(ad.PlanError, match="one ragged axis, got ragged_rank=2"):
        ad.RaggedTensorSpec((2, None, None), ragged_rank=2)


def test_a_spec_says_what_batches_and_rows_look_like() -> None:
    spec = spec_of({"x": ROWS, "y": 1})
    assert spec == {"x": ad.RaggedTensorSpec((3, None), "int64"), "y": ad.TensorSpec((), "int64")}
    assert spec["x"] != ad.TensorSpec((3, None), "int64")
    assert prefixed(spec, 4) == {"x": ad.TensorSpec((4,), object), "y": ad.TensorSpec((4,), "int64")}
    assert unprefixed(spec_of(PAIRS)) == (3, ad.TensorSpec((None, 2), "int64"))
    assert unprefixed(ad.RaggedTensorSpec()) == (None, ad.TensorSpec())
    assert common_spec(spec["x"], ad.RaggedTensorSpec((2, None), "int64")) == ad.RaggedTensorSpec((None, None), "int64")
    with pytest.raises(ad.StructureError, match="RaggedTensorSpec"):
        common_spec(spec["x"], ad.TensorSpec((3, None), "int64"))


def test_specs_travel_and_have_a_hash() -> None:
    for spec in (ad.RaggedTensorSpec((2, None), "int8"), ad.TensorSpec((2, None), "int8")):
        assert pickle.loads(pickle.dumps(spec)) == spec
        assert len({spec, pickle.loads(pickle.dumps(spec))}) == 1


def test_a_generator_gives_ragged_elements() -> None:
    signature = (ad.TensorSpec((), np.int32), ad.RaggedTensorSpec((2, None), np.int32))
    found = results(ad.Dataset.from_generator(lambda: [(1, [[1], [2, 3]]), (2, [[4]])], output_signature=signature))
    assert found[0][1] == ad.Ragged(np.array([1, 2, 3], "int32"), [0, 1, 3])
    assert found[1].reason == "StructureError"


@pytest.mark.parametrize("ragged", [ROWS, PAIRS, ROWS[:0]])
def test_rows_of_a_ragged_are_elements(ragged: ad.Ragged) -> None:
    ds = ad.Dataset.from_tensor_slices({"rows": ragged, "place": np.arange(len(ragged))})
    assert ds.element_spec["rows"] == ad.TensorSpec((None, *ragged.values.shape[1:]), "int64")
    assert [row["rows"].tolist() for row in ds] == ragged.to_list()
    assert [row["place"] for row in ds.shuffle(9, seed=1)] != list(range(3))
    (again,) = [batch["rows"] for batch in ds.ragged_batch(9)] or [ragged]
    assert again == ragged


def test_ragged_elements_are_listed() -> None:
    one, other = ROWS[:1], ROWS[1:]
    alone = ad.Dataset.from_tensors(one).concatenate(ad.Dataset.from_tensors(other))
    for ds in (ad.Dataset.from_list([one, other]), alone):
        assert list(ds) == [one, other]
    assert ad.Dataset.from_list([one, other]).element_spec == ad.RaggedTensorSpec((None, None), "int64")
    (batch,) = ad.Dataset.from_list([one, other]).batch(2)
    assert list(batch) == [one, other]


@pytest.mark.parametrize("step", [None, 1, 2, -1, -2])
@pytest.mark.parametrize("start", [None, 0, 1, 5, -1])
@pytest.mark.parametrize("stop", [None, 0, 2, 5, -1])
def test_slices_are_those_of_a_list(start: int | None, stop: int | None, step: int | None) -> None:
    for ragged in (ROWS, PAIRS, ROWS[:0]):
        part = ragged[start:stop:step]
        assert part.to_list() == ragged.to_list()[start:stop:step]
        assert part.shape[2:] == ragged.shape[2:]
        assert part.dtype == ragged.dtype


def test_padding_without_an_element_to_go_by_is_ragged_too() -> None:
    ((found, valid),) = ad.Dataset.from_tensors(PAIRS).take(0).pad_to_cardinality(1)
    assert (found.to_list(), found.shape, found.dtype, valid) == ([[], [], []], (3, None, 2), np.int64, False)


@pytest.mark.parametrize("how", [{}, {"padded_shapes": [None]}, {"padded_shapes": [4], "padding_values": 7}])
def test_arrays_in_an_array_of_objects_are_looked_at_one_by_one(how: Any) -> None:
    """Nothing is known of them but by looking: neither the first one's shape nor its dtype is that of all."""
    arrays = [np.arange(2), np.arange(3) * 0.5, np.arange(1)]
    held = np.empty(3, object)
    held[:] = arrays
    ds = ad.Dataset.from_tensor_slices(held)
    assert ds.plan.signature is None
    assert ds.element_spec == ad.TensorSpec((2,), "int64")
    assert same(list(ds.padded_batch(3, **how)), list(ad.Dataset.from_iterable(arrays).padded_batch(3, **how)))
    for numbers in ([1, 2], [1, 2.5], ["a", "b"]):
        batch = next(iter(ad.Dataset.from_tensor_slices(np.array(numbers, object)).batch(2)))
        assert ad.Dataset.from_tensor_slices(np.array(numbers, object)).batch(2).element_spec.dtype == batch.dtype


def test_a_list_of_lists_of_several_lengths_is_described_by_its_first_axis(tmp_path: Path) -> None:
    assert spec_of({"a": [[1], [2, 3], []]}) == {"a": ad.TensorSpec((3,), object)}
    (tmp_path / "a.jsonl").write_text('{"a": [[1], [2, 3]]}\n')
    assert ad.JsonLinesDataset(tmp_path / "a.jsonl").element_spec == {"a": ad.TensorSpec((2,), object)}


DAY = np.datetime64("2020-01-01")
NOON = np.datetime64("2020-01-01T12", "h")
RECORD: Any = [("a", "i4"), ("b", "f8")]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("M8[D]", NOON),
        ("M8[D]", datetime.datetime(2020, 1, 1, 12)),
        ("M8[s]", np.timedelta64(5, "s")),
        ("M8[s]", True),
        ("M8[s]", np.uint64(2**64 - 1)),
        ("m8[D]", np.timedelta64(90, "s")),
        ("m8[s]", DAY),
        ("f8", DAY),
        ("f8", np.array(1 + 2j)),
        ("i8", np.timedelta64(5, "s")),
        ("i8", decimal.Decimal("1.5")),
        (RECORD, 5),
        (RECORD, (1.5, 2)),
        (RECORD, np.array((1, 2), [("b", "i4"), ("a", "f8")])),
        (RECORD, [(1, 2), (2**40, 1)]),
        ("V4", b"ab"),
        ("f8", [1.0, np.ma.masked]),
        ("f8", "1.5"),
        ("f8", ["1.5"]),
        ("i8", [1, np.ma.masked]),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of NumPy, about some of them
def test_what_a_declared_dtype_would_change_is_an_error_of_its_element(dtype: Any, value: Any) -> None:
    sound = np.zeros((), dtype)
    ds = ad.Dataset.from_generator(lambda: [value, sound], output_signature=ad.TensorSpec(None, dtype))
    elements = iter(ds)
    with pytest.raises(ad.StructureError, match="the value: expected TensorSpec"):
        next(elements)
    assert [np.asarray(found).tolist() for found in elements] == [sound.tolist()]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("M8[s]", DAY, np.datetime64("2020-01-01", "s")),
        ("M8[D]", NOON.astype("M8[D]").astype("M8[ns]"), DAY),
        ("M8[D]", "2020-01-01", DAY),
        ("M8[D]", datetime.date(2020, 1, 1), DAY),
        ("M8[s]", [1, 2], np.array([1, 2], "M8[s]")),
        ("M8[D]", [None, DAY], np.array(["NaT", DAY], "M8[D]")),
        ("m8[ms]", datetime.timedelta(seconds=1), np.timedelta64(1000, "ms")),
        ("f4", decimal.Decimal("1.1"), np.float32(1.1)),
        ("f4", [float("inf"), float("nan")], np.array([float("inf"), float("nan")], "f4")),
        (RECORD, (1, 2), np.array((1, 2), RECORD)[()]),
        (RECORD, [(1, 2), (3, 4)], np.array([(1, 2), (3, 4)], RECORD)),
        (RECORD, np.array([(1, 2)], [("a", "u1"), ("b", "i2")]), np.array([(1, 2)], RECORD)),
        ("V2", b"ab", np.void(b"ab")),
        ("M8[s]", [None, 5], np.array(["NaT", 5], "M8[s]")),
        ("M8[s]", [], np.array([], "M8[s]")),
        ("V3", [], np.array([], "V3")),
        ("i8", [1.0, 2**53 + 1], np.array([1, 2**53 + 1])),
        ("f4", [2**53 + 1, 0.5], np.array([2**53, 0.5], "f4")),
    ],
)
def test_what_a_declared_dtype_can_hold_has_it(dtype: Any, value: Any, expected: Any) -> None:
    (found,) = ad.Dataset.from_generator(lambda: [value], output_signature=ad.TensorSpec(None, dtype))
    assert same(found, expected)


@pytest.mark.integrations
@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("int4", 1.5, False),
        ("int4", 9, False),
        ("int4", -8, True),
        ("float8_e4m3fn", 1e4, False),
        ("float8_e4m3fn", float("inf"), False),
        ("float8_e4m3fn", 448.0, True),
        ("bfloat16", float("nan"), True),
        ("bfloat16", np.array(1j), False),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of NumPy, about some of them
def test_numbers_that_dtypes_of_ml_dtypes_cannot_hold(name: str, value: Any, fits: bool) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    spec = ad.TensorSpec((), getattr(ml_dtypes, name))
    (found,) = results(ad.Dataset.from_generator(lambda: [value], output_signature=spec))
    assert (found == Failed("StructureError")) is not fits

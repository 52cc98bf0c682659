"""Values of several dtypes in one leaf of a batch, and tables of other packages: unchanged, or an error says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.structure import stack
from asyncdata.testing.checks import same

BIG = 2**53 + 1


@pytest.mark.parametrize(
    ("column", "want"),
    [
        ([np.uint64(5), 7], np.array([5, 7], np.int64)),
        ([7, np.uint64(2**64 - 1)], np.array([7, 2**64 - 1], np.uint64)),
        ([np.int64(-1), np.uint64(BIG)], np.array([-1, BIG])),
        ([True, np.uint64(3), 4], np.array([1, 3, 4])),
        ([1, 0.5], np.array([1, 0.5])),
        ([np.int64(2**53), 0.5], np.array([2.0**53, 0.5])),
        ([np.int32(5), np.float32(0.5)], np.array([5, 0.5])),
        ([np.datetime64("2020-01-01", "D"), np.datetime64(5, "s")], np.array(["2020-01-01", 5], "M8[s]")),
        ([np.arange(2, dtype=np.int32), np.array([0.5, 1])], np.array([[0, 1], [0.5, 1]])),
        ([np.array(["a"]), np.array(["bcd"])], np.array([["a"], ["bcd"]])),
        ([np.array([BIG]), np.array([2**63 + 5], np.uint64)], np.array([[BIG], [2**63 + 5]], np.uint64)),
        ([np.array([BIG]), np.array([1], np.uint64), np.array([-2])], np.array([[BIG], [1], [-2]])),
        (
            [np.array([(2, "a")], "i8, U1"), np.array([(0.5, "bc")], "f8, U2")],
            np.array([[(2, "a")], [(0.5, "bc")]], "f8, U2"),
        ),
    ],
)
def test_values_that_fit_one_dtype(column: list[Any], want: Any) -> None:
    made = stack(column)
    assert made.dtype == want.dtype
    assert made.tolist() == want.tolist()
    (batch,) = ad.Dataset.from_iterable(column).batch(2 if len(column) == 2 else 3)
    assert batch.tolist() == want.tolist()


@pytest.mark.parametrize(
    "column",
    [
        [BIG, 0.5],
        [np.int64(BIG), np.float64(0.5)],
        [np.uint64(2**64 - 1), -1],
        [np.uint64(2**63 + 1), 0.5],
        [BIG, 1j],
        [np.array([BIG]), np.array([0.5])],
        [np.array([-1]), np.array([2**63 + 5], np.uint64)],
        [np.array([(BIG, "a")], "i8, U1"), np.array([(0.5, "a")], "f8, U1")],
        [np.array(2**63 - 1), np.array(0.5)],
        [np.datetime64("1500-01-01", "D"), np.datetime64(5, "ns")],
        [np.array(["1500-01-01"], "M8[D]"), np.array([5], "M8[ns]")],
        [np.array(["9999-01-01", "NaT"], "M8[D]"), np.array([5, 6], "M8[ns]")],
        [np.timedelta64(5, "s"), 7],
        [np.datetime64(5, "s"), 7],
        [np.timedelta64(1, "M"), np.timedelta64(30, "D")],
        [np.array([1]), np.array(["a"])],
        [np.array([1]), np.array(["2020"], "M8[D]")],
        [np.ma.array([BIG], mask=[0]), np.ma.array([0.5], mask=[1])],
    ],
    ids=repr,
)
def test_values_that_would_change_are_refused(column: list[Any]) -> None:
    with pytest.raises(ad.StructureError, match=r"element \d|dtypes? without one in common|fit int64"):
        stack(column)
    it = iter(ad.Dataset.from_iterable([*column, *column[:1], *column[:1]]).batch(len(column)))
    with pytest.raises(ad.StructureError):
        next(it)
    assert len(next(it)) == 2  # the rest follows


JOINS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "batch": lambda ds: ds.batch(2),
    "padded_batch": lambda ds: ds.padded_batch(2, [3]),
    "ragged_batch": lambda ds: ds.ragged_batch(2),
    "pack_sequences": lambda ds: ds.pack_sequences(8),
}
"""Steps that put arrays of several elements together."""


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
@pytest.mark.parametrize(
    "column",
    [
        [np.array([BIG, 1]), np.array([0.5, 1], np.float32)],
        [np.array([1, 2**64 - 1], np.uint64), np.array([-1, 2])],
        [np.array([BIG, 1]), np.array([0.5, 1], np.complex64)],
    ],
    ids=repr,
)
def test_no_step_changes_a_value_that_it_joins(join: Any, column: list[Any]) -> None:
    with pytest.raises(ad.StructureError, match="would change as"):
        list(join(ad.Dataset.from_iterable(column)))


@pytest.mark.parametrize(
    "column",
    [
        [np.array([5], "m8[s]"), np.array([7])],
        [np.array(["1500-01-01"], "M8[D]"), np.array([5], "M8[ns]")],
        [np.array(["a"]), np.array([7])],
        [np.array([b"a"]), np.array(["b"])],
        [np.array([1], "m8[Y]"), np.array([5], "m8[D]")],
    ],
    ids=repr,
)
def test_rows_of_a_ragged_batch_are_not_changed(column: list[Any]) -> None:
    with pytest.raises(ad.StructureError, match="would change as|without one in common"):
        list(ad.Dataset.from_iterable(column).ragged_batch(2))


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_integers_of_several_types_stay_integers(join: Any) -> None:
    (made,) = join(ad.Dataset.from_iterable([np.array([1, BIG], np.uint64), np.array([-1, 2], np.int8)]))
    made = made["inputs"] if isinstance(made, dict) else made
    assert made.dtype == np.int64
    assert np.ravel(getattr(made, "values", made)).tolist()[:2] == [1, BIG]


def test_an_empty_list_is_of_the_dtype_of_the_others() -> None:
    lists = ad.Dataset.from_iterable([[], [BIG, 1]])
    assert [batch.tolist() for batch in lists.padded_batch(2)] == [[[0, 0], [BIG, 1]]]
    assert [batch.to_list() for batch in lists.ragged_batch(2)] == [[[], [BIG, 1]]]
    assert [batch.dtype for batch in ad.Dataset.from_iterable([[], []]).ragged_batch(2)] == [np.float64]


@pytest.mark.parametrize("fill", [9, None])
@pytest.mark.parametrize("hard", [False, True])
def test_a_batch_of_masked_arrays_keeps_their_fill_value_and_hard_masks(fill: Any, hard: bool) -> None:
    one = np.ma.array([1, 2], mask=[0, 1], fill_value=fill, hard_mask=hard)
    (batch,) = ad.Dataset.from_iterable([one, one]).batch(2)
    assert (batch.fill_value, batch.hardmask) == (one.fill_value, hard)
    assert batch.filled().tolist() == [one.filled().tolist()] * 2


@pytest.mark.parametrize("first", [np.uint8(254), np.uint64(2**63 + 1), 7, np.datetime64("2020-01-01")])
def test_a_masked_number_takes_the_dtype_of_the_others(first: Any) -> None:
    for column in ([first, np.ma.masked], [np.ma.masked, first]):
        (batch,) = ad.Dataset.from_iterable(column).batch(2)
        assert batch.dtype == np.asarray(first).dtype
        assert sorted(batch.mask) == [False, True]
        assert batch.compressed()[0] == first


class Metres(np.ndarray[Any, Any]):
    """An array with a unit, which has its own way to stack, as astropy's quantities."""

    unit = "m"

    def __array_finalize__(self, obj: Any) -> None:
        self.unit = getattr(obj, "unit", "m")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        units = {one.unit for one in args[0]}
        if func is not np.stack or len(units) > 1:
            raise TypeError(f"units {sorted(units)} differ")
        made = np.stack([np.asarray(one) for one in args[0]]).view(Metres)
        made.unit = units.pop()
        return made


def test_arrays_with_units_are_stacked_in_their_own_way() -> None:
    one, other = np.arange(2.0).view(Metres), np.arange(2.0).view(Metres)
    (batch,) = ad.Dataset.from_iterable([one, one]).batch(2)
    assert (type(batch), batch.unit) == (Metres, "m")
    (element,) = ad.Dataset.from_list([one])
    assert type(element) is Metres
    other.unit = "km"
    with pytest.raises(TypeError, match="differ"):
        list(ad.Dataset.from_iterable([one, other]).batch(2))


class Quantity:
    """A number or an array with a unit that is no subclass of arrays, as those of pint."""

    def __init__(self, value: Any, unit: str) -> None:
        self.value, self.unit = np.asarray(value), unit

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.value, dtype)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        assert func is np.stack
        (unit,) = {one.unit for one in args[0]}
        return Quantity(np.stack([one.value for one in args[0]]), unit)


@pytest.mark.parametrize("value", [2.5, [1.0, 2.0]], ids=str)
def test_arrays_of_other_classes_keep_their_units(value: Any) -> None:
    one = Quantity(value, "m")
    for ds in (ad.Dataset.from_iterable([one, one]), ad.Dataset.from_list([one, one])):
        (batch,) = ds.batch(2)
        assert (type(batch), batch.unit, batch.value.tolist()) == (Quantity, "m", [value, value])


@pytest.mark.parametrize("make", [lambda size: np.arange(size).view(Metres), lambda size: Quantity(range(size), "m")])
@pytest.mark.parametrize("join", [lambda ds: ds.padded_batch(2, padded_shapes=[4]), lambda ds: ds.ragged_batch(2)])
def test_units_that_would_be_lost_are_an_error(make: Any, join: Any) -> None:
    with pytest.raises(ad.StructureError, match=r"element 0 of the batch is a (Metres|Quantity), which would lose its"):
        list(join(ad.Dataset.from_iterable([make(2), make(3)])))


def frames() -> list[Any]:
    """Return tables and columns of integers beyond those of floats, which would become floats in one array."""
    pa, pd, pl = [pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars")]
    mixed = {"id": [BIG, BIG + 2], "x": [0.5, 1.5]}
    return [
        pd.DataFrame(mixed),
        pd.Series([BIG, None], dtype="Int64"),
        pl.DataFrame(mixed),
        pl.Series([BIG, None]),
        pl.DataFrame({"id": [BIG, None], "name": ["a", "b"]}),
        pl.Series([[BIG, None], [1, 2]]),
        pl.DataFrame({"id": [BIG, 1], "u": pl.Series([1, 2], dtype=pl.UInt64)}),
        pa.table(mixed),
        pa.RecordBatch.from_pydict(mixed),
        pa.array([BIG, None]),
        pa.chunked_array([[BIG, None]]),
        pa.array([[BIG, None], [1, 2]]),
    ]


@pytest.mark.formats
def test_tables_whose_integers_would_be_floats_are_refused() -> None:
    for frame in frames():
        for make in (ad.Dataset.from_tensor_slices, lambda one: ad.Dataset.from_list([one])):
            with pytest.raises(ad.PlanError, match=r"integers of a \w+ of .* would become floats"):
                make(frame)
        with pytest.raises(ad.StructureError, match="would become floats"):
            list(ad.Dataset.from_iterable([frame, frame]).batch(2))


@pytest.mark.formats
def test_tables_of_one_dtype_and_dicts_of_columns_are_arrays() -> None:
    pa, pd, pl = [pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars")]
    mixed = {"id": [BIG, BIG + 2], "x": [0.5, 1.5]}
    table = pa.table(mixed)
    for columns in (
        dict(pd.DataFrame(mixed)),
        pl.DataFrame(mixed).to_dict(),
        dict(zip(mixed, table.columns, strict=True)),
    ):
        rows = list(ad.Dataset.from_tensor_slices(columns))
        assert rows == [{"id": BIG, "x": 0.5}, {"id": BIG + 2, "x": 1.5}]
    ids = {"id": [BIG, 1], "of": [2, BIG]}
    for frame in (pd.DataFrame(ids), pl.DataFrame(ids), pa.table(ids)):
        assert [row.tolist() for row in ad.Dataset.from_tensor_slices(frame)] == [[BIG, 2], [1, BIG]]
    names = {"id": [BIG, 1], "name": ["a", "b"]}
    for frame in (pd.DataFrame(names), pl.DataFrame(names), pa.table(names)):
        assert [row.tolist() for row in ad.Dataset.from_tensor_slices(frame)] == [[BIG, "a"], [1, "b"]]


@pytest.mark.formats
def test_structs_of_polars_would_lose_the_names_of_their_fields() -> None:
    pl = pytest.importorskip("polars")
    structs = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    for value in (pl.Series(structs), pl.DataFrame({"s": structs})):
        with pytest.raises(ad.PlanError, match="would lose their names"):
            ad.Dataset.from_tensor_slices(value)


@pytest.mark.formats
@pytest.mark.parametrize("value", ["text", b"ab", 5, None, 0.5, [1, 2], {"a": 1}])
def test_scalars_of_arrow_stay_as_they_are(value: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    scalar = pa.scalar(value)
    for ds in (ad.Dataset.from_list([scalar]), ad.Dataset.from_iterable([scalar])):
        assert list(ds) == [scalar]
        ((row,),) = ds.batch(1)
        assert row == scalar


@pytest.mark.formats
def test_missing_values_of_duckdb_stay_masked() -> None:
    rows = pytest.importorskip("duckdb").sql("from (values (7), (null), (9)) row(label)").fetchnumpy()
    ds = ad.Dataset.from_tensor_slices(rows)
    assert [np.ma.getmaskarray(row["label"]).item() for row in ds] == [False, True, False]
    for batch in (next(iter(ds.batch(3))), next(iter(ds.shuffle(3, seed=0).batch(3)))):
        assert set(batch["label"].tolist()) == {7, 9, None}


WITH_LISTS: list[Callable[[list[Any]], object]] = [
    lambda numbers: list(ad.Dataset.from_tensor_slices(numbers)),
    lambda numbers: list(ad.Dataset.from_tensors({"x": numbers})),
    lambda numbers: list(ad.Dataset.from_iterable([numbers]).batch(1)),
    lambda numbers: list(ad.Dataset.from_iterable([{"x": [numbers, numbers]}]).batch(1)),
    lambda numbers: list(ad.Dataset.from_iterable([numbers, [1]]).padded_batch(2)),
    lambda numbers: list(ad.Dataset.from_iterable([numbers, [1]]).ragged_batch(2)),
    lambda numbers: list(ad.Dataset.from_iterable([numbers]).pack_sequences(8)),
    lambda numbers: ad.make_example({"x": numbers}),
]
"""What makes an array of a list."""


@pytest.mark.parametrize("use", WITH_LISTS)
@pytest.mark.parametrize("numbers", [[BIG, 0.5], [np.int64(BIG), np.float32(1)], [BIG, float("nan")], [BIG, 1j]])
def test_integers_of_a_list_that_would_change_are_an_error(
    use: Callable[[list[Any]], object], numbers: list[Any]
) -> None:
    with pytest.raises((ad.StructureError, ad.PlanError), match=rf"{BIG} in a list would change as (float|complex)"):
        use(numbers)


def test_integers_of_a_list_that_floats_hold_are_floats() -> None:
    (batch,) = ad.Dataset.from_iterable([[2**53, 0.5, float("inf")], [1, 2, 3]]).batch(2)
    assert batch.tolist() == [[2.0**53, 0.5, float("inf")], [1, 2, 3]]


MASK: Any = np.ma.masked_array([1, 2], [True, False])


@pytest.mark.parametrize("use", WITH_LISTS)
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([np.timedelta64(3, "s"), 5], "would change as timedelta64"),
        ([np.timedelta64(3, "s"), np.datetime64("2020")], "would change as datetime64"),
        ([1, np.ma.masked], "is masked"),
        ([1j, np.ma.masked], "is masked"),
        ([np.longdouble(1), np.ma.masked], "is masked"),
        ([1, MASK[:1].reshape(())], "is masked"),
        ([[1, 2], MASK], "is masked"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element to nan")
def test_times_and_masked_values_of_a_list_that_would_change_are_an_error(
    use: Callable[[list[Any]], object], values: list[Any], words: str
) -> None:
    with pytest.raises((ad.StructureError, ad.PlanError), match=words):
        use(values)


@pytest.mark.parametrize(
    "values", [[float("inf"), 1], [[float("nan")], [1]], [np.datetime64("NaT", "s"), np.datetime64("2020")]]
)
def test_what_is_missing_in_a_list_is_no_mask(values: list[Any]) -> None:
    (batch,) = ad.Dataset.from_iterable([values]).batch(1)
    assert same(batch[0], np.asarray(values))

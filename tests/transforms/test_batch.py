from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results

Item = Any


class Point(NamedTuple):
    x: Item
    y: Item


@dataclasses.dataclass
class Sample:
    image: Item
    label: Item


def batch_of(*items: Any) -> Any:
    (only,) = ad.Dataset.from_iterable(items).batch(len(items))
    return only


def fail_at_2(x: int) -> int:
    if x == 2:
        raise Boom(x)
    return x


@pytest.mark.parametrize("size", first_by_default([3, 1000, 4, 1], 2))
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("calls", first_by_default([None, 2, ad.AUTOTUNE]))
def test_keeps_its_contract(size: int, drop: bool, calls: int | None) -> None:
    check_transform(
        lambda ds: ds.batch(size, drop_remainder=drop, num_parallel_calls=calls),
        lambda items: reference.batch(items, size, drop),
        [(), (1,), range(3), range(100), range(2500)],
    )


@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        ([1, 2], "int64"),
        ([1.0, 2.0], "float64"),
        ([1, 2.5], "float64"),
        ([True, False], "bool"),
        (["a", "bcd"], "object"),
        ([b"a", b"bcd"], "object"),
        ([None, None], "object"),
        ([None, 1], "object"),
        (["a", 1], "object"),
        ([1j, 2], "complex128"),
        ([np.int8(1), np.int8(2)], "int8"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.datetime64("2026-01-01"), np.datetime64("2026-01-02")], "datetime64[D]"),
        pytest.param([object(), object()], "object", id="objects"),
        ([{1}, {2}], "object"),
        ([range(3), range(3)], "object"),
        ([int, str], "object"),
    ],
    ids=str,
)
def test_scalars_become_a_vector(items: list[Any], dtype: str) -> None:
    batch = batch_of(*items)
    assert (batch.dtype, batch.shape) == (np.dtype(dtype), (len(items),))
    assert list(batch) == items


def test_bytes_keep_their_trailing_zeros() -> None:
    assert list(batch_of(b"a\0", b"\0\0")) == [b"a\0", b"\0\0"]


def test_arrays_are_stacked() -> None:
    batch = batch_of(np.zeros((2, 3), np.uint8), np.ones((2, 3), np.uint8))
    assert (batch.shape, batch.dtype) == ((2, 2, 3), np.uint8)
    assert batch.flags.owndata or batch.base.flags.owndata


def test_arrays_without_elements_and_without_dimensions() -> None:
    assert batch_of(np.zeros((0, 3)), np.zeros((0, 3))).shape == (2, 0, 3)
    assert batch_of(np.array(1), np.array(2)).tolist() == [1, 2]


def test_a_batch_is_a_copy() -> None:
    source = np.arange(6).reshape(3, 2)
    (batch,) = ad.Dataset.from_tensor_slices(source).batch(3)
    batch[:] = 0
    assert source.sum() == 15


def test_lists_are_leaves() -> None:
    assert batch_of([1, 2], [3, 4]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("make", [Point, Sample, lambda x, y: (x, y), lambda x, y: {"x": x, "y": y}])
def test_structures_are_stacked_leaf_by_leaf(make: Any) -> None:
    batch = batch_of(make(1, np.zeros(2)), make(2, np.ones(2)))
    assert type(batch) is type(make(1, 2))
    x, y = (
        dict(batch).values()
        if isinstance(batch, dict)
        else ((batch.image, batch.label) if isinstance(batch, Sample) else batch)
    )
    assert x.tolist() == [1, 2]
    assert y.tolist() == [[0, 0], [1, 1]]


def test_deep_structures() -> None:
    batch = batch_of(*[{"a": (i, Point(i, {"b": f"{i}"}))} for i in range(3)])
    assert batch["a"][1].y["b"].tolist() == ["0", "1", "2"]
    assert batch["a"][0].tolist() == [0, 1, 2]


def test_keys_in_another_order_are_the_same_structure() -> None:
    batch = batch_of({"a": 1, "b": 2}, {"b": 20, "a": 10})
    assert {key: value.tolist() for key, value in batch.items()} == {"a": [1, 10], "b": [2, 20]}


def test_empty_structures() -> None:
    assert batch_of((), ()) == ()
    assert batch_of({}, {}) == {}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([np.zeros(3), np.zeros(3), np.zeros(4)], ["the value", "element 2", "(4,)", "(3,)"]),
        ([(1, np.zeros(3)), (2, np.zeros((3, 1)))], ["[1]", "element 1", "(3, 1)", "(3,)"]),
        ([{"a": {"b": np.zeros(1)}}, {"a": {"b": np.zeros(2)}}], ["['a']['b']", "element 1", "(2,)", "(1,)"]),
        ([Point(0, np.zeros(1)), Point(0, np.zeros(2))], [".y", "element 1", "(2,)", "(1,)"]),
        ([Sample(0, np.zeros(1)), Sample(0, np.zeros(2))], [".label", "element 1", "(2,)", "(1,)"]),
        ([(1, 2), (1, 2, 3)], ["element 1", "3", "2"]),
        ([{"a": 1}, {"b": 1}], ["element 1", "'a'", "'b'"]),
        ([1, (1, 2)], ["element 1", "tuple", "int"]),
        ([1, {"a": 1}], ["element 1", "dict", "int"]),
        ([1, np.zeros(2)], ["element 1", "(2,)", "()"]),
        ([[1], [1, 2]], ["element 1", "(2,)", "(1,)"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("calls", [None, 2])
def test_what_does_not_fit_is_named(items: list[Any], words: list[str], calls: int | None) -> None:
    ds = ad.Dataset.from_iterable(items).batch(len(items), num_parallel_calls=calls)
    with pytest.raises(ad.StructureError) as caught:
        list(ds)
    for word in words:
        assert word in str(caught.value)


def test_an_integer_that_fits_no_array_is_named() -> None:
    with pytest.raises(ad.StructureError, match="element 1"):
        batch_of(1, 2**70)


def test_a_batch_that_cannot_be_stacked_is_gone_and_the_next_one_comes() -> None:
    ds = ad.Dataset.from_iterable([1, 2, 3, (4,), 5, 6, 7]).batch(2)
    assert [reference.plain(x) for x in results(ds)] == [
        reference.plain(np.array([1, 2])),
        Failed("StructureError"),
        reference.plain(np.array([5, 6])),
        reference.plain(np.array([7])),
    ]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("calls", [None, 2])
def test_a_failure_passes_and_the_batch_goes_on(way: Any, calls: int | None) -> None:
    found = way(ad.Dataset.range(6).map(fail_at_2).batch(4, num_parallel_calls=calls))
    assert [list(x) if isinstance(x, np.ndarray) else x for x in found] == [Failed("Boom(2)"), [0, 1, 3, 4], [5]]


def test_a_batch_that_failed_and_was_held_fails_again_when_the_run_goes_on() -> None:
    def fail_sometimes(batch: Any) -> Any:
        if batch[0] % 6 == 0:
            raise Boom(int(batch[0]))
        return batch

    check_resumes(lambda: ad.Dataset.range(24).batch(2).map(fail_sometimes).batch(2).shuffle(4, seed=1))


def test_infinite_input() -> None:
    (first,) = ad.Dataset.counter().batch(3).take(1)
    assert first.tolist() == [0, 1, 2]


def test_a_huge_size_is_no_allocation() -> None:
    (all_of_them,) = ad.Dataset.range(5).batch(10**12)
    assert all_of_them.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [0, -1, -2, 1.5, None, "3"])
def test_wrong_sizes_are_refused_where_they_are_given(size: Any) -> None:
    with pytest.raises(ad.PlanError, match="batch_size"):
        ad.Dataset.range(3).batch(size)


def test_cardinality() -> None:
    assert len(ad.Dataset.range(10).batch(3)) == 4
    assert len(ad.Dataset.range(10).batch(3, drop_remainder=True)) == 3
    assert len(ad.Dataset.range(0).batch(3)) == 0
    assert ad.Dataset.counter().batch(2).cardinality() == ad.INFINITE_CARDINALITY


def test_numpy_integers_are_sizes() -> None:
    assert len(ad.Dataset.range(10).batch(np.int32(5))) == 2


@pytest.mark.parametrize(
    "grouped",
    [
        lambda ds: ds.batch(2),
        lambda ds: ds.padded_batch(2),
        lambda ds: ds.ragged_batch(2),
        lambda ds: ds.map(increment, vectorized=True).batch(2),
        lambda ds: ds.pack_sequences(8),
        lambda ds: ds.bucket_by_token_count(8),
        lambda ds: ds.bucket_by_sequence_length(len, [3, 5], [2, 2, 2]),
        lambda ds: ds.group_by_window(len, lambda _, group: group.batch(2), 2),
    ],
    ids=["batch", "padded", "ragged", "map_and_batch", "packed", "by_tokens", "by_length", "by_window"],
)
def test_a_batch_that_failed_before_other_batches_were_made_fails_again(grouped: Any) -> None:
    """It passes by itself twice; a shuffle holds it when a state is taken."""

    def build() -> ad.Dataset[Any]:
        batches = ad.Dataset.range(40).batch(2).take_while(not_of_four).batch(2).map(np.ravel)
        return grouped(batches).shuffle(3, seed=1)

    check_resumes(build)


def increment(array: Any) -> Any:
    return array + 1


def not_of_four(pair: Any) -> bool:
    if pair[0] == 4:
        raise ValueError("boom")
    return True


def test_an_array_is_no_size() -> None:
    with pytest.raises(ad.PlanError, match=r"batch\(batch_size=\) must be an integer, got array"):
        ad.Dataset.range(3).batch(np.array([2, 3]))  # pyright: ignore[reportArgumentType]


ROWS_IN_BATCHES: dict[str, Any] = {
    "batch": lambda ds: ds.batch(4),
    "rebatch": lambda ds: ds.batch(4).rebatch(3),
    "map": lambda ds: ds.map(lambda row: row, num_parallel_calls=2).batch(4),
    # Three workers, as tests of another folder keep a pool of two, whose memory grows with what is sent.
    "processes": lambda ds: ds.map(lambda row: row, num_parallel_calls=3, executor="process").batch(4),
    "padded_batch": lambda ds: ds.padded_batch(4),
    "ragged_batch": lambda ds: ds.ragged_batch(4).map(lambda ragged: ragged.values),
    "pack_sequences": lambda ds: ds.pack_sequences(7).map(lambda row: row["inputs"]),
}


EQUAL, VARIED = [5] * 8, [3, 4, 5, 6] * 2
ORDERS = [
    *[(name, 1, EQUAL) for name in ROWS_IN_BATCHES],
    *[(name, 1 << 18, EQUAL) for name in ROWS_IN_BATCHES if name != "pack_sequences"],
    *[(name, 1, VARIED) for name in ("padded_batch", "ragged_batch", "pack_sequences")],
    *[(name, 1 << 18, VARIED) for name in ("padded_batch", "ragged_batch")],
]


@pytest.mark.parametrize(("name", "size", "lengths"), ORDERS)
def test_batches_have_the_byte_order_of_the_machine(name: str, size: int, lengths: list[int]) -> None:
    """Whatever their size, and whether their rows are of one length."""
    rows = [np.arange(length * size, dtype=">i4") for length in lengths]
    batches = list(ROWS_IN_BATCHES[name](ad.Dataset.from_list(rows)))
    assert {batch.dtype.str for batch in batches} == {np.dtype("=i4").str}
    expected = sum(int(row.sum(dtype=np.int64)) for row in rows)
    assert sum(int(batch.sum(dtype=np.int64)) for batch in batches) == expected

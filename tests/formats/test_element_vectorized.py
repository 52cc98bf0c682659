"""Elements of one layout are read all at once, and are what they are when each is read alone."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import asyncdata as ad
from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import leaves_of, stack
from asyncdata.formats.element_codec import decode_element, encode_element
from asyncdata.formats.element_vectorized import UniformRecords, decode_uniform, encode_uniform
from asyncdata.persistence.record_reader import decoded
from asyncdata.testing.checks import same

if TYPE_CHECKING:
    from collections.abc import Callable

leaves: Any = st.sampled_from(
    [
        *(st.integers(-(2**63), 2**63 - 1), st.floats(), st.just(None), st.just(True)),
        *(st.binary(min_size=3, max_size=3), st.binary(min_size=300, max_size=300)),
        *(arrays(np.float32, (2, 3)), arrays(np.int64, (40,)), arrays(np.uint8, (3, 0)), arrays(np.int16, ())),
        *(arrays(np.float32, ()).map(lambda array: array[()]), arrays(np.uint8, ()).map(lambda array: array[()])),
    ]
)


def dicts(parts: dict[Any, Any]) -> Any:
    return st.tuples(*parts.values()).map(lambda row: dict(zip(parts, row, strict=True)))


layouts: Any = st.recursive(
    leaves,
    lambda part: (
        st.lists(part, min_size=1, max_size=3).map(lambda parts: st.tuples(*parts))
        | st.lists(part, min_size=1, max_size=3).map(lambda parts: st.tuples(*parts).map(list))
        | st.dictionaries(st.text(max_size=3) | st.integers(), part, min_size=1, max_size=3).map(dicts)
    ),
    max_leaves=5,
)
alike: Any = layouts.flatmap(lambda layout: st.lists(layout, min_size=16, max_size=20))


@given(elements=alike)
def test_elements_of_one_layout_are_read_at_once(elements: list[Any]) -> None:
    found = decode_uniform([encode_element(element) for element in elements])
    assert found is not None
    assert same([*found], elements)


@given(elements=alike)
def test_a_batch_of_elements_of_one_layout_is_a_batch_of_the_elements(elements: list[Any]) -> None:
    found = decode_uniform([encode_element(element) for element in elements])
    if isinstance(found, ColumnBatch):
        assert same(ColumnBatch.stacked([found[:5], found[5:]]), stack(elements))
        assert same([*found.at([3, 1])], [elements[3], elements[1]])
        assert same([*found], elements)


@pytest.mark.parametrize(
    "element",
    [
        lambda number: number,
        lambda number: np.arange(number, number + 3),
        lambda number: np.full((7, 100), number, np.float32),
        lambda number: np.float32(number),
        lambda number: {"image": np.full((8, 8), number, np.uint8), "label": np.int64(number)},
        lambda number: (b"%03d" % number, (np.ones(2, bool), np.float64(number))),
    ],
)
def test_rows_of_arrays_are_put_together_when_somebody_wants_that(element: Callable[[int], Any]) -> None:
    elements = [element(number) for number in range(20)]
    found = decode_uniform([*map(encode_element, elements)])
    assert isinstance(found, ColumnBatch)
    assert same(found.batch(), stack(elements))
    assert all(leaf.flags.writeable for leaf in leaves_of(found.batch()))
    assert same([*found], elements)


def test_elements_share_no_memory() -> None:
    found = decode_uniform([encode_element(np.full(10, number)) for number in range(20)])
    assert found is not None
    assert len({id(element.base) for element in found}) == 20


def test_nothing_is_made_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(UniformRecords, "column", lambda *_: made.append("arrays"))
    found = decode_uniform([encode_element(np.full(100, number)) for number in range(20)])
    assert isinstance(found, ColumnBatch)
    assert found.weight == found[3:].weight == pytest.approx(800, rel=0.1)
    assert [*found][3].tolist() == [3] * 100
    assert made == []


def test_no_copy_of_the_records_is_kept() -> None:
    found = decode_uniform([encode_element(np.full(100, number)) for number in range(20)])
    assert isinstance(found, ColumnBatch)
    assert found.batch().shape == (20, 100)
    assert not [one for one in gc.get_objects() if type(one) is UniformRecords]


def test_large_arrays_are_copied_once_only() -> None:
    assert type(decode_uniform([encode_element(np.full(5_000, number)) for number in range(20)])) is list


@given(elements=alike, place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans())
def test_what_is_damaged_is_found_as_when_each_is_read_alone(
    elements: list[Any], place: int, byte: int, cut: bool
) -> None:
    records = [encode_element(element) for element in elements]
    which, at = divmod(place, len(records[0]))
    for wrong in (which % len(records), 0):
        record = records[wrong]
        broken = [*records]
        broken[wrong] = record[:at] if cut else record[:at] + bytes([byte]) + record[at + 1 :]
        found, alone = [*decoded(broken)], [next(iter(decoded([one]))) for one in broken]
        assert [*map(type, found)] == [*map(type, alone)]
        good = [number for number, item in enumerate(alone) if not isinstance(item, Exception)]
        assert same([found[number] for number in good], [alone[number] for number in good])


@pytest.mark.parametrize(
    "elements",
    [
        [*range(15)],
        [*range(20), 1.5],
        [*range(20), 1 << 70],
        [(number, number) if number else [number, number] for number in range(20)],
        [{"a": 1} if number else {"b": 1} for number in range(20)],
        [True, False] * 10,
        [()] * 20,
        [{}] * 20,
        ["text"] * 20,
        [list(range(100))] * 20,
        [bytes(number % 2) for number in range(20)],
    ],
)
def test_others_are_read_one_by_one(elements: list[Any]) -> None:
    records = [encode_element(element) for element in elements]
    assert decode_uniform(records) is None
    assert same([*decoded(records)], elements)


def test_a_dict_that_has_a_list_as_a_key_is_an_error() -> None:
    record = encode_element({(1,): 2}).replace(b"u", b"l")
    with pytest.raises(ad.DataLossError):
        decode_element(record)
    assert [*map(type, decoded([record] * 20))] == [ad.DataLossError] * 20


# writing


def written(columns: ColumnBatch) -> list[bytes] | None:
    """Return the records of columns in two goes, `None` if each has to be looked at."""
    alike = encode_uniform(columns)
    if alike is None:
        return None
    rows, half = np.zeros((len(columns), alike.width), np.uint8), len(columns) // 2
    alike.fill(rows[:half], 0)
    alike.fill(rows[half:], half)
    return [row.tobytes() for row in rows]


@given(elements=alike, start=st.integers(0, 4))
def test_columns_are_written_as_the_elements_are(elements: list[Any], start: int) -> None:
    columns = ColumnBatch.same_of(elements) if isinstance(elements[0], (np.ndarray, np.generic, tuple, dict)) else None
    if columns is not None:
        part = columns[start:]
        found = written(part)
        assert found == (None if len(part) < 16 else [encode_element(element) for element in elements[start:]])


@pytest.mark.parametrize(
    "value",
    [
        np.arange(20.0),
        np.arange(60, dtype=np.int16).reshape(3, 20).T,  # whose rows do not lie together
        np.arange(20) > 7,
        np.zeros((20, 0)),
        np.arange(40)[::-2],
        (np.arange(20, dtype=np.complex64), {"x": np.ones((20, 2, 2), np.float16), 3: np.arange(20, dtype=np.uint8)}),
        {},
        (),
        (np.arange(20), ()),
        {"x": (), "y": np.arange(20)},
    ],
)
def test_rows_of_arrays_are_written_as_the_elements_are(value: Any) -> None:
    columns = ColumnBatch(value, 20)
    found = written(columns)
    assert found is None or found == [encode_element(element) for element in columns]
    assert (found is None) == (isinstance(value, dict) and () in value.values())


def test_integers_are_written_as_they_are() -> None:
    for values in (range(5, 45, 2), [3, -(2**63), *range(20)]):
        assert written(ColumnBatch.ints(values)) == [encode_element(value) for value in values]


@pytest.mark.parametrize(
    "value", [np.array([b"x"] * 20, object), np.arange(20).astype("M8[s]"), np.arange(20).astype(">i4")]
)
def test_other_columns_are_written_one_by_one(value: Any) -> None:
    assert encode_uniform(ColumnBatch(value, 20)) is None


def test_what_somebody_has_written_into_elements_is_written() -> None:
    columns = ColumnBatch({"x": np.arange(20)}, 20)
    for element in columns:
        element["y"] = 1
    assert encode_uniform(columns) is None

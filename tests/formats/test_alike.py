"""Elements of one layout are read all at once, and are what they are when each is read alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import asyncdata as ad
from asyncdata.formats.alike import decode_alike
from asyncdata.formats.element import decode_element, encode_element
from asyncdata.kept.reading import decoded
from asyncdata.testing import same

leaves: Any = st.sampled_from(
    [
        *(st.integers(-(2**63), 2**63 - 1), st.floats(), st.just(None), st.just(True)),
        *(st.binary(min_size=3, max_size=3), st.binary(min_size=300, max_size=300)),
        *(arrays(np.float32, (2, 3)), arrays(np.int64, (40,)), arrays(np.uint8, (3, 0)), arrays(np.int16, ())),
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
    found = decode_alike([encode_element(element) for element in elements])
    assert found is not None
    assert same(found, elements)


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
        found, alone = decoded(broken), [decoded([one])[0] for one in broken]
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
    assert decode_alike(records) is None
    assert same(decoded(records), elements)


def test_a_dict_that_has_a_list_as_a_key_is_an_error() -> None:
    record = encode_element({(1,): 2}).replace(b"u", b"l")
    with pytest.raises(ad.DataLossError):
        decode_element(record)
    assert [*map(type, decoded([record] * 20))] == [ad.DataLossError] * 20

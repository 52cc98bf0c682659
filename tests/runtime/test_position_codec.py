"""Many tickets in few bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.runtime.position_codec import pack_tickets, unpack_tickets

NUMBERS = st.one_of(
    st.integers(0, 0), st.integers(-3, 70), st.integers(-(2**63), 2**63 - 1), st.integers(10**12, 10**12 + 9)
)


def shaped(shape: Any) -> st.SearchStrategy[Any]:
    return shape if isinstance(shape, st.SearchStrategy) else st.tuples(*map(shaped, shape))


SHAPES = st.recursive(st.just(NUMBERS), lambda inner: st.tuples(inner, inner) | st.tuples(inner), max_leaves=4)


@given(data=st.data(), shape=SHAPES, count=st.integers(32, 90))
def test_what_is_packed_is_unpacked(data: st.DataObject, shape: Any, count: int) -> None:
    tickets = data.draw(st.lists(shaped(shape), min_size=count, max_size=count))
    packed = pack_tickets(tickets)
    assert packed is not None
    assert unpack_tickets(json.loads(json.dumps(packed))) == tickets


@pytest.mark.parametrize(
    "tickets",
    [
        [],
        [1] * 31,
        [None] * 50,
        [True] * 50,
        [1, (1, 2)] * 50,
        [(1,), (1, 2)] * 50,
        [(1, None)] * 50,
        [2**70] * 50,
        [-(2**63), 2**63 - 1] * 50,
        ["a"] * 50,
    ],
    ids=lambda tickets: f"{tickets[:2]}",
)
def test_few_or_other_tickets_are_packed_or_left_but_never_changed(tickets: list[Any]) -> None:
    packed = pack_tickets(tickets)
    assert packed is None or unpack_tickets(packed) == tickets


def test_a_thousand_records_of_sixteen_files_take_less_than_three_bytes_each() -> None:
    packed = pack_tickets([(number * 37 % 16, 5_000 + number * 17 % 600) for number in range(1_000)])
    assert len(json.dumps(packed)) < 2_600

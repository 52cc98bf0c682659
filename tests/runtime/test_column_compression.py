"""Columns of tickets come back as they were, whatever they are, and regular ones take little room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from asyncdata.runtime import column_compression as compression
from asyncdata.runtime.column_compression import compressed, compressed_text, decompressed, decompressed_text
from asyncdata.runtime.position_codec import columns_of, rows_of

NUMBERS = st.one_of(st.integers(0, 3), st.integers(0, 70_000), st.integers(-(1 << 63), (1 << 63) - 1))


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Columns of one to three parts, the last two of which may be a tuple of their own."""
    count, kind = draw(st.integers(1, 40)), draw(st.sampled_from([NUMBERS, st.integers(0, 3)]))
    parts = [draw(arrays(np.int64, count, elements=kind)) for _ in range(draw(st.integers(1, 3)))]
    if len(parts) == 1:
        return parts[0]
    return {"0": parts[0], "1": parts[1] if len(parts) == 2 else {"0": parts[1], "1": parts[2]}}


@given(columns=tables())
def test_what_was_compressed_comes_back(columns: Any) -> None:
    rows = rows_of(columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "FEWEST", 1)
        patch.setattr(compression, "WORTH", 0)
        found = compressed(columns, len(rows))
    if found is None:  # all are the same
        assert len({*rows}) == 1
    else:
        assert rows_of(decompressed(found)) == rows


def test_elements_of_files_in_turn_take_hardly_any_room_and_random_ones_are_not_compressed() -> None:
    turns = [(10 + place % 16, 500 + place // 16) for place in range(16_000)]
    found = compressed(columns_of(turns), len(turns))
    assert found is not None
    assert len(found["deflated"]) < len(turns) / 100
    assert rows_of(decompressed(found)) == turns
    random = np.random.default_rng(1).permutation(16_000)
    assert compressed(random, len(random)) is None
    assert compressed(columns_of(turns[:100]), 100) is None


def test_pairs_of_a_zip_take_hardly_any_room() -> None:
    pairs = [(place, 7 + place) for place in range(16_000)]
    found = compressed(columns_of(pairs), len(pairs))
    assert found is not None
    assert found["flat"] == [1]
    assert len(found["deflated"]) < len(pairs) / 100
    assert rows_of(decompressed(found)) == pairs


def test_text_comes_back_and_no_more_of_it_than_is_allowed() -> None:
    text = "a line\n" * 1000
    assert decompressed_text(compressed_text(text), len(text)) == text.encode()
    for found, most in ((compressed_text(text), len(text) - 1), (compressed_text(text)[:-9], 1 << 20), ("AAAA", 9)):
        with pytest.raises(ValueError, match=r"."):
            decompressed_text(found, most)


@pytest.mark.parametrize(
    "change",
    [{"packed": 999}, {"packed": 1001}, {"widths": {"0": 1, "1": 2}}, {"widths": {"0": 3}}, {"deflated": "AAAA"}],
)
def test_what_is_damaged_is_an_error(change: dict[str, Any]) -> None:
    found = compressed(columns_of([(0, place) for place in range(1000)]), 1000)
    assert found is not None
    with pytest.raises(ValueError, match=r"."):
        decompressed({**found, **change})

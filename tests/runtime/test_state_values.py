"""Values of users' states as JSON: each comes back as it was, or is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from asyncdata.runtime.state_values import from_json_value, to_json_value

SAME: list[Any] = [
    np.arange(3, dtype=">i4"),
    np.array(["a", "bc"]),
    np.array(1.5),
    np.datetime64("2026-01-01"),
    np.array([1, 2], "m8[ms]"),
    np.longdouble(1) / 3,
]

REFUSED: list[Any] = [
    np.ones(2, [("a", "i4"), ("b", "f8")]),
    np.ones(2, [("a", "i4"), ("b", "f8")])[0],
    np.ma.array([1, 2], mask=[False, True]),
    np.array(["a", None], object),
]


@pytest.mark.parametrize("value", SAME, ids=repr)
def test_an_array_comes_back(value: Any) -> None:
    found = from_json_value(json.loads(json.dumps(to_json_value({"value": (value,)}))))["value"][0]
    assert (type(found), found.dtype, found.shape) == (type(value), value.dtype, value.shape)
    assert np.array_equal(found, value)


@pytest.mark.parametrize("value", [np.str_("a\0"), np.bytes_(b"a\0"), 1 + 2j, np.complex64(3j)], ids=repr)
def test_text_and_complex_numbers_come_back_whole(value: Any) -> None:
    found = from_json_value(json.loads(json.dumps(to_json_value([value]))))[0]
    assert type(found) is type(value)
    assert found == value
    assert len(str(found)) == len(str(value))


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_an_array_that_would_come_back_as_another_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be in a state"):
        to_json_value([value])

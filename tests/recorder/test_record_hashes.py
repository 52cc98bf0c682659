"""The hash of a record is the same whether its name is a tuple or in columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asyncdata.recorder.audit import leaves
from asyncdata.recorder.record_hashes import hashes_of_columns, hashes_of_leaves
from asyncdata.runtime.position_codec import columns_of

NAMES: list[Callable[[int], Any]] = [
    lambda n: n - 3,
    lambda n: (n, 5),
    lambda n: (n, (2, n)),
    lambda n: ((1, n), -n),
    lambda n: ((n, (0, n)), n),
]


@pytest.mark.parametrize("name", NAMES)
def test_columns_and_tuples_have_the_same_hashes_and_other_records_have_others(name: Callable[[int], Any]) -> None:
    names = [name(number) for number in range(100)]
    hashes = hashes_of_columns(columns_of(names)).tolist()
    assert hashes == hashes_of_leaves([leaf for one in names for leaf in leaves(one)]).tolist()
    assert len({*hashes}) == 100


def test_a_name_that_begins_with_another_has_another_hash() -> None:
    found = hashes_of_leaves([(0,), (0, 0), ("a",), ("a", 0), (None,), (1 << 70,), ((0,),), ((0, 0),)])
    assert len({*found.tolist()}) == 8

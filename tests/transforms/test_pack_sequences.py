from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.reference import Boom, Failed
from tests.running import WAYS, results

WAYS_TO_PACK = [
    {"strategy": "first_fit"},
    {"strategy": "first_fit", "num_packing_bins": 1},
    {"strategy": "first_fit", "num_packing_bins": 3},
    {"strategy": "first_fit", "overlong": "truncate"},
    {"strategy": "first_fit", "overlong": "split", "num_packing_bins": 2},
    {"strategy": "first_fit", "drop_remainder": True},
    {"strategy": "concat"},
    {"strategy": "concat", "drop_remainder": True},
]


def sequence(number: int) -> np.ndarray:
    return np.arange(number * 7 % 12, dtype=np.int32) + number


def sequences(count: int) -> ad.Dataset[Any]:
    return ad.Dataset.range(count).map(sequence)


def rows(ds: ad.Dataset[Any], part: str = "tokens") -> list[Any]:
    return [row[part].tolist() for row in ds]


def meaning(elements: Any, length: int, how: dict[str, Any]) -> list[Any]:
    full = {"strategy": "first_fit", "overlong": "error", "num_packing_bins": 64, "drop_remainder": False, **how}
    return list(reference.pack_sequences(elements, length, *full.values()))


@pytest.mark.parametrize("how", WAYS_TO_PACK, ids=str)
def test_keeps_its_contract(how: dict[str, Any]) -> None:
    check_transform(
        lambda ds: ds.map(sequence).pack_sequences(12, **how),
        lambda items: meaning(map(sequence, items), 12, how),
        [(), (5,), range(10), range(150)],
    )


@pytest.mark.parametrize("how", WAYS_TO_PACK, ids=str)
@pytest.mark.parametrize("length", [1, 5, 100])
def test_short_and_long_rows_are_as_the_meaning_says(how: dict[str, Any], length: int) -> None:
    found = [reference.plain(row) for row in results(sequences(40).pack_sequences(length, **how))]
    assert found == [reference.plain(row) for row in meaning(map(sequence, range(40)), length, how)]


def test_no_token_is_lost_and_none_comes_twice() -> None:
    every = sorted(token for number in range(200) for token in sequence(number).tolist())
    for how in ({"strategy": "first_fit", "overlong": "split"}, {"strategy": "concat"}):
        found = sequences(200).pack_sequences(9, **how)
        assert sorted(int(x) for row in found for x in row["tokens"][row["segment_ids"] > 0]) == every


def test_first_fit_wastes_little() -> None:
    """Of rows of 128 tokens with sequences of 1 to 99; with one open row at a time it is a quarter."""
    draw = random.Random(1)
    lengths = [draw.randrange(1, 100) for _ in range(3000)]
    ds = ad.Dataset.from_iterable(lengths).map(np.ones)

    def padding(bins: int) -> float:
        packed = list(ds.pack_sequences(128, num_packing_bins=bins))
        return 1 - sum(lengths) / (128 * len(packed))

    assert padding(64) < 0.05
    assert padding(1) > 0.15


def test_a_dict_of_sequences_is_packed_side_by_side() -> None:
    elements = [{"ids": [1, 2, 3], "mask": [1.0, 0.0, 1.0]}, {"ids": [4], "mask": [0.5]}]
    (row,) = ad.Dataset.from_iterable(elements).pack_sequences(5, pad_value=-1)
    assert row["ids"].tolist() == [1, 2, 3, 4, -1]
    assert row["mask"].tolist() == [1.0, 0.0, 1.0, 0.5, -1.0]
    assert row["segment_ids"].tolist() == [1, 1, 1, 2, 0]
    assert row["positions"].tolist() == [0, 1, 2, 0, 0]


def test_concat_splits_where_a_row_ends_and_places_begin_anew() -> None:
    ds = ad.Dataset.from_iterable([[1, 2, 3], [4, 5, 6, 7]]).pack_sequences(5, strategy="concat")
    assert rows(ds) == [[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]]
    assert rows(ds, "positions") == [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]]


def test_what_is_longer_than_a_row() -> None:
    ds = ad.Dataset.from_iterable([[1], [2, 3, 4, 5, 6], [7]])
    assert rows(ds.pack_sequences(3, overlong="truncate")) == [[2, 3, 4], [1, 7, 0]]
    assert rows(ds.pack_sequences(3, overlong="split")) == [[2, 3, 4], [1, 5, 6], [7, 0, 0]]
    with pytest.raises(ad.StructureError, match=r"5 tokens fits no row of 3.*overlong='split'"):
        list(ds.pack_sequences(3))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failures_pass_in_their_places_and_disturb_no_row(way: Any) -> None:
    def fail(x: int) -> np.ndarray:
        if x == 1:
            raise Boom(x)
        return np.full(x + 1, x)

    found = way(ad.Dataset.range(3).map(fail).pack_sequences(4, drop_remainder=True))
    assert found[0] == Failed("Boom(1)")
    assert found[1]["tokens"].tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (np.zeros((2, 2)), r"tokens: \(2, 2\)"),
        (7, r"tokens: \(\)"),
        ({"a": [1, 2], "b": [1]}, r"a: \(2,\), b: \(1,\)"),
        ({"a": [1], "positions": [1]}, "added here"),
        ({}, "got"),
    ],
)
def test_what_is_no_sequence_fails_in_its_place(element: Any, words: str) -> None:
    ds = ad.Dataset.from_iterable([[1], element, [2]]).pack_sequences(2)
    assert [x if isinstance(x, Failed) else x["tokens"].tolist() for x in results(ds)] == [
        Failed("StructureError"),
        [1, 2],
    ]
    with pytest.raises(ad.StructureError, match=words):
        list(ds)


def test_elements_of_other_parts_fail_the_row_and_the_next_one_comes() -> None:
    ds = ad.Dataset.from_iterable([{"a": [1]}, {"b": [1]}, {"a": [2]}, {"a": [3]}]).pack_sequences(2)
    first, second = results(ds)
    assert first == Failed("StructureError")
    assert second["a"].tolist() == [2, 3]


def test_infinite_input_and_empty_sequences() -> None:
    ds = ad.Dataset.counter().map(lambda x: np.full(x % 3, x)).pack_sequences(4).take(2)
    assert rows(ds) == [[1, 2, 2, 4], [5, 5, 7, 10]]


@pytest.mark.parametrize("how", WAYS_TO_PACK, ids=str)
def test_goes_on_with_the_same_rows(how: dict[str, Any]) -> None:
    check_resumes(lambda: sequences(60).pack_sequences(12, **how))
    check_resumes(lambda: sequences(60).shuffle(9, seed=1).pack_sequences(7, **how))
    check_resumes(lambda: sequences(40).pack_sequences(12, **how).shuffle(3, seed=1).batch(2))


def test_what_it_is_made_of_is_known_where_the_input_tells() -> None:
    ds = ad.Dataset.from_generator(lambda: iter(()), output_signature=ad.TensorSpec((None,), "int32"))
    assert ds.pack_sequences(8).element_spec == {
        "tokens": ad.TensorSpec((8,), "int32"),
        "segment_ids": ad.TensorSpec((8,), "int32"),
        "positions": ad.TensorSpec((8,), "int32"),
    }
    assert ds.pack_sequences(8).cardinality() == ad.UNKNOWN_CARDINALITY


@pytest.mark.parametrize(
    "wrong",
    [{"length": 0}, {"num_packing_bins": 0}, {"strategy": "best"}, {"overlong": "drop"}],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=next(iter(wrong))):
        ad.Dataset.range(1).pack_sequences(**{"length": 4, **wrong})
    with pytest.raises(ad.PlanError, match="concat"):
        ad.Dataset.range(1).pack_sequences(4, strategy="concat", overlong="split")


def test_the_error_of_a_row_names_its_elements() -> None:
    with pytest.raises(ad.StructureError) as caught:
        list(ad.Dataset.from_iterable([{"a": [1]}, {"b": [1]}]).pack_sequences(2))
    assert caught.value.__notes__ == ["in pack_sequences(2), elements 0 to 1"]


def test_rows_are_no_further_ahead_than_they_must_be() -> None:
    pulled = itertools.count()
    ds = ad.Dataset.counter().map(lambda x: (next(pulled), np.ones(2))[1]).pack_sequences(8, num_packing_bins=1)
    with ds.with_options(ad.Options(optimize=False)).iterate() as elements:
        next(elements)
    assert next(pulled) == 4

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results
from tests.states import edited


def fail_at_2(x: int) -> int:
    if x == 2:
        raise Boom(x)
    return x


def unknown(count: int) -> ad.Dataset[int]:
    return ad.Dataset.range(count).filter(lambda x: True)


def empty_dataset() -> ad.Dataset[Any]:
    signature = {"x": ad.TensorSpec((2,), np.int16)}
    return ad.Dataset.from_generator(lambda: iter(()), output_signature=signature)


def test_what_is_as_long_as_expected_stays_as_it_is() -> None:
    check_transform(lambda ds: ds.filter(lambda x: True).assert_cardinality(5), list, [range(5)])
    check_transform(lambda ds: ds.assert_cardinality(0), list, [()])


def test_the_length_is_known() -> None:
    assert len(unknown(3).assert_cardinality(3)) == 3
    endless = ad.Dataset.counter().filter(lambda x: True).assert_cardinality(ad.INFINITE_CARDINALITY)
    assert endless.cardinality() == ad.INFINITE_CARDINALITY
    assert list(endless.take(2)) == [0, 1]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("expected", [2, 4, ad.INFINITE_CARDINALITY])
def test_more_or_fewer_are_an_error_after_the_elements(way: Any, expected: int) -> None:
    found = way(unknown(3).assert_cardinality(expected), most=6)
    delivered = 2 if expected == 2 else 3
    assert found == [*range(delivered), *[Failed("StageError")] * (6 - delivered)]


@pytest.mark.parametrize(("expected", "words"), [(2, "there are more"), (5, "ended after 3")])
def test_the_error_says_what_was_expected_and_what_came(expected: int, words: str) -> None:
    with pytest.raises(ad.StageError, match=rf"assert_cardinality\({expected}\).*{words}"):
        list(unknown(3).assert_cardinality(expected))


def test_failed_elements_count() -> None:
    assert results(unknown(3).map(fail_at_2).assert_cardinality(3)) == [0, 1, Failed("Boom(2)")]


@pytest.mark.parametrize("expected", [4, -1])
def test_an_expectation_that_the_plan_knows_to_be_wrong_is_refused_at_once(expected: int) -> None:
    with pytest.raises(ad.PlanError, match="the dataset has 5 elements"):
        ad.Dataset.range(5).assert_cardinality(expected)


@pytest.mark.parametrize("expected", [-2, -5, 1.5, None])
def test_what_is_no_number_of_elements_is_refused(expected: Any) -> None:
    with pytest.raises(ad.PlanError, match="expected_cardinality"):
        unknown(5).assert_cardinality(expected)


def test_counting_goes_on() -> None:
    check_resumes(lambda: unknown(20).assert_cardinality(20).batch(3))
    with unknown(5).assert_cardinality(4).iterate() as elements:
        assert [next(elements) for _ in range(3)] == [0, 1, 2]
        state = elements.state_dict()
    rest = unknown(5).assert_cardinality(4).iterate(state=state)
    assert next(rest) == 3
    with pytest.raises(ad.StageError):
        next(rest)


def test_elements_by_number_pass_through() -> None:
    assert ad.Dataset.range(5).assert_cardinality(5)[3] == 3


def test_padding_is_marked_and_made_of_zeros() -> None:
    ds = ad.Dataset.from_tensor_slices({"x": np.ones((2, 3), np.float32), "name": ["a", "b"]}).pad_to_cardinality(4)
    elements = list(ds)
    assert [element["valid"] for element in elements] == [True, True, False, False]
    assert elements[3]["x"].tolist() == [0, 0, 0]
    assert elements[3]["x"].dtype == np.float32
    assert elements[3]["name"] == ""
    assert elements[2]["x"] is not elements[3]["x"]
    assert len(ds) == 4


@pytest.mark.parametrize(
    ("element", "padding"),
    [
        (7, 0),
        (2.5, 0.0),
        (True, False),
        ("text", ""),
        (b"bytes", b""),
        (None, None),
        pytest.param(object(), None, id="object"),
        ([1, "a"], [0, ""]),
        (np.int8(3), np.int8(0)),
        ((1, {"a": "b"}), (0, {"a": ""})),
    ],
    ids=repr,
)
def test_any_element_has_its_zeros(element: Any, padding: Any) -> None:
    real, pad = ad.Dataset.from_iterable([element]).pad_to_cardinality(2)
    assert real == (element, True)
    assert reference.plain(pad) == reference.plain((padding, False))


@pytest.mark.parametrize("count", first_by_default([301, 300, 1000]))
def test_padding_keeps_its_contract(count: int) -> None:
    check_transform(
        lambda ds: ds.filter(lambda x: True).pad_to_cardinality(count),
        lambda items: reference.pad_to_cardinality(items, count),
        [(7,), range(10), range(300)],
    )


def test_a_failed_element_has_its_place_and_is_no_model() -> None:
    found = results(ad.Dataset.range(3).map(fail_at_2).pad_to_cardinality(4))
    assert found == [(0, True), (1, True), Failed("Boom(2)"), (0, False)]


def test_an_empty_dataset_is_padded_with_what_its_signature_says() -> None:
    empty = empty_dataset()
    (pad,) = empty.pad_to_cardinality(1)
    assert (pad["x"].tolist(), pad["x"].dtype, pad["valid"]) == ([0, 0], np.int16, False)
    with pytest.raises(ad.StageError, match="empty"):
        list(ad.Dataset.range(0).map(str).pad_to_cardinality(1))


def test_a_key_that_is_taken_fails_the_element() -> None:
    ds = ad.Dataset.from_iterable([{"valid": 1}, {"a": 1}])
    assert results(ds.pad_to_cardinality(2)) == [Failed("StructureError"), {"a": 1, "valid": True}]
    assert list(ad.Dataset.from_iterable([{"valid": 1}]).pad_to_cardinality(1, "mask")) == [{"valid": 1, "mask": True}]


def test_more_elements_are_an_error() -> None:
    with pytest.raises(ad.PlanError, match=r"has 5 elements; take\(3\)"):
        ad.Dataset.range(5).pad_to_cardinality(3)
    with pytest.raises(ad.PlanError, match="INFINITE"):
        ad.Dataset.counter().pad_to_cardinality(3)
    assert results(unknown(5).pad_to_cardinality(3))[:4] == [(0, True), (1, True), (2, True), Failed("StageError")]


@pytest.mark.parametrize("count", [-1, 1.5, None])
def test_what_is_no_number_to_pad_to_is_refused(count: Any) -> None:
    with pytest.raises(ad.PlanError, match="cardinality"):
        unknown(5).pad_to_cardinality(count)


def test_padding_goes_on() -> None:
    check_resumes(lambda: unknown(7).pad_to_cardinality(12))
    check_resumes(lambda: ad.Dataset.range(5).map(fail_at_2).pad_to_cardinality(12).shuffle(4, seed=1))
    check_resumes(lambda: unknown(5).pad_to_cardinality(11).batch(3).shuffle(2, seed=1))
    check_resumes(lambda: empty_dataset().pad_to_cardinality(5).shuffle(2, seed=1))
    check_resumes(lambda: ad.Dataset.range(9).take(7).pad_to_cardinality(12))
    check_resumes(lambda: ad.Dataset.range(7).shuffle(3, seed=1).pad_to_cardinality(12).batch(2))


def test_padding_does_not_go_on_where_the_input_has_more() -> None:
    ds = ad.Dataset.range(7).pad_to_cardinality(12)
    state = ds.iterate().state_dict()
    assert len([*ds.iterate(state=edited(state, position=[8, "end", [6]]))]) == 4
    with pytest.raises(ad.ResumeError, match="that 5 elements were read, but its input says 7"):
        ds.iterate(state=edited(state, position=[5, "end", [6]]))


def test_steps_that_tell_elements_of_padding_apart_go_on() -> None:
    """To a step that counts they are not the same, though all are zeros."""
    padded = ad.Dataset.range(5).pad_to_cardinality(12)
    check_resumes(lambda: padded.scan(0, lambda number, pair: (number + 1, (number, pair[1]))).shuffle(4, seed=1))
    numbers = [float(number) for number in padded.map(lambda *_, rng: rng.random(), rng=True, seed=1)]
    assert len(set(numbers)) == 12

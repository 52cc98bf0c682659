from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import results


def ragged(count: int) -> list[Any]:
    return [np.full(i * 7 % 11 + 1, i) for i in range(count)]


@pytest.mark.parametrize("size", first_by_default([6, 1, 1000]))
@pytest.mark.parametrize("overlong", ["error", "drop", "keep"])
def test_keeps_its_contract(size: int, overlong: Any) -> None:
    check_transform(
        lambda ds: ds.bucket_by_token_count(20, len, size, overlong=overlong),
        lambda items: reference.bucket_by_token_count(items, 20, len, size, overlong),
        [(), ragged(1), ragged(3), ragged(60)],
    )


@given(sizes=st.lists(st.integers(1, 30), max_size=80), most=st.integers(30, 90), buffer=st.integers(1, 100))
def test_every_element_is_in_one_batch_and_no_batch_has_too_many_tokens(
    sizes: list[int], most: int, buffer: int
) -> None:
    given = [np.full(size, number + 1) for number, size in enumerate(sizes)]
    found: list[int] = []
    for batch in ad.Dataset.from_iterable(given).bucket_by_token_count(most, buffer_size=buffer):
        assert batch.size <= most
        found += [int(row[0]) for row in batch]
        assert [int((row > 0).sum()) for row in batch] == [sizes[row[0] - 1] for row in batch]
    assert sorted(found) == list(range(1, len(sizes) + 1))


def test_a_batch_has_as_many_elements_of_about_one_length_as_fit() -> None:
    lengths = [9, 1, 8, 2, 3, 2]
    batches = list(ad.Dataset.from_iterable([[x] * x for x in lengths]).bucket_by_token_count(9, padding_values=0))
    assert [batch[:, 0].tolist() for batch in batches] == [[1, 2, 2], [3], [8], [9]]
    halves = list(ad.Dataset.from_iterable([[x] * x for x in lengths]).bucket_by_token_count(9, buffer_size=3))
    assert [batch[:, 0].tolist() for batch in halves] == [[1], [8], [9], [2, 2, 3]]


def test_all_parts_are_filled_up_and_the_function_says_how_long_an_element_is() -> None:
    elements = [{"tokens": [1] * n, "label": n} for n in (3, 1, 2)]
    ds = ad.Dataset.from_iterable(elements)
    (batch,) = ds.bucket_by_token_count(9, lambda x: len(x["tokens"]), padding_values={"tokens": -1, "label": None})
    assert batch["tokens"].tolist() == [[1, -1, -1], [1, 1, -1], [1, 1, 1]]
    assert batch["label"].tolist() == [1, 2, 3]
    pairs = ad.Dataset.from_iterable([([1] * n, [2] * n) for n in (2, 1)])
    ((first, second),) = pairs.bucket_by_token_count(4)  # without a function: the length that all parts have
    assert first.shape == second.shape == (2, 2)
    ((first, second),) = pairs.bucket_by_token_count(4, lambda first, second: len(first))
    assert first.shape == second.shape == (2, 2)


@pytest.mark.parametrize(
    ("element", "length", "error", "message"),
    [
        ([0] * 9, None, ad.StructureError, "9 tokens, but a batch holds 8: give overlong='drop'"),
        (3, None, TypeError, "3 has no length: give length_func"),
        ({"tokens": [1], "label": 4}, None, TypeError, "4 has no length: give length_func"),
        (None, None, TypeError, "len"),
        ({"a": [1], "b": [1, 2]}, None, ad.StructureError, "have lengths .* give length_func"),
        ([1], lambda x: "one" if len(x) == 1 else len(x), TypeError, "a length must be an integer, got 'one'"),
        ([1], lambda x: len(x) - 2, ValueError, "at least 0, got -1"),
        ([1], lambda x: x[1], IndexError, "list index"),
    ],
)
def test_what_has_no_length_fails_alone(element: Any, length: Any, error: type[Exception], message: str) -> None:
    ds = ad.Dataset.from_iterable([[1, 2], element, [3, 4]]).bucket_by_token_count(8, length)
    with ds.iterate() as batches:
        with pytest.raises(error, match=message) as caught:
            next(batches)
        assert next(batches).tolist() == [[1, 2], [3, 4]]
    assert "element 1" in caught.value.__notes__[0]


def test_what_is_too_long_is_dropped_or_kept_alone() -> None:
    ds = ad.Dataset.from_iterable([[0] * 9, [1] * 2, [2] * 20, [3] * 3])
    assert [b.shape for b in ds.bucket_by_token_count(8, overlong="drop")] == [(2, 3)]
    assert [b.shape for b in ds.bucket_by_token_count(8, overlong="keep")] == [(2, 3), (1, 9), (1, 20)]
    assert list(ds.bucket_by_token_count(1, overlong="drop")) == []


def test_a_batch_that_cannot_be_stacked_fails_in_its_place() -> None:
    ds = ad.Dataset.from_iterable([[1], {"a": [2]}, [3, 4]]).bucket_by_token_count(3)
    with ds.iterate() as batches:
        with pytest.raises(ad.StructureError) as caught:
            next(batches)
        assert next(batches).tolist() == [[3, 4]]
    assert caught.value.__notes__ == ["in bucket_by_token_count(3), elements 0 to 1"]


def test_a_failed_element_passes_and_the_buffer_stays() -> None:
    def fail_at_2(x: int) -> Any:
        if x == 2:
            raise Boom(x)
        return [x]

    found = results(ad.Dataset.range(5).map(fail_at_2).bucket_by_token_count(3))
    assert found[0] == Failed("Boom(2)")
    assert [batch.ravel().tolist() for batch in found[1:]] == [[0, 1, 3], [4]]


def test_an_endless_input_is_read_a_buffer_at_a_time() -> None:
    read: list[int] = []
    ds = ad.Dataset.counter().map(lambda x: read.append(x) or [x]).bucket_by_token_count(3, buffer_size=6)
    with ds.with_options(ad.Options(optimize=False)).iterate() as batches:
        for expected in (6, 6, 12):
            next(batches)
            assert len(read) == expected


def test_says_what_is_known_of_batches() -> None:
    ds = ad.Dataset.from_tensor_slices(np.zeros((4, 3), np.uint16)).bucket_by_token_count(8)
    assert ds.element_spec == ad.TensorSpec((None, 3), "uint16")
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.range(0).bucket_by_token_count(2).cardinality() == 0


async def length_async(x: Any) -> int:
    return len(x)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"max_tokens": 0}, r"max_tokens=\) must be at least 1, got 0"),
        ({"max_tokens": -1}, r"max_tokens=\) must be at least 1"),
        ({"max_tokens": 4, "buffer_size": 0}, r"buffer_size=\) must be at least 1"),
        ({"max_tokens": 4, "overlong": "split"}, "must be one of 'error', 'drop', 'keep', got 'split'"),
        ({"max_tokens": 4, "length_func": 3}, "needs a function, got 3"),
        ({"max_tokens": 4, "length_func": length_async}, "is a coroutine function"),
    ],
)
def test_wrong_arguments_are_refused_at_once(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ad.Dataset.range(3).bucket_by_token_count(**how)


def one(x: int) -> Any:
    if x % 11 == 7:
        raise Boom(x)
    return np.full(x * 7 % 25, x)


@pytest.mark.parametrize("size", first_by_default([5, 1, 16, 1000]))
@pytest.mark.parametrize("overlong", ["error", "drop", "keep"])
def test_goes_on_as_if_nothing_had_happened(size: int, overlong: Any) -> None:
    def build() -> ad.Dataset[Any]:
        return ad.Dataset.range(80).map(one).bucket_by_token_count(20, buffer_size=size, overlong=overlong)

    check_resumes(build, places=80)
    check_resumes(lambda: build().shuffle(6, seed=1), places=80)


def test_states_of_several_processes_are_dealt_to_another_number() -> None:
    def share(count: int, index: int) -> ad.Dataset[Any]:
        tokens = ad.Dataset.range(120).shuffle(seed=3).shard(count, index).map(lambda x: [x + 1] * (x % 5 + 1))
        return tokens.bucket_by_token_count(12, buffer_size=10)

    found: list[int] = []
    states: list[Any] = []
    for index in range(4):
        with share(4, index).iterate() as batches:
            found += [int(row[0]) for _ in range(index + 1) for row in next(batches)]
            states.append(batches.state_dict())
    merged = merge_states(states)
    for index in range(3):
        found += [int(row[0]) for batch in share(3, index).iterate(state=merged) for row in batch]
    assert sorted(found) == list(range(1, 121))


def test_an_error_of_the_lengths_names_the_stage_alone() -> None:
    with pytest.raises(TypeError, match="no len") as caught:
        list(ad.Dataset.range(1).bucket_by_token_count(8))
    assert caught.value.__notes__ == ["in bucket_by_token_count(8), element 0"]

"""list_batch: what the user sees of lists of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.reference import Failed
from tests.running import results

ROWS: list[dict[str, Any]] = [{"ids": [1, 2], "size": 2}, {"ids": [3]}, {"text": "a"}, {"ids": []}]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("drop", [False, True])
def test_keeps_its_contract(size: int, drop: bool) -> None:
    check_transform(
        lambda ds: ds.list_batch(size, drop),
        lambda items: reference.list_batch(items, size, drop),
        [(), (np.arange(3),), ROWS, range(10), [(1, "a"), (2, np.ones(2)), None]],
    )


def test_goes_on_from_any_place() -> None:
    def pipeline() -> ad.Dataset[Any]:
        return ad.Dataset.range(40).map(lambda x: {"x": x, "row": [x] * (x % 4)}).list_batch(3)

    check_resumes(pipeline)
    check_resumes(lambda: pipeline().shuffle(5, seed=1))
    check_resumes(lambda: pipeline().map(lambda rows: [row["x"] for row in rows], num_parallel_calls=2))
    check_resumes(lambda: pipeline().unbatch())


def test_elements_are_as_they_were_and_a_failure_passes() -> None:
    def fail_at_1(x: int) -> Any:
        if x == 1:
            raise reference.Boom(x)
        return (x, "a") if x % 2 else {"x": np.float32(x)}

    ds = ad.Dataset.range(5).map(fail_at_1).list_batch(2)
    assert results(ds) == [
        Failed("Boom(1)"),
        [{"x": np.float32(0)}, {"x": np.float32(2)}],
        [(3, "a"), {"x": np.float32(4)}],
    ]


def test_the_function_after_it_gets_the_list_and_may_return_another_number_of_rows() -> None:
    def pieces(rows: list[str]) -> list[dict[str, Any]]:
        return [{"word": word, "rows": len(rows)} for row in rows for word in row.split()]

    texts = ad.Dataset.from_iterable(["a b", "", "c", "d e f"])
    found = list(texts.list_batch(2).map(pieces, num_parallel_calls=2).unbatch())
    assert [(row["word"], int(row["rows"])) for row in found] == [(word, 2) for word in "abcdef"]


def sizes(rows: list[Any]) -> list[int]:
    return [int(row["image"].sum()) for row in rows]


def image(number: int) -> dict[str, Any]:
    return {"image": np.full(100_000, number, np.uint8)}


def test_arrays_of_worker_processes_stay_what_they_were() -> None:
    images = ad.Dataset.range(12).map(image, num_parallel_calls=2, executor="process")
    kept = list(images.list_batch(5))
    assert [sizes(rows) for rows in kept] == [[100_000 * x for x in range(12)[at : at + 5]] for at in (0, 5, 10)]
    sent = images.list_batch(5).map(sizes, num_parallel_calls=2, executor="process")
    assert list(sent) == [sizes(rows) for rows in kept]


def test_a_row_of_it_is_of_one_record() -> None:
    iterator = iter(ad.Dataset.range(6).list_batch(2).unbatch())
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    assert "2" in str(iterator.origin())

"""Random pipelines looked at: what is asked of a dataset is what an iteration of it would give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given

import asyncdata as ad
from tests.laws.pipelines import Pipeline, pipelines
from tests.reference import Failed, failed


def first_of(ask: Any) -> Any:
    """What is given, or the failure that is raised."""
    try:
        return ask()
    except Exception as error:
        return failed(error)


@given(pipe=pipelines())
def test_looking_gives_what_an_iteration_begins_with(pipe: Pipeline) -> None:
    assume(pipe.ordered)
    expected, ds = pipe.elements(), pipe.build()
    if not expected:
        with pytest.raises(ad.StructureError, match="the dataset is empty"):
            ds.peek()
        return
    assert pipe.comparable([first_of(ds.peek)]) == expected[:1]
    if Failed not in set(map(type, expected[:3])):
        assert pipe.comparable(ds.head(3)) == expected[:3]


@given(pipe=pipelines())
def test_reduce_is_a_loop_over_the_first_epoch(pipe: Pipeline) -> None:
    expected, found = pipe.elements(), list[Any]()

    def add(count: int, element: Any) -> int:
        found.append(element)
        return count + 1

    def count() -> Any:
        return pipe.build().reduce(0, add)

    failures = [element for element in expected if isinstance(element, Failed)]
    if failures:
        assert first_of(count) in failures
    else:
        assert count() == len(expected)
        assert pipe.comparable(found) == expected


@given(pipe=pipelines())
def test_a_pipeline_that_is_built_again_has_the_same_fingerprint(pipe: Pipeline) -> None:
    assert pipe.build().fingerprint() == pipe.build().fingerprint()

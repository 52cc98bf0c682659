"""Rows of tables are the values that docs/formats.md says, whoever wrote the files and however they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from tests.laws.pipelines import FIRST, Pipeline
from tests.laws.refused_tables import refused_sources
from tests.laws.table_types import TABLE
from tests.laws.tables import readings, table_sources
from tests.laws.test_placement import BESIDE, FEW, LEGS
from tests.laws.test_resume import Leg, legs, read_in_legs
from tests.running import WAYS, read_plain

pytestmark = pytest.mark.formats

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def test_the_types_of_these_laws_are_those_of_the_page() -> None:
    lines = PAGE.read_text().partition("\n### Values of Arrow's types\n")[2].partition("\n## ")[0].splitlines()
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines if line.startswith("| ")]
    assert rows[1:] == TABLE


MORE = settings(max_examples=settings().max_examples * 5 // 3)


@MORE
@given(pipe=readings(), way=st.sampled_from(WAYS))
def test_elements_are_the_values_of_their_types(pipe: Pipeline, way: Callable[..., list[Any]]) -> None:
    assert pipe.comparable(way(pipe.build())) == pipe.elements()


@MORE
@given(pipe=table_sources(["parquet"], ["filters"]))
def test_filters_select_the_rows_that_they_select_of_the_whole_table(pipe: Pipeline) -> None:
    assert pipe.comparable(read_plain(pipe.build())) == pipe.elements()


@MORE
@given(pipe=readings())
def test_the_optimizer_changes_nothing(pipe: Pipeline) -> None:
    assert pipe.comparable(read_plain(pipe.build().with_options(ad.Options(optimize=False)))) == pipe.elements()


@MORE
@given(pipe=table_sources())
def test_the_spec_has_the_columns_of_the_first_row(pipe: Pipeline) -> None:
    first = next(iter(pipe.meaning(FIRST)), None)
    assume(isinstance(first, dict))
    assert list(pipe.build().element_spec) == list(first)


@given(pipe=readings(refused_sources()), way=st.sampled_from(WAYS))
def test_what_cannot_be_read_is_an_error_in_its_place_and_all_else_is_given(
    pipe: Pipeline, way: Callable[..., list[Any]]
) -> None:
    assert pipe.comparable(way(pipe.build())) == pipe.elements()


@MORE
@given(pipe=readings(), legs=legs)
def test_going_on_is_as_if_nothing_had_happened(pipe: Pipeline, legs: list[Leg]) -> None:
    assert pipe.comparable(read_in_legs(pipe, legs)) == pipe.elements()


@FEW
@given(pipe=readings())
def test_a_process_of_its_own_changes_nothing(pipe: Pipeline) -> None:
    assert pipe.comparable(read_plain(pipe.build().with_options(BESIDE))) == pipe.elements()


@FEW
@given(pipe=readings(), legs=LEGS)
def test_going_on_in_other_processes_is_as_if_nothing_had_happened(pipe: Pipeline, legs: list[Any]) -> None:
    assert pipe.comparable(read_in_legs(pipe, legs)) == pipe.elements()

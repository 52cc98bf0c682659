"""Rows of tables are the values that docs/formats.md says, whoever wrote the files and however they are read."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats import parquet_groups
from asyncdata.formats.arrow_rows import ArrowParser
from tests.laws.pipelines import FIRST, Pipeline
from tests.laws.refused_tables import refused_sources
from tests.laws.table_types import TABLE
from tests.laws.tables import TableFile, readings, table_files, table_sources
from tests.laws.test_placement import BESIDE, FEW, LEGS
from tests.laws.test_resume import Leg, legs, read_in_legs
from tests.running import WAYS, read_plain

pa = pytest.importorskip("pyarrow")

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


@settings(max_examples=settings().max_examples // 3)
@given(pipe=st.one_of(refused_sources(["parquet"]), table_sources(["parquet"])))
def test_no_column_is_looked_at_before_its_file_as_a_whole(pipe: Pipeline) -> None:
    check, look = parquet_groups.check_by_reading, parquet_groups.chunks_of
    checked: list[Any] = []
    looked: list[bool] = []

    def check_by_reading(metadata: Any, size: int, needed: Any) -> None:
        check(metadata, size, needed)
        checked.append((metadata, needed))

    def chunks_of(metadata: Any, group: int, places: Any) -> Any:
        known = [parquet_groups.places_of(one, needed) for one, needed in checked if one is metadata]
        looked.append({*places} <= {*chain(*known)})
        return look(metadata, group, places)

    with (
        mock.patch.object(parquet_groups, "check_by_reading", check_by_reading),
        mock.patch.object(parquet_groups, "chunks_of", chunks_of),
    ):
        read_plain(pipe.build())
    assert all(looked)


@given(files=table_files("arrow", (), "dictionaries"), size=st.sampled_from([37, 500]))
def test_each_dictionary_is_decoded_once_and_none_is_kept(files: list[TableFile], size: int) -> None:
    now, readers = pa.ipc.open_stream, list[Any]()

    def open_stream(*args: Any) -> Any:
        readers.append(now(*args))
        return readers[-1]

    for file in files:
        content, parser = file.path.read_bytes(), ArrowParser(file.path.name)
        with mock.patch.object(pa.ipc, "open_stream", open_stream):
            for begin in range(0, len(content), size):
                parser.feed(content[begin : begin + size])
                while len(parser.parse(9)):
                    pass
            parser.finish()
            assert len(parser.parse(9)) == 0
        assert bytes_held(parser) < size + 100
    decoded = sum(reader.stats.num_dictionary_batches for reader in readers)
    assert decoded == sum(dictionaries_in(file.path.read_bytes()) for file in files)


def dictionaries_in(content: bytes) -> int:
    """Return the number of dictionaries that pyarrow reads of a stream or file."""
    reader = (pa.ipc.open_file if content.startswith(b"ARROW1") else pa.ipc.open_stream)(content)
    reader.read_all()
    return reader.stats.num_dictionary_batches


def bytes_held(value: Any) -> int:
    """Return how many bytes an object holds, directly and in what it holds."""
    seen, found = {id(value)}, [value]
    for one in found:
        for part in gc.get_referents(one):
            if id(part) not in seen and not isinstance(part, (type, ModuleType, FunctionType)):
                seen.add(id(part))
                found.append(part)
    return sum(len(one) for one in found if isinstance(one, (bytes, bytearray)))


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

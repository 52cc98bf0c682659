"""The laws of tables fail if a fault that was once in the code is put back.

One does not show in random tables: the spec of nested lists (`tests/elements/test_spec.py`), which are arrays in rows
of tables now.
"""

# ruff: noqa: SLF001, PLR0124  faults are put into private methods

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.elements import columns
from asyncdata.elements.nullable_column import NullableColumn
from asyncdata.errors import DataLossError
from asyncdata.formats import arrow_columns, parquet_filters, parquet_groups
from asyncdata.formats.arrow_rows import ArrowParser
from asyncdata.sources import parquet, parquet_random_access
from tests.laws import test_tables as laws
from tests.laws.refused_tables import refused_sources
from tests.laws.tables import readings, table_files, table_sources
from tests.running import read_plain

pa = pytest.importorskip("pyarrow")

pytestmark = [pytest.mark.formats, pytest.mark.slow]

Fault = Callable[[pytest.MonkeyPatch], None]


def check_values() -> None:
    check(laws.test_elements_are_the_values_of_their_types, pipe=readings(), way=st.just(read_plain))


def check_filters() -> None:
    check(
        laws.test_filters_select_the_rows_that_they_select_of_the_whole_table,
        pipe=table_sources(["parquet"], ["filters"]),
    )


def check_refused() -> None:
    check(
        laws.test_what_cannot_be_read_is_an_error_in_its_place_and_all_else_is_given,
        pipe=readings(refused_sources()),
        way=st.just(read_plain),
    )


def check_looks() -> None:
    check(
        laws.test_no_column_is_looked_at_before_its_file_as_a_whole,
        pipe=st.one_of(refused_sources(["parquet"]), table_sources(["parquet"])),
    )


def check_dictionaries() -> None:
    check(
        laws.test_each_dictionary_is_decoded_once_and_none_is_kept,
        files=table_files("arrow", (), "dictionaries"),
        size=st.just(500),
    )


def check(law: Any, **strategies: st.SearchStrategy[Any]) -> None:
    """Try a law by as many examples as `-m laws` does."""
    law = given(**strategies)(law.hypothesis.inner_test)
    settings(max_examples=250, derandomize=True, phases=[Phase.generate], database=None, report_multiple_bugs=False)(
        law
    )()


def batch_columns_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """A batch out of one block of columns was the array of the column, of objects for lists."""
    patch.setattr(columns, "batch_of_leaf", lambda rows, where, copy=np.asarray: copy(np.asarray(rows)))


def let_missing_values_decide(patch: pytest.MonkeyPatch) -> None:
    """A nullable column was an array of objects in the row groups in which a value is missing."""
    patch.setattr(NullableColumn, "batch", NullableColumn.objects)


def wrap_old_times(patch: pytest.MonkeyPatch) -> None:
    """INT96 was read as nanoseconds in 64 bits."""
    patch.setattr(parquet_groups, "INT96_UNIT", "ns")


def cut_old_times(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parquet_groups, "inexact_rows", lambda coerced, nanoseconds: {})


def cut_times_of_day(patch: pytest.MonkeyPatch) -> None:
    now = arrow_columns.all_numbers

    def all_numbers(array: Any) -> Any:
        if array.type == pa.time64("ns"):
            array = array.cast(pa.time64("us"), safe=False)
        return now(array)

    patch.setattr(arrow_columns, "all_numbers", all_numbers)


def as_python(*kinds: str, which: Callable[[Any], bool] = lambda kind: True) -> Fault:
    """Return a fault: values of some types were those that pyarrow makes for Python, an error if Python has none."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        for kind in kinds:
            patch.setitem(arrow_columns.FORMS, kind, old_form(arrow_columns.FORMS[kind], which))

    return put_back


def old_form(now: Callable[[Any], Any], which: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def form(array: Any) -> Any:
        if not which(array.type):
            return now(array)
        try:
            return arrow_columns.objects(array.to_pylist())
        except OverflowError as error:
            raise ValueError("out of Python's range") from error

    return form


def compare_statistics_in_double(patch: pytest.MonkeyPatch) -> None:
    """The values of an `in` were compared with statistics in their own type."""

    def members(values: Sequence[Any], kind: Any) -> list[Any] | None:
        decided = 0 < len(values) <= 100 and all(one is not None and one == one for one in values)
        return [*values] if decided else None

    patch.setattr(parquet_filters, "members", members)


def forget_the_order_of_bytes(patch: pytest.MonkeyPatch) -> None:
    """Batches were read by themselves, with the schema alone."""
    now = ArrowParser._batch

    def batch(parser: Any, parts: list[bytes]) -> Any:
        if parser._dictionaries:
            return now(parser, parts)
        found = pa.ipc.read_record_batch(pa.py_buffer(b"".join(parts)), parser._reader.schema)
        table = pa.Table.from_batches([found])
        table = table if parser._columns_wanted is None else table.select(parser._columns_wanted)
        return arrow_columns.columns_of(table), table.num_rows

    patch.setattr(ArrowParser, "_batch", batch)


def refuse_messages_without_a_mark(bare: bool) -> Fault:
    """Return a fault: files of before Arrow 0.15 were called damaged, and those of polars if `bare`."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        now = ArrowParser._length_in

        def length_in(parser: Any, start: bytes, begin: int) -> int:
            length = now(parser, start, begin)
            if len(start) == 4 and (parser._bare is not None) == bare:
                raise DataLossError("a message of Arrow was expected")
            return length

        patch.setattr(ArrowParser, "_length_in", length_in)

    return put_back


def decode_dictionaries_by_a_cast(patch: pytest.MonkeyPatch) -> None:
    """pyarrow has no cast of dictionaries of views, structs and lists."""
    patch.setitem(
        arrow_columns.FORMS,
        "dictionary",
        lambda array: arrow_columns.column_of(array.cast(array.type.value_type)),
    )


def look_at_columns_at_once(patch: pytest.MonkeyPatch) -> None:
    """pyarrow's functions for single columns were called for metadata that its reader would have refused."""
    patch.setattr(parquet_groups, "check_by_reading", lambda metadata, size, needed: None)
    for module in (parquet, parquet_random_access):
        patch.setattr(module, "check_columns", lambda metadata, size, needed: None)


def take_row_groups_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """Nobody compared how many rows were read with how many there are."""
    patch.setattr(parquet_groups, "check_rows", lambda metadata, group, needed, found: None)


def decode_dictionaries_again(patch: pytest.MonkeyPatch) -> None:
    """Each batch was read with the schema and all dictionaries before it, which were kept."""
    take = ArrowParser._take

    def _take(parser: Any, kind: int, parts: list[bytes]) -> None:
        take(parser, kind, parts)
        if parser._known is None:
            vars(parser).setdefault("kept", []).extend(parts)

    def batch(parser: Any, parts: list[bytes]) -> Any:
        reader = pa.ipc.open_stream(pa.BufferReader(b"".join([*vars(parser)["kept"], *parts])))
        table = pa.Table.from_batches([reader.read_next_batch()])
        table = table if parser._columns_wanted is None else table.select(parser._columns_wanted)
        return arrow_columns.columns_of(table), table.num_rows

    patch.setattr(ArrowParser, "_take", _take)
    patch.setattr(ArrowParser, "_batch", batch)


def keep_the_last_of_one_name(patch: pytest.MonkeyPatch) -> None:
    """Of two fields, or columns, of one name the last was given."""
    patch.setattr(arrow_columns, "check_names", lambda problem, names: None)


def let_types_be_unknown(patch: pytest.MonkeyPatch) -> None:
    """A type that pyarrow does not have was a bare KeyError, which ends the pipeline."""
    now = ArrowParser._batch

    def batch(parser: Any, parts: list[bytes]) -> Any:
        try:
            return now(parser, parts)
        except DataLossError as error:
            if isinstance(error.__context__, KeyError):
                raise error.__context__ from None
            raise

    patch.setattr(ArrowParser, "_batch", batch)


def is_list_of_lists(kind: Any) -> bool:
    return "list" in str(kind.value_type)


FAULTS: dict[str, tuple[Fault, Callable[[], None]]] = {
    "batches of lists depend on blocks": (batch_columns_as_they_are, check_values),
    "missing values decide the type of a batch": (let_missing_values_decide, check_values),
    "old times that wrap": (wrap_old_times, check_values),
    "old times that are cut": (cut_old_times, check_values),
    "times of day that are cut": (cut_times_of_day, check_values),
    "times with a zone beyond Python's years": (
        as_python("timestamp", which=lambda kind: kind.tz is not None),
        check_values,
    ),
    "times that pandas makes": (as_python("timestamp", which=lambda kind: kind.unit == "ns"), check_values),
    "filters that statistics decide": (compare_statistics_in_double, check_filters),
    "files of big-endian machines": (forget_the_order_of_bytes, check_values),
    "files of before Arrow 0.15": (refuse_messages_without_a_mark(bare=False), check_values),
    "files of polars": (refuse_messages_without_a_mark(bare=True), check_values),
    "dictionaries of views, structs and lists": (decode_dictionaries_by_a_cast, check_values),
    "run-end encoded values": (as_python("run_end_encoded"), check_values),
    "views of lists": (as_python("list_view", "large_list_view"), check_values),
    "lists of lists": (as_python("list", "large_list", which=is_list_of_lists), check_values),
    "uuid": (as_python("extension", which=lambda kind: kind.extension_name == "arrow.uuid"), check_values),
    "sizes of columns of old writers": (lambda patch: patch.setattr(parquet_groups, "HEADER", 0), check_values),
    "single columns of metadata that may be wrong": (look_at_columns_at_once, check_looks),
    "row groups with fewer rows than they say": (take_row_groups_as_they_are, check_refused),
    "dictionaries that are decoded again": (decode_dictionaries_again, check_dictionaries),
    "columns and fields of one name": (keep_the_last_of_one_name, check_refused),
    "intervals of months": (let_types_be_unknown, check_refused),
    "integers beyond int64 in filters": (
        lambda patch: patch.setattr(parquet_filters, "with_large_numbers", lambda part: part),
        check_filters,
    ),
    "bool8": (lambda patch: patch.setattr(arrow_columns, "is_bool8", lambda kind: False), check_values),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_law_finds_a_fault_that_was_put_back(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_back, law = FAULTS[fault]
    put_back(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ad.PlanError)):
        law()

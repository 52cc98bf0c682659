"""Tables that are sent to a channel: a table is a list of columns, and no list of items."""

from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad

pytestmark = pytest.mark.formats

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

COLUMNS = {"x": [1, 2]}


@pytest.mark.parametrize(
    "table",
    [
        pandas.DataFrame(COLUMNS),
        polars.DataFrame(COLUMNS),
        pyarrow.table(COLUMNS),
        pyarrow.RecordBatch.from_pydict(COLUMNS),
    ],
    ids=["pandas", "polars", "pyarrow", "record batch"],
)
def test_a_table_is_not_taken_for_its_columns(table: Any) -> None:
    channel = ad.Channel()
    with pytest.raises(ad.PlanError, match="send its rows"):
        channel.send_nowait(table)
    assert channel.stats()["sent"] == 0


@pytest.mark.parametrize("series", [pandas.Series([1, 2]), polars.Series([1, 2]), [1, 2]], ids=["pandas", "polars", ""])
def test_a_column_is_a_list_of_items(series: Any) -> None:
    channel = ad.Channel()
    channel.send_nowait(series)
    channel.send_nowait(pandas.DataFrame(COLUMNS).to_dict("records"))
    channel.close()
    assert list(ad.Dataset.from_channel(channel)) == [1, 2, {"x": 1}, {"x": 2}]

"""CSV files beside TensorFlow's reader, where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asyncdata.experimental import CsvDataset, make_csv_dataset
from tests.reference import Failed
from tests.running import results

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

FAILED = "failed"
TYPES: list[Any] = [np.int32, np.int64, np.float32, np.float64, str]


def delivered(tf: Any, ds: Any) -> list[Any]:
    """All elements of TensorFlow's dataset, "failed" in the places of those that did."""
    found, elements = list[Any](), ds.as_numpy_iterator()
    while True:
        try:
            found.append(repr(next(elements)))
        except StopIteration:
            return found
        except tf.errors.InvalidArgumentError:
            found.append(FAILED)


text = st.lists(
    st.sampled_from(
        ["\n", "\n", "\r\n", "\r", ",", ",", ",", '"', '""', "1", "23", "-4", "1.5", "x", "NA", " ", "1e3"]
    ),
    max_size=40,
).map("".join)
columns = st.lists(st.tuples(st.sampled_from(TYPES), st.booleans()), min_size=1, max_size=3)
chosen = st.sampled_from([{}, {}, {"exclude_cols": [1]}, {"select_cols": [0, 2, 3]}, {"exclude_cols": [0, 3]}])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=text,
    columns=columns,
    chosen=chosen,
    header=st.booleans(),
    quotes=st.booleans(),
    na=st.sampled_from(["", "NA"]),
)
def test_records_are_tensorflows(
    tf: Any, tmp_path: Path, text: str, columns: Any, chosen: dict[str, Any], header: bool, quotes: bool, na: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    how = {"header": header, "use_quote_delim": quotes, "na_value": na, **chosen}
    if "select_cols" in how:
        how["select_cols"] = how["select_cols"][: len(columns)]
    value = {str: "d", **dict.fromkeys(TYPES[:4], 7)}
    dtypes = {str: tf.string, **{one: tf.dtypes.as_dtype(one) for one in TYPES[:4]}}
    ours = [np.array([value[one]], None if one is str else one) if optional else one for one, optional in columns]
    theirs = [tf.constant([value[one]], dtypes[one]) if optional else dtypes[one] for one, optional in columns]
    expected = delivered(tf, tf.data.experimental.CsvDataset(str(path), theirs, **how))
    found = [FAILED if isinstance(x, Failed) else repr(x) for x in results(CsvDataset(path, ours, **how))]
    assert found == expected


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_epochs": 2},
        {"label_name": "b"},
        {"select_columns": ["d", "a"]},
        {"select_columns": [1, 2], "label_name": "c"},
        {"num_parallel_reads": 2},
        {"na_value": "NA"},
        {"column_names": ["v", "w", "x", "y", "z"], "label_name": "z"},
        {"num_rows_for_inference": 2, "ignore_errors": True},
    ],
    ids=str,
)
def test_batches_by_column_are_tensorflows(tf: Any, tmp_path: Path, how: dict[str, Any]) -> None:
    rows = ["1,2,1.5,x,", "99999999999,3,1e300,NA,", "4,,2,z,", "5,NA,7,z,8", '-6,2.5,-.5,"q\n,",9']
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("a,b,c,d,e\n" + "\n".join(rows[number:]))
    how = {"shuffle": False, "num_epochs": 1, **how}

    def told(ds: Any) -> str:
        batches = [batch if isinstance(batch, tuple) else (batch,) for batch in ds.as_numpy_iterator()]
        return repr([[dict(part) if isinstance(part, dict) else part for part in batch] for batch in batches])

    pattern = str(tmp_path / "*.csv")
    assert told(make_csv_dataset(pattern, 3, **how)) == told(tf.data.experimental.make_csv_dataset(pattern, 3, **how))

"""CSV beside TensorFlow's own, where it is installed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from tests.reference import Failed
from tests.running import results

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

FIELDS = ["1", "-7", " 2 ", "x", "", "NA", "1.5", "99999999999", '"3"', '"a\nb"', '"c""d,"', '""', "1_0", "nan"]


@pytest.fixture(scope="module")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", exc_type=ImportError)


def theirs(tf: Any, *arguments: Any, **how: Any) -> list[Any]:
    found: list[Any] = []
    elements = tf.data.experimental.CsvDataset(*arguments, **how).as_numpy_iterator()
    while True:
        try:
            found.append(next(elements))
        except StopIteration:
            return found
        except tf.errors.InvalidArgumentError:
            found.append(Failed("DataLossError"))


@settings(max_examples=150)
@given(
    records=st.lists(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=4), max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    kinds=st.lists(st.sampled_from(["int32", "int64", "float32", "string", "default"]), min_size=1, max_size=3),
    na_value=st.sampled_from(["", "NA"]),
    chosen=st.sampled_from([{}, {"select_cols": 1}, {"exclude_cols": [0]}]),
)
def test_records_and_errors_are_those_of_tensorflow(
    tf: Any, tmp_path_factory: Any, records: Any, end: str, kinds: list[str], na_value: str, chosen: dict[str, Any]
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "some.csv")
    Path(path).write_text(end.join(map(",".join, records)), newline="")
    if "select_cols" in chosen:
        chosen = {"select_cols": [2 * place for place in range(len(kinds))]}
    ours = [[7] if kind == "default" else kind for kind in kinds]
    defaults = [kind if isinstance(kind, list) else getattr(tf, kind) for kind in ours]
    expected = theirs(tf, path, defaults, na_value=na_value, **chosen)
    assert repr(results(ad.experimental.CsvDataset(path, ours, na_value=na_value, **chosen))) == repr(expected)

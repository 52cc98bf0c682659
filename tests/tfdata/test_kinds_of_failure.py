"""What fails with one of tf.errors fails here with Python's own error of that kind, or with one that says more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from tests.tfdata import case as cases

KINDS = [
    ("D.range(3).batch(0)", "InvalidArgumentError", ad.PlanError),
    ("list(rows([1], [2, 3]).batch(2))", "InvalidArgumentError", ad.StructureError),
    ("list(broken())", "InvalidArgumentError", ad.StructureError),
    ("list(D.range(3).map(fail))", "InvalidArgumentError", ValueError),
    ("D.range(2).get_single_element()", "InvalidArgumentError", ad.StructureError),
    ("D.range(0).get_single_element()", "InvalidArgumentError", ad.StructureError),
    ("list(D.choose_from_datasets([D.range(2)], D.range(1, 3)))", "InvalidArgumentError", IndexError),
    ("at(D.range(3), 3)", "OutOfRangeError", IndexError),
    ("at(D.range(3).filter(lambda x: x > 0), 0)", "UnimplementedError", ad.PlanError),
    ("list(TextLineDataset(missing))", "NotFoundError", FileNotFoundError),
    ("list(TFRecordDataset(missing))", "NotFoundError", FileNotFoundError),
    ("list(TFRecordDataset(damaged))", "DataLossError", ad.DataLossError),
    ("list(FixedLengthRecordDataset(damaged, 7))", "InvalidArgumentError", ad.DataLossError),
    (
        "list(D.range(3).filter(lambda x: x >= 0).apply(assert_cardinality(4)))",
        "FailedPreconditionError",
        ad.StageError,
    ),
    ("D.load(missing)", "NotFoundError", FileNotFoundError),
    ("len(D.counter())", "TypeError", TypeError),
    ("len(broken())", "TypeError", TypeError),
]

BUILTIN = {"TypeError": TypeError}


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"no record" * 3)
    return {"missing": str(tmp_path / "missing"), "damaged": str(damaged)}


@pytest.mark.parametrize(("code", "theirs", "ours"), KINDS)
def test_kind_here(paths: dict[str, str], code: str, theirs: str, ours: type[Exception]) -> None:
    names = {**vars(ad), **cases.ours(), **paths, "at": lambda ds, index: ds[index]}
    with pytest.raises(ours) as caught:
        eval(code, names)
    assert type(caught.value) is ours


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("code", "theirs", "ours"), KINDS)
def test_kind_in_tensorflow(tf: Any, paths: dict[str, str], code: str, theirs: str, ours: type[Exception]) -> None:
    names = {**vars(tf.data), **cases.theirs(tf), **paths, "at": tf.data.experimental.at}
    with pytest.raises(BUILTIN.get(theirs) or getattr(tf.errors, theirs)):
        eval(code, names)

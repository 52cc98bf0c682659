"""Lines and records of files beside TensorFlow's own, where it is installed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", exc_type=ImportError)


@settings(max_examples=100)
@given(
    data=st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bc", b"\x00\xff"]), max_size=20).map(b"".join),
    size=st.sampled_from([None, 0, 1, 3]),
)
def test_lines_are_split_as_tensorflow_splits_them(tf: Any, tmp_path_factory: Any, data: bytes, size: Any) -> None:
    path = str(tmp_path_factory.getbasetemp() / "lines.txt")
    Path(path).write_bytes(data)
    theirs = list(tf.data.TextLineDataset(path, buffer_size=size).as_numpy_iterator())
    assert list(ad.TextLineDataset(path, buffer_size=size)) == theirs


def test_a_backslash_in_a_pattern_is_tensorflows(tf: Any, tmp_path: Path) -> None:
    for name in ("a[1].txt", "a1.txt", "a*", "a?"):
        (tmp_path / name).write_text("")
    for pattern in (r"a\[1\].txt", r"a[1].txt", r"a\*", r"a\?", r"*\]*", r"a\[*", r"a\**"):
        theirs = tf.data.Dataset.list_files(f"{tmp_path}/{pattern}", shuffle=False).as_numpy_iterator()
        assert list(ad.Dataset.list_files(f"{tmp_path}/{pattern}", shuffle=False)) == [name.decode() for name in theirs]


def test_sets_of_characters_in_a_pattern_are_tensorflows(tf: Any, tmp_path: Path) -> None:
    for name in ("a1", "b1", "^1", "!1", "d1", "]1"):
        (tmp_path / name).write_text("")
    for pattern in ("[^a]1", "[!a]1", "[^a-c]1", "[^^]1", "[a^]1", "[^!a]1", "[a!]1", "[^]]1"):
        theirs = tf.data.Dataset.list_files(f"{tmp_path}/{pattern}", shuffle=False).as_numpy_iterator()
        assert list(ad.Dataset.list_files(f"{tmp_path}/{pattern}", shuffle=False)) == [name.decode() for name in theirs]


def test_files_of_several_patterns_are_in_tensorflows_order(tf: Any, tmp_path: Path) -> None:
    for name in ("b1", "a2", "a1", "B", "a-", "é"):
        (tmp_path / name).write_text("")
    for patterns in (["b*", "a*"], ["*", "a*", "a1"], ["a1", "nothing*", "a1"]):
        names = [f"{tmp_path}/{pattern}" for pattern in patterns]
        theirs = tf.data.Dataset.list_files(names, shuffle=False).as_numpy_iterator()
        assert list(ad.Dataset.list_files(names, shuffle=False)) == [name.decode() for name in theirs]


@settings(max_examples=50)
@given(count=st.integers(0, 9), record=st.integers(1, 4), header=st.integers(0, 3), footer=st.integers(0, 3))
def test_records_are_those_that_tensorflow_reads(
    tf: Any, tmp_path_factory: Any, count: int, record: int, header: int, footer: int
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "records.bin")
    Path(path).write_bytes(bytes(range(header + footer + count * record)))
    arguments = (path, record, header, footer)
    theirs = list(tf.data.FixedLengthRecordDataset(*arguments).as_numpy_iterator())
    assert list(ad.FixedLengthRecordDataset(*arguments)) == theirs

"""Files of JSON Lines as users read them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.json_lines import JsonLinesParser
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.running import WAYS, results

ROWS = [{"number": number, "name": f"#{number}", "parts": [number, 0.5]} for number in range(200)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path / "rows.jsonl"


@pytest.mark.parametrize("way", WAYS)
def test_rows(path: Path, way: Any) -> None:
    assert way(ad.JsonLinesDataset(path)) == ROWS


def test_batches_and_what_is_known(path: Path) -> None:
    ds = ad.JsonLinesDataset([path])
    assert ds.element_spec["name"] == ad.TensorSpec((), object)
    first = next(iter(ds.batch(3)))
    assert first["parts"].tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert first["number"].dtype == np.int64


def test_goes_on_at_any_row(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)[:40]
    lines[5], lines[9] = b"\n", b"{\n"
    path.write_bytes(b"".join(lines))
    check_resumes(lambda: ad.JsonLinesDataset(path))
    check_resumes(lambda: ad.JsonLinesDataset(path, buffer_size=13))
    check_resumes(lambda: ad.JsonLinesDataset([path, path], num_parallel_reads=2).shuffle(7, seed=1), places=10)
    path.write_bytes(gzip.compress(path.read_bytes()))
    check_resumes(lambda: ad.JsonLinesDataset(path, "GZIP"), places=10)


def test_only_a_line_that_fails_is_parsed_as_a_file_when_read_by_number(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser and an error for each row took four fifths of the time of a shuffle."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[5], lines[9] = b'{"number": NaN}\n', b"{\n"
    path.write_bytes(b"".join(lines))
    made: list[int] = []

    class Parser(JsonLinesParser):
        def jump(self, offset: int) -> None:
            made.append(offset)
            super().jump(offset)

    ds = ad.JsonLinesDataset(path, index=True)
    assert len(ds) == len(ROWS)
    monkeypatch.setattr("asyncdata.sources.json_lines.JsonLinesParser", Parser)
    found = results(ds.shuffle(seed=1))
    assert made
    assert {*made} <= {sum(map(len, lines[:5])), sum(map(len, lines[:9]))}
    assert found.count(Failed("DataLossError")) == 1
    numbers = {row["number"]: row for row in found if row != Failed("DataLossError")}
    assert len(numbers) == len(ROWS) - 1
    assert [numbers.get(row["number"], row) for row in ROWS] == ROWS


def test_a_corrupt_line_is_one_error_that_names_file_and_byte(path: Path) -> None:
    path.write_bytes(b'{"a": 1}\n{"a": \n{"a": 3}\n')
    assert results(ad.JsonLinesDataset(path)) == [{"a": 1}, Failed("DataLossError"), {"a": 3}]
    with pytest.raises(ad.DataLossError, match=r"rows\.jsonl: the line at byte 9 is not valid JSON: ") as caught:
        list(ad.JsonLinesDataset(path))
    assert caught.value.__notes__ == [f"in JsonLinesDataset({path}), element 1"]


def test_the_next_file_follows_one_that_is_missing(path: Path) -> None:
    assert results(ad.JsonLinesDataset([path, path.with_name("none"), path])) == [
        *ROWS,
        Failed("FileNotFoundError"),
        *ROWS,
    ]

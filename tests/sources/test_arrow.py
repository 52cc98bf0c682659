"""Arrow's IPC files and streams as users read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.column_store import ColumnStore
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results

pytestmark = pytest.mark.formats

ROWS = 20


def written(path: Path, kind: str = "file", kinds: bool = False, **options: Any) -> Path:
    """Write a file of three record batches, with a column of a dictionary if asked for."""
    pa = pytest.importorskip("pyarrow")
    columns = {"id": np.arange(ROWS), "name": [f"#{number}" for number in range(ROWS)]}
    if kinds:
        columns["kind"] = pa.array(["u", "v"] * (ROWS // 2)).dictionary_encode()
    table = pa.table(columns)
    new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=7)
    return path


def expected(number: int, kinds: bool = False) -> dict[str, Any]:
    row = {"id": number, "name": f"#{number}"}
    return row | {"kind": "uv"[number % 2]} if kinds else row


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("way", WAYS)
def test_rows(tmp_path: Path, way: Any, kind: str) -> None:
    path = written(tmp_path / "a.arrow", kind)
    assert way(ad.ArrowDataset([path, path])) == [expected(number) for number in range(ROWS)] * 2


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("size", [None, 1, 100])
def test_goes_on_at_any_row(tmp_path: Path, kind: str, kinds: bool, size: int | None) -> None:
    path = written(tmp_path / "a.arrow", kind, kinds)
    assert list(ad.ArrowDataset(path, buffer_size=size)) == [expected(number, kinds) for number in range(ROWS)]
    check_resumes(lambda: ad.ArrowDataset(path, buffer_size=size))
    check_resumes(lambda: ad.ArrowDataset([path, path]).shuffle(9, seed=1).batch(4), places=6)


def test_batches_are_made_of_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow")
    with mock.patch.object(ColumnStore, "elements", side_effect=AssertionError):
        batch = next(iter(ad.ArrowDataset(path, ["id"]).batch(10)))
    assert batch["id"].tolist() == [*range(10)]


def test_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow")
    assert list(ad.ArrowDataset(path, ["name"]))[3] == {"name": "#3"}
    assert ad.ArrowDataset(path, ["name"]).fingerprint() != ad.ArrowDataset(path).fingerprint()
    with pytest.raises(ad.PlanError, match="there is no column 'age', the columns are"):
        list(ad.ArrowDataset(path, ["age"]))
    with pytest.raises(ad.PlanError, match="must be a list of names"):
        ad.ArrowDataset(path, "id")  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers(tmp_path: Path, codec: str) -> None:
    path = written(tmp_path / "a.arrow", compression=codec)
    assert list(ad.ArrowDataset(path)) == [expected(number) for number in range(ROWS)]


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("kinds", [False, True])
def test_cut_short_anywhere(tmp_path: Path, kind: str, kinds: bool) -> None:
    path, other = written(tmp_path / "a.arrow", kind, kinds), tmp_path / "b.arrow"
    content = path.read_bytes()
    for end in range(0, len(content), 1 if kind == "stream" and not kinds else 37):
        other.write_bytes(content[:end])
        *rows, error = results(ad.ArrowDataset(other))
        assert error == Failed("DataLossError")
        assert rows == [expected(number, kinds) for number in range(len(rows))]
        assert len(rows) in (0, 7, 14, 20)


def test_any_byte_changed_is_an_error_or_another_value(tmp_path: Path) -> None:
    from asyncdata.formats.arrow_rows import ArrowParser

    content = written(tmp_path / "a.arrow", "stream", kinds=True).read_bytes()
    failed = 0
    for place in range(len(content)):
        parser = ArrowParser("f")
        parser.feed(content[:place] + bytes([content[place] ^ 0x81]) + content[place + 1 :])
        items: list[Any] = []
        while len(part := parser.parse(9)):
            items += part
        parser.finish()
        items += parser.parse(9)
        failures = [item for item in items if isinstance(item, Exception)]
        assert len(items) - len(failures) <= 20
        assert all(isinstance(failure, ad.DataLossError) for failure in failures), failures
        failed += bool(failures)
    assert 0 < failed < len(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut short, or was not closed"),
        (b"something else", "at byte 0 a message of Arrow was expected"),
        (b"PAR1" * 9, "at byte 0 a message of Arrow was expected"),
        (b"\xff\xff\xff\xff\x10\0\0\0" + b"\x01" * 16, "the message at byte 0 is damaged"),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, message: str) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.arrow").write_bytes(content)
    with pytest.raises(ad.DataLossError, match=rf"a\.arrow: .*{message}"):
        list(ad.ArrowDataset(tmp_path / "a.arrow"))
    path = written(tmp_path / "b.arrow")
    assert results(ad.ArrowDataset([tmp_path / "a.arrow", path]))[1:] == [expected(number) for number in range(ROWS)]


def test_more_behind_the_end(tmp_path: Path) -> None:
    for kind, message in (
        ("stream", "there is more data after its end marker"),
        ("file", "b'ARROW1' was expected at its end"),
    ):
        path = written(tmp_path / "a.arrow", kind)
        path.write_bytes(path.read_bytes() + b"more")
        with pytest.raises(ad.DataLossError, match=message):
            list(ad.ArrowDataset(path))


def test_a_batch_beyond_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow")
    with pytest.raises(ad.DataLossError, match="max_record_bytes"):
        list(ad.ArrowDataset(path, max_record_bytes=100))


def test_a_web_server(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", kinds=True)
    with web() as server:
        url = server.put("a.arrow", path.read_bytes())
        assert list(ad.ArrowDataset(url)) == [expected(number, True) for number in range(ROWS)]
        check_resumes(lambda: ad.ArrowDataset(url), places=5)


def test_feather_files_that_pyarrow_writes(tmp_path: Path) -> None:
    feather: Callable[..., None] = pytest.importorskip("pyarrow.feather").write_feather
    pa = pytest.importorskip("pyarrow")
    feather(pa.table({"a": np.arange(5)}), str(tmp_path / "a.feather"))
    assert [row["a"] for row in ad.ArrowDataset(tmp_path / "a.feather")] == [*range(5)]

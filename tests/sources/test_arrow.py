"""Arrow's IPC files and streams as users read them."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable, Iterable
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
    for end in range(0, len(content), 37):  # tests/formats/test_every_format.py cuts at every byte
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


def written_batches(path: Path, batches: Iterable[Any], kind: str = "stream", **options: Any) -> Path:
    """Write record batches."""
    pa = pytest.importorskip("pyarrow")
    found = [*batches]
    new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with new(str(path), found[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in found:
            writer.write_batch(batch)
    return path


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("size", [None, 1])
def test_files_of_before_arrow_0_15(tmp_path: Path, kind: str, kinds: bool, size: int | None) -> None:
    path = written(tmp_path / "a.arrow", kind, kinds, use_legacy_format=True, metadata_version=v4())
    assert list(ad.ArrowDataset(path, buffer_size=size)) == [expected(number, kinds) for number in range(ROWS)]
    check_resumes(lambda: ad.ArrowDataset(path, buffer_size=size))
    content = path.read_bytes()
    for end in range(0, len(content), 41):
        path.write_bytes(content[:end])
        assert results(ad.ArrowDataset(path))[-1] == Failed("DataLossError")


def v4() -> Any:
    return pytest.importorskip("pyarrow").ipc.MetadataVersion.V4


def big_endian(content: bytes) -> bytes:
    """Have a stream say that its numbers are big-endian, by a field of its schema that is left out otherwise."""
    data = bytearray(content)

    def table(at: int) -> int:
        return at + struct.unpack_from("<I", data, at)[0]

    def fields(at: int) -> int:
        return at - struct.unpack_from("<i", data, at)[0] + 4

    message = table(8)
    schema = table(message + struct.unpack_from("<H", data, fields(message) + 4)[0])  # its third field
    assert struct.unpack_from("<H", data, fields(schema)) == (0,)
    one = next(at for at in range(0, 1 << 16, 2) if data[schema + at : schema + at + 2] == b"\1\0")
    struct.pack_into("<H", data, fields(schema), one)
    return bytes(data)


def test_files_of_big_endian_machines(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    values = np.array([2**31 - 1, 1, -129, 77], "<i4")
    path = written_batches(
        tmp_path / "a.arrow", [pa.RecordBatch.from_pydict({"a": values}), pa.RecordBatch.from_pydict({"a": values})]
    )
    content = path.read_bytes()
    assert content.count(values.tobytes()) == 2
    path.write_bytes(big_endian(content.replace(values.tobytes(), values.astype(">i4").tobytes())))
    assert pa.ipc.open_stream(path).read_all()["a"].to_pylist() == [*values, *values]
    assert [row["a"] for row in ad.ArrowDataset(path)] == [*values, *values]
    check_resumes(lambda: ad.ArrowDataset(path))


@pytest.mark.parametrize("codec", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("size", [None, 1])
def test_files_of_polars(tmp_path: Path, codec: Any, size: int | None) -> None:
    """Behind the first bytes of a file they have the schema alone, and not the message that it belongs in."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "id": range(ROWS),
            "name": [f"#{number}" for number in range(ROWS)],
        }
    )
    frame.write_ipc(path := tmp_path / "a.arrow", compression=codec, record_batch_size=7)
    assert list(ad.ArrowDataset(path, ["id"], buffer_size=size)) == [{"id": number} for number in range(ROWS)]
    check_resumes(lambda: ad.ArrowDataset(path, buffer_size=size))
    content = path.read_bytes()
    for end in range(0, len(content), 97):
        path.write_bytes(content[:end])
        *rows, error = results(ad.ArrowDataset(path))
        assert error == Failed("DataLossError")
        assert rows == [expected(number) for number in range(len(rows))]


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_dictionaries_behind_the_batches_that_need_them(tmp_path: Path, kind: str) -> None:
    """A footer lists them: polars writes such files."""
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow", "16", reason="before it there are no views, as which polars writes texts")
    names = ["u", "v"]
    dtype = polars.Enum(names) if kind == "Enum" else polars.Categorical
    series = polars.Series(names * (ROWS // 2), dtype=dtype)
    frame = polars.DataFrame({"id": range(ROWS), "name": [f"#{number}" for number in range(ROWS)], "kind": series})
    frame.write_ipc(path := tmp_path / "a.arrow", record_batch_size=7)
    rows = [expected(number, True) for number in range(ROWS)]
    assert list(ad.ArrowDataset([path, path])) == rows * 2
    check_resumes(lambda: ad.ArrowDataset(path))
    with web() as server:
        assert list(ad.ArrowDataset(server.put("a.arrow", path.read_bytes()))) == rows
    content = path.read_bytes()
    (zipped := tmp_path / "a.arrow.gz").write_bytes(gzip.compress(content))
    with pytest.raises(ad.DataLossError, match=r"a\.arrow\.gz: its dictionaries come behind its record batches"):
        list(ad.ArrowDataset(zipped))
    with pytest.raises(ad.DataLossError, match="max_record_bytes"):
        list(ad.ArrowDataset(path, max_record_bytes=70))
    for end in range(0, len(content), 197):
        path.write_bytes(content[:end])
        assert results(ad.ArrowDataset(path)) == [Failed("DataLossError")]
    path.write_bytes(content[:-10] + b"\xff\xff\xff\x7fARROW1")
    with pytest.raises(ad.DataLossError, match=r"a\.arrow: its footer cannot be read: a footer and b'ARROW1' were"):
        list(ad.ArrowDataset(path))


def test_dates_with_a_time_of_day(tmp_path: Path) -> None:
    """Arrow forbids them in date64, and its JavaScript library writes them."""
    pa = pytest.importorskip("pyarrow")
    times = np.array(["2024-02-29T12:34:56.789", "1969-12-31T23:59:59.999", "2024-02-29"], "M8[ms]")
    column = pa.Array.from_buffers(pa.date64(), 3, [None, pa.py_buffer(times.tobytes())])
    texts = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    path = written_batches(tmp_path / "a.arrow", [pa.RecordBatch.from_pydict({"at": column})])
    found = [row["at"] for row in ad.ArrowDataset(path)]
    assert [(one.dtype, one) for one in found] == [(times.dtype, one) for one in times]
    assert next(iter(ad.ArrowDataset(path).batch(3)))["at"].tolist() == times.tolist()
    path = written_batches(tmp_path / "b.arrow", [pa.RecordBatch.from_pydict({"at": column[:1], "text": texts})])
    assert results(ad.ArrowDataset(path)) == [Failed("DataLossError")]  # other values are checked


@pytest.mark.parametrize("deltas", [False, True])
def test_dictionaries_that_are_replaced_or_extended(tmp_path: Path, deltas: bool) -> None:
    pa = pytest.importorskip("pyarrow")

    def batch(number: int) -> Any:
        texts = [f"{place}-{0 if place < number and deltas else number}" for place in range(number + 1)]
        return pa.RecordBatch.from_pydict(
            {"a": pa.DictionaryArray.from_arrays(pa.array([number, 0], pa.int32()), texts)}
        )

    batches = [batch(number) for number in range(9)]
    path = written_batches(tmp_path / "a.arrow", batches, emit_dictionary_deltas=deltas)
    rows = [{"a": value} for one in batches for value in one["a"].to_pylist()]
    assert list(ad.ArrowDataset(path)) == rows
    check_resumes(lambda: ad.ArrowDataset(path))


def test_a_dictionary_that_was_replaced_is_not_kept(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    texts = [f"{number:0>1000}" for number in range(100)]
    batches = (
        pa.RecordBatch.from_pydict(
            {"a": pa.DictionaryArray.from_arrays(pa.array([number % 100]), texts[number:] + texts[:number])}
        )
        for number in range(100)
    )
    path = written_batches(tmp_path / "a.arrow", batches)
    assert path.stat().st_size > 10**7
    with ad.ArrowDataset(path, buffer_size=1 << 16).iterate() as rows:
        first = next(rows)
        tracemalloc.start()
        count = sum(1 for _ in rows)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (first["a"], count) == (texts[0], 99)
    assert most < 3 * 10**6


@pytest.mark.parametrize("kind", ["dictionary", "view", "struct", "list"])
def test_dictionaries_of_every_kind_of_values(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    values = {
        "dictionary": pa.array([["x"], ["y", "x"], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "view": pa.array(["x", "y", None], getattr(pa, "string_view", pa.large_string)()),  # not in pyarrow 15
        "struct": pa.array([{"b": 1}, None, {"b": 3}]),
        "list": pa.array([["x"], ["y", "z"], []]),
    }[kind]
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1, 1]), values)
    path = written_batches(tmp_path / "a.arrow", [pa.RecordBatch.from_pydict({"a": column})])
    found = [row["a"] for row in ad.ArrowDataset(path)]
    assert [one.tolist() if isinstance(one, np.ndarray) else one for one in found] == column.to_pylist()


def test_what_pyarrow_does_not_support_is_said(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = written_batches(tmp_path / "a.arrow", [pa.RecordBatch.from_pydict({"a": [1], "b": [2]})])
    assert len([*ad.ArrowDataset(path)]) == 1
    message = r"a\.arrow: pyarrow does not support the type of a column \(number 21"
    with mock.patch("asyncdata.formats.arrow_rows.columns_of", side_effect=KeyError(21)):  # an interval of months
        with_error = results(ad.ArrowDataset(path))
        with pytest.raises(ad.DataLossError, match=message):
            list(ad.ArrowDataset(path))
    assert with_error == [Failed("DataLossError")]


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_two_columns_of_one_name(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["q", "q", "r"])
    path = written_batches(tmp_path / "a.arrow", [batch, batch], kind)
    for columns in (None, ["q", "r"]):
        assert results(ad.ArrowDataset(path, columns)) == [Failed("DataLossError")]
        with pytest.raises(ad.DataLossError, match=r"a\.arrow: it has two columns 'q'; give others as columns="):
            list(ad.ArrowDataset(path, columns))
    assert list(ad.ArrowDataset(path, ["r"])) == [{"r": 3}, {"r": 3}]

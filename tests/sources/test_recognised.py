"""Files whose compression nobody tells, as each reader reads them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.cli.recognised import recognise
from asyncdata.formats.compression import zstd_module
from asyncdata.formats.tfrecord import frame
from asyncdata.testing import check_resumes
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import WAYS, results

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda data: zstd_module().compress(data),
}
READ: dict[str, tuple[Any, bytes]] = {
    "lines": (ad.TextLineDataset, b"one\ntwo\r\n" * 40),
    "json": (ad.JsonLinesDataset, b'{"a": 1}\n[2]\n' * 40),
    "csv": (lambda path, **more: ad.experimental.CsvDataset(path, [np.int32, "none"], **more), b"1,a\n2,\n" * 40),
    "records": (ad.TFRecordDataset, b"".join([frame(b"%d" % number * 5) for number in range(80)])),
}
packed = pytest.mark.parametrize(
    "pack", [*first_by_default(["gz", "bz2"]), pytest.param("zst", marks=pytest.mark.formats)]
)


@packed
@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("way", WAYS[:2])
def test_the_same_as_without_compression(kind: str, pack: str, way: Any, tmp_path: Path) -> None:
    read, content = READ[kind]
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(PACK[pack](content))
    whole = way(read(tmp_path / "plain"))
    assert len(whole) == 80
    for size in (1, 5, 11, 12, 13, None):
        assert way(read(tmp_path / "packed", buffer_size=size)) == whole
    check_resumes(lambda: read([tmp_path / "packed", tmp_path / "plain"], buffer_size=7), places=9)


@packed
def test_truncated_at_every_byte(pack: str, tmp_path: Path) -> None:
    content = PACK[pack](b"".join(b"%d\n" % (number * 7919) for number in range(50)))
    path = tmp_path / "file"
    for end in range(1, len(content)):
        path.write_bytes(content[:end])
        *found, last = results(ad.TextLineDataset(path))
        if end >= 10:
            assert last == Failed("DataLossError")
            assert found == [b"%d" % (number * 7919) for number in range(len(found))]


def test_none_is_recognised_where_somebody_says_so(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(b"one\ntwo\n", mtime=0))
    assert results(ad.TextLineDataset(path, "")) == path.read_bytes().replace(b"\r", b"").split(b"\n")
    assert results(ad.TFRecordDataset(path, index=True)) == [Failed("DataLossError")]
    assert results(ad.FixedLengthRecordDataset(path, path.stat().st_size)) == [path.read_bytes()]


def test_a_record_whose_length_looks_like_gzip(tmp_path: Path) -> None:
    path = tmp_path / "file"
    record = bytes(0x088B1F)
    path.write_bytes(frame(record))
    assert path.read_bytes().startswith(b"\x1f\x8b\x08")
    assert results(ad.TFRecordDataset(path)) == [record]


@pytest.mark.parametrize("missing", [False, True])
def test_a_file_that_is_shorter_than_what_is_looked_at(missing: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if missing:
        assert results(ad.TextLineDataset([path])) == [Failed("FileNotFoundError")]
        return
    for content in (b"", b"a", b"\x1f\x8b\x08"):
        path.write_bytes(content)
        assert len(results(ad.TextLineDataset([path, path]))) == 2 * (len(content) > 0)


@pytest.mark.formats
def test_the_program_zstd(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" * 100_000)
    try:
        subprocess.run(["zstd", "-q", str(path)], check=True)
    except FileNotFoundError:
        pytest.skip("the program zstd is not installed")
    assert list(ad.TextLineDataset(f"{path}.zst")) == [b"one"] * 100_000


NOT_READ = {
    "xz": lzma.compress(b"one\ntwo\n"),
    "lz4": bytes.fromhex("04224d186440a70800008066f64d650a74776f0a00000000"),
    "snappy": bytes.fromhex("ff060000734e61507059010c0000b0f4a5f46f6e650a74776f0a"),
    "zip": b"PK\x03\x04" + bytes(100),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(100),
}


@pytest.mark.parametrize("kind", NOT_READ)
def test_other_compressions_are_an_error_and_not_taken_for_content(kind: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"three\n")
    path = tmp_path / "lines"
    path.write_bytes(NOT_READ[kind])
    found = results(ad.TextLineDataset([path, tmp_path / "plain"]))
    assert found == [Failed("DataLossError"), b"three"]
    with pytest.raises(
        ad.DataLossError, match=rf"lines: it is compressed \({kind}\), which is not supported: decompress"
    ):
        next(iter(ad.TextLineDataset(path)))
    assert b"".join(results(ad.TextLineDataset(path, ""))).startswith(NOT_READ[kind][:3])
    with pytest.raises(ad.DataLossError) as caught:
        ad.JsonLinesDataset(path, index=True)[0]
    assert f"the file is compressed ({kind})" in str(caught.value.__notes__)
    with pytest.raises(ad.PlanError, match=rf"compressed \({kind}\), which is not supported"):
        recognise(str(path))


@pytest.mark.formats
@pytest.mark.parametrize(("log", "most"), [(27, 8), (28, 1 << 28), (31, 1 << 31)])
def test_a_window_of_zstd_may_be_as_large_as_a_record(log: int, most: int, tmp_path: Path) -> None:
    """`zstd --long=31` writes such files. Memory is taken only for what was decompressed."""
    zstd = zstd_module()
    names = zstd.CompressionParameter
    packed = zstd.ZstdCompressor(options={names.window_log: log, names.content_size_flag: 0})
    path = tmp_path / "lines.zst"
    path.write_bytes(packed.compress(b"one\n" * 50_000) + packed.flush())
    assert len(list(ad.TextLineDataset(path, max_record_bytes=most))) == 50_000
    if log == 27:
        return
    (tmp_path / "plain").write_bytes(b"two\n")
    *found, last = ad.TextLineDataset([path, tmp_path / "plain"], max_record_bytes=most - 1).ignore_errors()
    assert (found, last) == ([], b"two")
    with pytest.raises(
        ad.DataLossError, match=f"a window of more than {most // 2} bytes.*give a max_record_bytes"
    ) as caught:
        next(iter(ad.TextLineDataset(path, "ZSTD", max_record_bytes=most - 1)))
    assert "corrupt" not in str(caught.value)
    assert len(list(ad.FixedLengthRecordDataset(path, 4, compression_type="ZSTD"))) == 50_000

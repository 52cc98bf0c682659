"""Files whose compression nobody tells, as each reader reads them."""

from __future__ import annotations

import bz2
import gzip
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.compression import zstd_module
from asyncdata.formats.tfrecord import frame
from asyncdata.testing import check_resumes
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
packed = pytest.mark.parametrize("pack", ["gz", "bz2", pytest.param("zst", marks=pytest.mark.formats)])


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

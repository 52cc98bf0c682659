"""JSON Lines and tar archives with an index: any element by its number, and the same ones as in order."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.formats.json_lines import line_begins
from asyncdata.formats.offset_index import Marks, OffsetIndex
from asyncdata.testing import check_resumes
from tests.formats.test_webdataset import archive
from tests.reference import Failed
from tests.running import results

LINES = b'\xef\xbb\xbf{"a": 0}\n\n \t\r\n[1]\n"' + b"x" * 30 + b'"\n{"broken": \n5\r\n\n  6  \n7'


def tar_bytes() -> bytes:
    return archive(*[(f"{number:02}.{kind}", b"%d" % number) for number in range(9) for kind in ("cls", "txt")])


CONTENTS: dict[str, tuple[Callable[..., ad.Dataset[Any]], bytes]] = {
    "jsonl": (ad.JsonLinesDataset, LINES),
    "tar": (ad.WebDataset, tar_bytes()),
}

each_format = pytest.mark.parametrize("form", CONTENTS)


def same(read: Callable[..., ad.Dataset[Any]], path: Path, seeking: bool = False, **how: Any) -> list[Any]:
    """Check that elements by number are those in order, failures too."""
    plain = results(read(path, **how))
    ds = read(path, index=True, **how)
    assert results(ds) == plain
    assert len(ds) == len(plain)
    for place, expected in enumerate(plain):
        if seeking:
            assert results(ds.skip(place).take(1)) == [expected]
        if isinstance(expected, Failed):
            with pytest.raises(Exception, match=path.name):
                ds[place]
        else:
            assert ds[place] == expected
    return plain


@each_format
def test_elements_by_number(form: str, tmp_path: Path) -> None:
    read, content = CONTENTS[form]
    path = tmp_path / f"a.{form}"
    path.write_bytes(content)
    found = same(read, path, seeking=True)
    assert len(found) == {"jsonl": 7, "tar": 9}[form]
    assert (tmp_path / f".a.{form}.index").exists()
    assert sorted(map(repr, results(read([path, path], index=True).shuffle(seed=1)))) == sorted(map(repr, found * 2))
    check_resumes(lambda: read([path, path], index=True).shuffle(seed=3))
    check_resumes(lambda: read([path, path], index=True))


@each_format
def test_files_cut_short_at_every_byte(form: str, tmp_path: Path) -> None:
    read, content = CONTENTS[form]
    path = tmp_path / f"a.{form}"
    for end in range(0, len(content), 1 if form == "jsonl" else 397):
        path.write_bytes(content[:end])
        same(read, path)


@each_format
def test_a_limit(form: str, tmp_path: Path) -> None:
    read, content = CONTENTS[form]
    path = tmp_path / f"a.{form}"
    path.write_bytes(content)
    for most in (1, 10, 31, 1000, 1600):
        same(read, path, max_record_bytes=most)


def test_foreign_bytes_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "a.any"
    for content in (b"", b"\xff" * 700, b"something else\n" * 50, bytes(2048)):
        path.write_bytes(content)
        for read, _ in CONTENTS.values():
            same(read, path)
    for read, _ in CONTENTS.values():
        same(read, tmp_path / "none")


@each_format
def test_an_index_is_made_anew_when_the_file_has_changed(form: str, tmp_path: Path) -> None:
    read, content = CONTENTS[form]
    path = tmp_path / f"a.{form}"
    path.write_bytes(content)
    ds = read(path, index=True)
    assert len(ds) > 1
    kept = tmp_path / f".a.{form}.index"
    before = kept.read_bytes()
    assert len(read(path, index=True)) == len(ds)
    path.write_bytes(content + content)
    with pytest.raises(ad.DataLossError, match="has changed"):
        ds[0]
    assert len(read(path, index=True)) > len(ds)
    assert kept.read_bytes() != before
    kept.write_bytes(b"damaged")
    assert len(read(path, index=True)) > len(ds)


@each_format
def test_mistakes(form: str, tmp_path: Path) -> None:
    read, _ = CONTENTS[form]
    with pytest.raises(ad.PlanError, match="is not for compression_type='GZIP'"):
        read(tmp_path / "a", "GZIP", index=True)
    pytest.importorskip("obstore")
    with pytest.raises(ad.PlanError, match="needs cache_dir="):
        read("http://example.org/a", index=True)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_begins_of_lines(size: int) -> None:
    for begin, expected in ((0, [0, 17, 21, 54, 66, 70, 76]), (100, [100, 117, 121, 154, 166, 170, 176])):
        assert line_begins(LINES, begin, 100) == (expected, False)
    assert line_begins(b" \n" * size, 0, 5) == ([], False)
    assert line_begins(b"x" * size, 3, 3) == ([3], size > 3)


def test_kept_indexes() -> None:
    for begins in ([], [0], [5, 9, 300, 70_000]):
        index = OffsetIndex(Marks("samples", 10, 80_000, -5), begins, lost=True)
        again = OffsetIndex.from_bytes(index.to_bytes())
        assert (again.marks, again.lost, again.begins.tolist()) == (index.marks, True, index.begins.tolist())
        content = index.to_bytes()
        for place in range(len(content)):
            with pytest.raises(ValueError, match="index"):
                OffsetIndex.from_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


@pytest.mark.parametrize("dataset", [ad.TFRecordDataset, ad.JsonLinesDataset, ad.WebDataset])
@pytest.mark.parametrize("mtime", [0, 0x0A000000])
def test_the_error_of_a_compressed_file_says_so(tmp_path: Path, dataset: Any, mtime: int) -> None:
    # The header holds the time of writing: it may hold the end of a line.
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"[1]\n" * 1000, mtime=mtime))
    for read in (list, lambda ds: ds[0], lambda ds: list(ds.shuffle(seed=0))):
        with pytest.raises(ad.DataLossError) as caught:
            read(dataset(tmp_path / "a.gz", index=True))
        assert (
            "the file is compressed (GZIP), so it cannot be read by number, with index=True" in caught.value.__notes__
        )

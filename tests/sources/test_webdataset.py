"""WebDataset as users read it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.formats.test_webdataset import archive
from tests.reference import Failed
from tests.running import WAYS, results

SAMPLES = [{"__key__": f"{number:02}", "txt": f"#{number}", "cls": number} for number in range(30)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    members = [(f"{s['__key__']}.{name}", str(s[name]).encode()) for s in SAMPLES for name in ("txt", "cls")]
    (tmp_path / "a.tar").write_bytes(archive(*members))
    return tmp_path / "a.tar"


@pytest.mark.parametrize("way", WAYS)
def test_samples(path: Path, way: Any) -> None:
    assert way(ad.WebDataset([path, path])) == SAMPLES * 2


def test_goes_on_at_any_sample(path: Path) -> None:
    check_resumes(lambda: ad.WebDataset(path))
    check_resumes(lambda: ad.WebDataset(path, buffer_size=700), places=10)
    check_resumes(lambda: ad.WebDataset([path, path], num_parallel_reads=2).shuffle(9, seed=1).batch(4), places=8)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert list(ad.WebDataset(path)) == SAMPLES
    check_resumes(lambda: ad.WebDataset(path), places=8)
    path.write_bytes(gzip.decompress(path.read_bytes())[:20_000])
    check_resumes(lambda: ad.WebDataset([path, path]))


def test_a_decoder_of_the_users_fails_alone(path: Path) -> None:
    def decode(content: bytes) -> bytes:
        return {b"#3": b""}[content] if content == b"#4" else content

    found = results(ad.WebDataset(path, decoders={"txt": decode}))
    assert found[4] == Failed("KeyError")
    assert len(found) == 30
    with pytest.raises(KeyError) as caught:
        list(ad.WebDataset(path, decoders={"txt": decode}))
    assert caught.value.__notes__ == [
        "as 04.txt of the sample at byte 8192 was decoded",
        f"in WebDataset({path}), element 4",
    ]


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive(("a.pkl", b"cos\nsystem\n(S'touch harm'\ntR."), ("b.txt", b"b")))
    assert results(ad.WebDataset(path)) == [Failed("PlanError"), {"__key__": "b", "txt": "b"}]
    assert next(iter(ad.WebDataset(path, decoders={"pkl": len})))["pkl"] == 29


@pytest.mark.parametrize("decoders", [3, {"a": 1}, [len], {1: len}])
def test_wrong_decoders(decoders: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"WebDataset\(decoders=\) must be"):
        ad.WebDataset("a.tar", decoders=decoders)


def test_other_decoders_are_another_dataset(path: Path) -> None:
    prints = {ad.WebDataset(path, decoders=one).fingerprint() for one in (None, {}, {"txt": len}, {"txt": str.encode})}
    assert len(prints) == 4
    assert ad.WebDataset(path).fingerprint() in prints


@pytest.mark.formats
@pytest.mark.filterwarnings("ignore:unclosed file", "ignore::pytest.PytestUnraisableExceptionWarning")  # its own
def test_the_same_as_the_package(path: Path, tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    other = tmp_path / "b.tar"
    with webdataset.TarWriter(str(other)) as writer:
        for sample in SAMPLES:
            writer.write({**sample, "json": [1], "seg.png": b"p"})
    for file in (path, other):
        found = list(webdataset.WebDataset(str(file), shardshuffle=False).decode())
        assert [
            {name: one[name] for name in one if name not in {"__url__", "__local_path__"}} for one in found
        ] == list(ad.WebDataset(file))


def test_the_programs_own_archives(tmp_path: Path) -> None:
    (tmp_path / "in" / ("n" * 120)).mkdir(parents=True)
    (tmp_path / "in" / ("n" * 120) / "a.txt").write_text("long")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:bz2") as made:
        made.add(tmp_path / "in", "in")
    (tmp_path / "a.tar.bz2").write_bytes(file.getvalue())
    assert list(ad.WebDataset(tmp_path / "a.tar.bz2")) == [{"__key__": f"in/{'n' * 120}/a", "txt": "long"}]


def test_zeros_without_an_end_are_an_error(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    ds = ad.WebDataset(path, max_record_bytes=1 << 20)
    elements = iter(ds)
    assert [next(elements) for _ in SAMPLES] == SAMPLES
    with pytest.raises(ad.DataLossError, match="max_record_bytes"):
        next(elements)


def test_members_that_stand_apart_are_the_same_error_with_an_index(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("apart.tar", "whole.tar")]
    paths[0].write_bytes(archive(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"x"), ("c.jpg", b"3")))
    paths[1].write_bytes(archive(("a.jpg", b"4"), ("b.jpg", b"5"), ("a.jpg", b"6")))
    found = results(ad.WebDataset(paths))
    assert [one if isinstance(one, Failed) else one["jpg"] for one in found] == [b"1", b"2", found[2], b"4", b"5", b"6"]
    indexed = ad.WebDataset(paths, index=True)
    assert (results(indexed), len(indexed)) == (found, 6)
    with pytest.raises(ad.DataLossError, match="are at byte 2048, and the rest of the file is not read"):
        indexed[2]

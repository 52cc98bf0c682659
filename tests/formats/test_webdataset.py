"""Samples in tar archives: what belongs together, whatever pieces bytes come in, and what is wrong with an archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats import webdataset
from asyncdata.formats.sample_decoders import Decoders
from asyncdata.formats.tar import BLOCK
from asyncdata.formats.webdataset import KeysSeen, SampleParser, key_of


def archive(*members: tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as made:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            made.addfile(info, io.BytesIO(content))
    return file.getvalue()


def parsed(data: bytes, block: int = 1 << 20, limit: int = 1000, **how: Any) -> list[Any]:
    parser, found = SampleParser("a.tar", **how), list[Any]()
    for start in range(0, len(data), block):
        parser.feed(data[start : start + block])
        while samples := parser.parse(limit):
            found += samples
    parser.finish()
    while samples := parser.parse(limit):
        found += samples
    return found


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


TWO = archive(("d/a.txt", b"one"), ("d/a.cls", b"1"), ("d/b.txt", b"two"), ("d/b.cls", b"2"))
SAMPLES = [{"__key__": "d/a", "txt": "one", "cls": 1}, {"__key__": "d/b", "txt": "two", "cls": 2}]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a.txt", ("a", "txt")),
        ("./d.x/a.b.TXT", ("./d.x/a", "b.txt")),
        ("a", None),
        ("d.x/a", None),
        (".a", None),
        ("d/._a.jpg", None),
        ("__meta__/a.txt", None),
        ("__meta__", None),
        ("__a.txt", ("__a", "txt")),
    ],
)
def test_keys(name: str, key: Any) -> None:
    assert key_of(name) == key


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("block", [1, 100, 511, 512, 513, 5000])
def test_samples_do_not_depend_on_how_bytes_come(block: int, form: int) -> None:
    long = "d/" * 60 + "key"
    members = [
        ("d/", b""),
        ("one.a", b"x" * 3000),
        ("readme", b"y" * 700),
        ("one.b", b""),
        (f"{long}.c", b"z"),
        ("two.a", b""),
    ]
    data = archive(*members, form=form)
    found = parsed(data, block)
    assert found == [
        {"__key__": "one", "a": b"x" * 3000, "b": b""},
        {"__key__": long, "c": b"z"},
        {"__key__": "two", "a": b""},
    ]
    assert parsed(data, block, 1) == found


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", "z.w"]), st.binary(max_size=1200)), max_size=8
    )
)
def test_what_is_in_an_archive(members: list[tuple[str, str, bytes]]) -> None:
    expected: list[Any] = []
    for key, extension, content in members:
        if not expected or expected[-1]["__key__"] != key:
            expected.append({"__key__": key})
        if extension in expected[-1]:
            expected[-1]["twice"] = True
        expected[-1][extension] = content
    expected = [*up_to_apart(expected)]
    found = parsed(
        archive(*[(f"{key}.{extension}", content) for key, extension, content in members]), decoders=Decoders(None)
    )
    assert len(found) == len(expected)
    for sample, one in zip(found, expected, strict=True):
        assert isinstance(sample, DataLossError) if "twice" in one or "apart" in one else sample == one


def up_to_apart(samples: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The samples up to the first one that has no member of the last one with its key."""
    before: dict[str, set[str]] = {}
    for sample in samples:
        members = {*sample} - {"__key__", "twice"}
        if not before.get(sample["__key__"], members) & members:
            yield {"apart": True}
            return
        before[sample["__key__"]] = members
        yield sample


APART = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"1"), ("b.cls", b"2")]


@pytest.mark.parametrize("block", [1, 700, 1 << 20])
def test_members_that_stand_apart_are_an_error_and_no_halves(block: int) -> None:
    *found, error = parsed(archive(*APART), block)
    assert found == [{"__key__": "a", "jpg": b"1"}, {"__key__": "b", "jpg": b"2"}]
    assert isinstance(error, DataLossError)
    assert "more members of the sample 'a', which has come before, are at byte 2048" in str(error)


def test_members_apart_are_found_whatever_else_is_wrong_with_them() -> None:
    *_, error = parsed(archive(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"x")))
    assert "stand together" in str(error)


def test_a_key_may_come_again_with_a_complete_sample_or_in_another_archive() -> None:
    again = archive(("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3"), ("a.x", b"4"))
    assert [sample["__key__"] for sample in parsed(again)] == ["a", "b", "a"]
    assert parsed(archive(*APART[:2]) + archive(*APART[2:]))[2:] == [
        {"__key__": "a", "cls": 1},
        {"__key__": "b", "cls": 2},
    ]


def test_keys_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webdataset, "REMEMBERED", 2)
    seen = KeysSeen()
    found = [seen.completes(key, frozenset(extension)) for key, extension in zip("abcabcdefa", "xxxyyyxxxx")]
    assert found == [False] * 3 + [True] * 3 + [False] * 4


NO_FILES = [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, b"M", b"Q"]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["b.cls", "b" * 120 + ".cls"])
@pytest.mark.parametrize("block", [300, 1 << 20])
def test_a_sample_with_a_member_that_is_no_file_is_an_error(kind: bytes, form: int, name: str, block: int) -> None:
    if form == tarfile.USTAR_FORMAT and len(name) > 100:
        return
    file, key = io.BytesIO(), name.partition(".")[0]
    with tarfile.open(fileobj=file, mode="w", format=form) as made:
        for member, content in (("a.cls", b"1"), (f"{key}.jpg", b"2"), (name, None), ("c.cls", b"3")):
            info = tarfile.TarInfo(member)
            info.size = len(content or b"")
            if content is None:
                info.type, info.linkname = kind, "a.cls"
            made.addfile(info, io.BytesIO(content or b""))
    first, error, last = parsed(file.getvalue(), block)
    assert (first["cls"], last["cls"]) == (1, 3)
    assert isinstance(error, DataLossError)
    assert f"{name!r} is a {'link' if kind in b'12' else 'member of kind'}" in str(error)


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, b"V", b"D"])
def test_folders_and_names_of_archives_are_no_members(kind: bytes) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for member in ("a.x", "set.v1", "a.y"):
            info = tarfile.TarInfo(member)
            info.type = tarfile.REGTYPE if member.startswith("a") else kind
            made.addfile(info, io.BytesIO())
    assert parsed(file.getvalue()) == [{"__key__": "a", "x": b"", "y": b""}]


@pytest.mark.parametrize("dereference", [True, False])
def test_links_that_tar_writes_are_noticed(dereference: bool, tmp_path: Path) -> None:
    """Files with one inode are written as hard links, whichever samples they belong to."""
    (tmp_path / "a.jpg").write_bytes(b"picture")
    (tmp_path / "a.cls").write_bytes(b"1")
    os.link(tmp_path / "a.jpg", tmp_path / "b.jpg")
    (tmp_path / "b.cls").write_bytes(b"2")
    os.symlink("a.jpg", tmp_path / "c.jpg")
    names = sorted(os.listdir(tmp_path))
    with tarfile.open(tmp_path / "made.tar", "w", dereference=dereference) as made:
        for name in names:
            made.add(tmp_path / name, name)
    found = parsed((tmp_path / "made.tar").read_bytes())
    kinds = [type(sample).__name__ for sample in found]
    assert kinds == (["dict"] * 3 if dereference else ["dict", "DataLossError", "DataLossError"])


def test_every_position_leads_on() -> None:
    parser, begins = SampleParser(), list[int]()
    parser.feed(TWO)
    while parser.parse(1):
        begins.append(parser.offset)
    for number, begin in enumerate(begins, 1):
        again = SampleParser()
        again.jump(begin)
        again.feed(TWO[begin:])
        again.finish()
        assert again.parse(10) == SAMPLES[number:]


@pytest.mark.parametrize("end", [*range(0, 4 * 2 * BLOCK, 61), *range(BLOCK, 9 * BLOCK, BLOCK)])
def test_truncated(end: int) -> None:
    *found, error = parsed(TWO[:end])
    assert found == SAMPLES[: len(found)]
    assert len(found) == (end >= 5 * BLOCK)  # when the next sample's first header is there
    assert isinstance(error, DataLossError)
    assert "a.tar: cut short, or not a tar archive" in str(error)


def test_truncated_in_the_mark_of_the_end() -> None:
    for end in (9 * BLOCK, 9 * BLOCK + 5, 10 * BLOCK):
        assert parsed(TWO[:end]) == SAMPLES


@pytest.mark.parametrize("data", [b"no archive" * 100, b"x", b"\x1f\x8b\x08" + bytes(2000), bytes(600) + b"x" * 500])
def test_foreign_bytes(data: bytes) -> None:
    (error,) = parsed(data)
    assert isinstance(error, DataLossError)
    assert parsed(data, 7)[0].args == error.args


@pytest.mark.parametrize("place", [place for place in range(0, BLOCK, 5) if place not in range(148, 156)])
def test_a_corrupt_header_is_noticed(place: int) -> None:
    """What was read of the sample before it comes not, as nobody knows whether that was all."""
    data = bytearray(TWO)
    data[6 * BLOCK + place] ^= 0x55
    first, error = parsed(bytes(data))
    assert first == SAMPLES[0]
    assert "at byte 3072 a tar header was expected" in str(error)


def test_archives_one_behind_the_other() -> None:
    assert parsed(TWO + TWO) == SAMPLES * 2
    assert parsed(bytes(1024)) == []


@pytest.mark.parametrize(
    ("extension", "content", "words"),
    [
        ("cls", b"x", "invalid literal"),
        ("json", b"{", "a.json"),
        ("txt", b"\xff", "utf-8"),
        ("npy", npy([1])[:-1], "its array needs 8 bytes"),
        ("npy", npy(np.array([None])), "pickled"),
        ("pkl", b"", "pickle.loads"),
        ("x.pyd", b"", "decoders="),
    ],
)
def test_a_member_that_cannot_be_decoded_costs_its_sample(extension: str, content: bytes, words: str) -> None:
    first, error, last = parsed(
        archive(("0.txt", b"zero"), (f"a.{extension}", content), ("a.more", b""), ("b.txt", b"b"))
    )
    assert (first["txt"], last["txt"]) == ("zero", "b")
    assert isinstance(error, ValueError)
    assert words in f"{error} {error.__notes__}"
    assert error.__notes__ == [f"as a.{extension} of the sample at byte 1024 was decoded"]
    assert isinstance(error, PlanError) == (extension in {"pkl", "x.pyd"})


def test_decoders() -> None:
    data = archive(
        ("a.seg.PNG", b"png"), ("a.npy", npy(np.arange(3))), ("a.json", b"[1]"), ("a.pkl", b"p"), ("a.jpg", b"j")
    )
    (sample,) = parsed(data, decoders=Decoders({"png": len, ".PKL": bytes}))
    assert sample.pop("npy").tolist() == [0, 1, 2]
    assert sample == {"__key__": "a", "seg.png": 3, "json": [1], "pkl": b"p", "jpg": b"j"}
    (sample,) = parsed(archive(("a.json", b"[1]"), ("a.pkl", b"p")), decoders=Decoders(None))
    assert sample == {"__key__": "a", "json": b"[1]", "pkl": b"p"}


@pytest.mark.parametrize("block", [1, 700, 1 << 20])
def test_a_sample_that_is_too_long(block: int) -> None:
    data = archive(("a.x", b"1"), ("b.x", b"2"), ("b.y", bytes(3000)), ("c.x", b"3"))
    found = parsed(data, block, most=2 * BLOCK + 2 * 3000)
    assert len(found) == 3
    found = parsed(data, block, most=3000)
    assert found[0]["x"] == b"1"
    assert "the sample at byte 1024 is longer than max_record_bytes=3000" in str(found[1])
    assert len(found) == 2


def test_a_hostile_size_takes_no_memory() -> None:
    info = tarfile.TarInfo("a.x")
    info.size = 1 << 60
    (error,) = parsed(info.tobuf(tarfile.GNU_FORMAT) + bytes(100))
    assert "longer than max_record_bytes" in str(error)

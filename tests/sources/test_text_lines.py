"""Lines of files: how they are split, whatever blocks they come in, and what is wrong with a file."""

from __future__ import annotations

import gzip
import os
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats.lines import LineParser
from asyncdata.testing import check_resumes, leaves_nothing
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import WAYS, results

LONG = b"x" * (LineParser.window + 10)


def meaning(data: bytes) -> list[bytes]:
    """What the lines of a file are."""
    *lines, last = data.replace(b"\r", b"").split(b"\n")
    return [*lines, last] if last else lines


def packed(data: bytes, compression: str | None) -> bytes:
    if compression is None:
        return data
    return gzip.compress(data, 1) if compression == "GZIP" else zlib.compress(data, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.txt"


pieces = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bc", b"", b"\x00\xff", b" ", LONG]), max_size=30)


@given(data=pieces.map(b"".join), cuts=st.lists(st.integers(0, 200_000), max_size=5), limit=st.integers(1, 5))
def test_lines_do_not_depend_on_how_bytes_come_or_lines_are_taken(data: bytes, cuts: list[int], limit: int) -> None:
    parser, found, bounds = LineParser(), [], sorted({0, *[min(cut, len(data)) for cut in cuts], len(data)})
    for start, stop in pairwise(bounds):
        parser.feed(data[start:stop])
        while lines := parser.parse(limit):
            found += lines
    parser.finish()
    while lines := parser.parse(limit):
        found += lines
    assert found == meaning(data)


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\r", b"one", b"one\n", b"one\r\n", b"one\r", b"a\rb\n\r\n\nc", b"\n\n\n", LONG + b"\n" + LONG],
    ids=lambda data: repr(data[:20]),
)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_edges(path: Path, data: bytes, compression: str | None, way: Any) -> None:
    path.write_bytes(packed(data, compression))
    with leaves_nothing():
        assert way(ad.TextLineDataset(path, compression)) == meaning(data)


def test_bytes_that_are_no_text_come_as_they_are(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 3)
    assert results(ad.TextLineDataset(path)) == meaning(bytes(range(256)) * 3)


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("size", first_by_default([7, None, 1000, 1], 2))
def test_goes_on_at_any_line(path: Path, compression: str | None, size: int | None) -> None:
    data = b"\r\n".join(b"%d" % number * (number % 50) for number in range(120))
    path.write_bytes(packed(data, compression))
    check_resumes(lambda: ad.TextLineDataset(path, compression, size))
    check_resumes(lambda: ad.TextLineDataset(path, compression, size).shuffle(20, seed=1).batch(3), places=10)


@pytest.mark.slow
def test_goes_on_within_a_window_and_behind_it(path: Path) -> None:
    path.write_bytes(b"\n".join(b"%d" % number for number in range(40_000)))
    check_resumes(lambda: ad.TextLineDataset(path), places=12)
    with ad.TextLineDataset(path).iterate() as lines:
        for _ in range(39_000):
            next(lines)
        position = lines.state_dict()["position"]
    assert position[3] > 2 * LineParser.window  # what comes before it is not read again


def test_several_files_one_of_them_missing(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{number}.txt") for number in range(4)]
    for number in (0, 1, 3):
        Path(names[number]).write_text("\n".join(f"{number} {line}" for line in range(number * 5)))
    expected = [
        Failed("FileNotFoundError") if number == 2 and line == 0 else f"{number} {line}".encode()
        for number in range(4)
        for line in range(1 if number == 2 else number * 5)
    ]
    assert results(ad.TextLineDataset(names)) == expected
    assert results(ad.TextLineDataset(ad.Dataset.from_iterable(names))) == expected
    both = results(ad.TextLineDataset(names, num_parallel_reads=3))
    assert sorted(map(repr, both)) == sorted(map(repr, expected))
    check_resumes(lambda: ad.TextLineDataset(names, num_parallel_reads=2))


def test_a_damaged_stream_costs_what_follows_the_damage_and_no_part_of_a_line_comes(path: Path) -> None:
    lines = [b"%x" % (number * 7919) * 9 for number in range(4_000)]
    data = packed(b"\n".join(lines), "GZIP")
    path.write_bytes(data[: len(data) // 2])
    *found, error = results(ad.TextLineDataset(path, "GZIP"))
    assert error == Failed("DataLossError")
    assert 1_000 < len(found) < 4_000
    assert found == lines[: len(found)]
    check_resumes(lambda: ad.TextLineDataset(path, "GZIP"), places=5)


def test_a_state_of_a_file_that_has_changed_is_refused(path: Path) -> None:
    path.write_bytes(b"one\ntwo\nthree\n")
    with ad.TextLineDataset(path).iterate() as lines:
        next(lines)
        state = lines.state_dict()
    path.write_bytes(b"one\ntwo\nthree\nfour\n")
    with pytest.raises(ad.ResumeError, match=r"lines\.txt\): the file had 14 bytes when the state was made, now 19"):
        next(ad.TextLineDataset(path).iterate(state=state))


def test_an_error_names_the_file_and_the_line(path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        list(ad.TextLineDataset(path))
    assert caught.value.__notes__ == [f"in TextLineDataset({path}), element 0"]


def test_a_last_line_that_never_ends_is_read_in_time_that_grows_with_its_length(path: Path) -> None:
    path.write_bytes(b"x" * (20 << 20))
    assert [len(line) for line in ad.TextLineDataset(path, buffer_size=1 << 16)] == [20 << 20]


@pytest.mark.parametrize("form", [str, Path, os.fsencode])
def test_paths_may_be_bytes(path: Path, form: Any) -> None:
    path.write_bytes(b"one\ntwo")
    name = form(path)
    for names in (name, [name], ad.Dataset.from_iterable([name])):
        assert list(ad.TextLineDataset(names)) == [b"one", b"two"]


def test_names_may_be_the_lines_of_a_file(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"one\ntwo")
    (tmp_path / "names").write_text(f"{path}\n{path}\n")
    assert list(ad.TextLineDataset(ad.TextLineDataset(tmp_path / "names"))) == [b"one", b"two"] * 2


def test_wrong_arguments_are_errors_where_they_are_given(path: Path) -> None:
    with pytest.raises(ad.PlanError, match="compression_type must be"):
        ad.TextLineDataset(path, "ZIP")
    with pytest.raises(ad.PlanError, match=r"TextLineDataset\(buffer_size=\) must be at least 0"):
        ad.TextLineDataset(path, buffer_size=-2)
    with pytest.raises(ad.PlanError, match=r"TextLineDataset\(num_parallel_reads=\) must be at least 1"):
        ad.TextLineDataset([path], num_parallel_reads=0)
    with pytest.raises(ad.PlanError, match="no store for s4"):
        ad.TextLineDataset([f"s4://{os.fspath(path)}"])


def test_their_number_is_not_known(path: Path) -> None:
    path.write_bytes(b"one\n")
    ds = ad.TextLineDataset([path])
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert ds.element_spec == ad.TensorSpec((), object)
    assert ds.explain().splitlines()[3] == "resume     exact"


def test_a_pattern_for_a_path_is_an_error_that_names_list_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        list(ad.TextLineDataset(tmp_path / "*.txt"))
    assert "Dataset.list_files" in "".join(caught.value.__notes__)
    with pytest.raises(FileNotFoundError) as caught:
        list(ad.TextLineDataset(tmp_path / "shard-{00..31}.txt"))
    assert "braces stand for themselves" in "".join(caught.value.__notes__)

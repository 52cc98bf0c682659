"""Going on in the middle of TFRecord files: exact, whatever is wrong with them, and without reading them again."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import ResumeError
from asyncdata.formats.tfrecord import FRAMING, HEADER, LARGE, frame
from asyncdata.storage import BLOCK_BYTES
from asyncdata.testing import check_resumes
from tests.marks import first_by_default

SIZES = (10, 0, LARGE, 700, LARGE - 1, LARGE + 1, LARGE, 5, 5, 5, 3 * LARGE, LARGE, 90)
"""Runs of small records and runs of large ones, which are read each in a way of its own."""

SMALL = (10, 0, 300, 4000, 5, 5, 20, 0, 0, 70, 6, 1, 90)

BLOCK = 100_000

Pipeline = Callable[[], ad.Dataset]

COMPRESSIONS = pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])


def frames_of(sizes: tuple[int, ...], seed: int = 0) -> list[bytes]:
    """Frames around random records, the last halves of which can be deflated."""
    random = np.random.default_rng(seed)
    return [frame(random.bytes(size // 2) + bytes(size - size // 2)) for size in sizes]


def flipped(framed: bytes, place: int) -> bytes:
    return framed[:place] + bytes([framed[place] ^ 1]) + framed[place + 1 :]


def whole(frames: list[bytes]) -> bytes:
    return b"".join(frames)


def corrupt_small(frames: list[bytes]) -> bytes:
    return whole([*frames[:3], flipped(frames[3], HEADER + 1), *frames[4:]])


def corrupt_large(frames: list[bytes]) -> bytes:
    return whole([*frames[:6], flipped(frames[6], HEADER + 1), *frames[7:]])


def corrupt_length(frames: list[bytes]) -> bytes:
    return whole([*frames[:8], flipped(frames[8], 0), *frames[9:]])


def cut_short(frames: list[bytes]) -> bytes:
    return whole(frames)[:-3]


def empty(frames: list[bytes]) -> bytes:
    return b""


STATES = (whole, corrupt_small, corrupt_large, corrupt_length, cut_short, empty)
"""Everything that can be the matter with what is in a file."""


def packed(data: bytes, compression: str | None) -> bytes:
    """Compress a file's content, the short way."""
    if compression is None:
        return data
    return gzip.compress(data, 1) if compression == "GZIP" else zlib.compress(data, 1)


def folder_of(folder: Path, sizes: tuple[int, ...], compression: str | None = None) -> list[str]:
    """Write a file for everything that can be the matter, and name one among them that is missing."""
    paths = [folder / f"{state.__name__}.tfrecord" for state in STATES]
    for seed, (path, state) in enumerate(zip(paths, STATES, strict=True)):
        path.write_bytes(packed(state(frames_of(sizes, seed)), compression))
    names = [*map(str, paths)]
    return [*names[:2], str(folder / "missing.tfrecord"), *names[2:]]


@COMPRESSIONS
@pytest.mark.parametrize("state", STATES)
def test_one_file(tmp_path: Path, state: Any, compression: str | None) -> None:
    path = tmp_path / "one.tfrecord"
    path.write_bytes(packed(state(frames_of(SIZES)), compression))
    check_resumes(lambda: ad.TFRecordDataset(path, compression, buffer_size=BLOCK))


@pytest.mark.parametrize("compression", first_by_default(["GZIP", "ZLIB"]))
def test_a_compressed_file_whose_own_stream_is_damaged(tmp_path: Path, compression: str) -> None:
    data = packed(whole(frames_of(SIZES)), compression)
    for number, damaged in enumerate([data[: len(data) // 2], flipped(data, len(data) // 2), flipped(data, 0)]):
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(damaged)
        check_resumes(lambda path=path: ad.TFRecordDataset(path, compression, buffer_size=BLOCK))


@COMPRESSIONS
@pytest.mark.parametrize("reads", first_by_default([3, None]))
def test_several_files_one_of_them_missing(tmp_path: Path, reads: int | None, compression: str | None) -> None:
    names = folder_of(tmp_path, SMALL, compression)
    check_resumes(lambda: ad.TFRecordDataset(names, compression, num_parallel_reads=reads))


@pytest.mark.parametrize(
    ("workers", "deterministic"),
    first_by_default([(4, True), (4, False), (None, None)]),
    ids=["parallel", "unordered", "serial"],
)
@pytest.mark.parametrize("sizes", [SMALL, pytest.param(SIZES, marks=pytest.mark.slow)], ids=["small", "large"])
def test_interleaved_files(
    tmp_path: Path, workers: int | None, deterministic: bool | None, sizes: tuple[int, ...]
) -> None:
    names = folder_of(tmp_path, sizes) * 2

    def build() -> ad.Dataset:
        return ad.Dataset.from_iterable(names).interleave(
            ad.TFRecordDataset, cycle_length=4, num_parallel_calls=workers, deterministic=deterministic
        )

    ordered = deterministic is not False
    check_resumes(build, ordered=ordered)
    check_resumes(lambda: build().shuffle(20, seed=1).repeat(2).batch(3).unbatch(), ordered=ordered, places=15)
    if ordered:
        check_resumes(lambda: build().shuffle(20).map(len, num_parallel_calls=2).batch(7).prefetch(2))


@pytest.mark.parametrize("compression", first_by_default(["GZIP", "ZLIB"]))
def test_interleaved_compressed_files(tmp_path: Path, compression: str) -> None:
    names = folder_of(tmp_path, SMALL, compression)

    def build() -> ad.Dataset:
        files = ad.Dataset.list_files(str(tmp_path / "*"), seed=3).concatenate(ad.Dataset.from_iterable(names))
        return files.interleave(lambda name: ad.TFRecordDataset(name, compression), 4, 2, num_parallel_calls=4)

    check_resumes(lambda: build().shuffle(10).batch(4))


# what a state is refused with


def stopped(ds: ad.Dataset, count: int) -> dict[str, Any]:
    """Return the state after so many elements, as another process would get it."""
    with ds.iterate() as elements:
        for _ in range(count):
            next(elements)
        return json.loads(json.dumps(elements.state_dict()))


def two_files(folder: Path, compression: str | None = None) -> list[str]:
    names = [str(folder / name) for name in ("a.tfrecord", "b.tfrecord")]
    for seed, name in enumerate(names):
        Path(name).write_bytes(packed(whole(frames_of(SMALL, seed)), compression))
    return names


PIPELINES = pytest.mark.parametrize(
    "build",
    [
        lambda names, compression: ad.TFRecordDataset(names, compression),
        lambda names, compression: ad.TFRecordDataset(names, compression).shuffle(3).batch(2),
        lambda names, compression: ad.TFRecordDataset(names, compression, num_parallel_reads=2),
        lambda names, compression: ad.Dataset.list_files(names, shuffle=False).interleave(
            lambda name: ad.TFRecordDataset(name, compression), num_parallel_calls=2, deterministic=False
        ),
    ],
    ids=["files", "shuffled", "parallel", "unordered"],
)


def grow(path: str) -> None:
    with open(path, "ab") as file:
        file.write(frame(b"one more"))


def shrink(path: str) -> None:
    os.truncate(path, os.path.getsize(path) - 1)


@PIPELINES
@COMPRESSIONS
@pytest.mark.parametrize("change", [grow, shrink, os.remove], ids=["grow", "shrink", "remove"])
def test_a_file_that_has_another_size_now_is_refused(
    tmp_path: Path, build: Any, change: Any, compression: str | None
) -> None:
    names = two_files(tmp_path, compression)
    pipeline = build(names, compression)
    state = stopped(pipeline, 3)
    for name in names:
        change(name)
    with pytest.raises(ResumeError, match="step 1 was 2 files #.*, and is 2 files #"):
        pipeline.iterate(state=state)


@pytest.mark.parametrize("change", [grow, shrink, os.remove], ids=["grow", "shrink", "remove"])
@COMPRESSIONS
def test_one_file_that_has_another_size_now_is_refused(tmp_path: Path, change: Any, compression: str | None) -> None:
    name = two_files(tmp_path, compression)[0]
    size = os.path.getsize(name)
    state = stopped(ad.TFRecordDataset(name, compression), 3)
    change(name)
    now = os.path.getsize(name) if os.path.exists(name) else -1
    with pytest.raises(ResumeError, match=rf"TFRecordDataset\(.*a.tfrecord\): the file had {size} bytes .*, now {now}"):
        list(ad.TFRecordDataset(name, compression).iterate(state=state))


@pytest.mark.parametrize(
    "last",
    [
        lambda ds: ds.shuffle(8, seed=1),
        lambda ds: ds.shuffle(8, seed=1).batch(2),
        lambda ds: ds.shuffle(5, seed=1).map(len, num_parallel_calls=2, deterministic=False),
    ],
    ids=["shuffle", "batch", "map"],
)
def test_a_file_of_which_only_a_buffer_holds_records_is_checked_too(tmp_path: Path, last: Any) -> None:
    """The position is in the second file by then, and elements of the first are to be given once more."""
    names = two_files(tmp_path)
    ds = ad.TFRecordDataset(names).apply(last)
    state = stopped(ds, len(SMALL) // (2 if "batch" in str(ds.plan) else 1))
    Path(names[0]).write_bytes(whole(frames_of(SMALL[::-1], 7)) + frame(b"one more"))
    with pytest.raises(ResumeError, match="step 1 was 2 files #.*, and is 2 files #"):
        ds.iterate(state=state)


@pytest.mark.parametrize("place", [0, 1])
def test_of_names_that_are_not_known_before_the_open_file_is_checked(tmp_path: Path, place: int) -> None:
    names = two_files(tmp_path)

    def build() -> ad.Dataset:
        return ad.TFRecordDataset(ad.Dataset.from_generator(lambda: iter(names)))

    state = stopped(build(), 3)
    grow(names[place])
    if place == 0:
        with pytest.raises(ResumeError, match=r"TFRecordDataset\(.*a.tfrecord\): the file had \d+ bytes"):
            list(build().iterate(state=state))
    else:
        assert len(list(build().iterate(state=state))) == 2 * len(SMALL) + 1 - 3


@PIPELINES
@pytest.mark.parametrize(
    "changed",
    [lambda names: names[:1], lambda names: names[::-1], lambda names: [*names, names[0]]],
    ids=["fewer", "order", "more"],
)
def test_another_list_of_files_is_refused(tmp_path: Path, build: Any, changed: Any) -> None:
    names = two_files(tmp_path)
    pipeline = build(names, None)
    state = stopped(pipeline, 3)
    others = build(changed(names), None)
    if others.fingerprint() == pipeline.fingerprint():  # `list_files` sorts them, so that they are no others
        assert changed(names) == names[::-1]
        assert len(list(others.iterate(state=state))) == 2 * len(SMALL) - 3
        return
    with pytest.raises(ResumeError, match=r"step 1 was 2 files #.*, and is \d files #.* now"):
        others.iterate(state=state)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    two_files(tmp_path)

    def build() -> ad.Dataset:
        return ad.Dataset.list_files(str(tmp_path / "*"), seed=1).interleave(ad.TFRecordDataset)

    state = stopped(build(), 3)
    (tmp_path / "a.tfrecord").rename(tmp_path / "c.tfrecord")
    with pytest.raises(ResumeError, match="step 1 was 2 files #.*, and is 2 files #"):
        build().iterate(state=state)


@PIPELINES
def test_a_folder_may_be_moved(tmp_path: Path, build: Any) -> None:
    here, there = tmp_path / "here", tmp_path / "else" / "where"
    here.mkdir()
    there.parent.mkdir()
    names = two_files(here)
    state = stopped(build(names, None), 3)
    assert str(tmp_path) not in json.dumps(state)
    here.rename(there)
    moved = [str(there / os.path.basename(name)) for name in names]
    assert len(list(build(moved, None).iterate(state=state))) == len(list(build(moved, None))) - 3


def test_one_file_may_be_moved(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    name = two_files(tmp_path)[0]
    records = list(ad.TFRecordDataset(name))
    state = stopped(ad.TFRecordDataset(name), 3)
    moved = (tmp_path / "a.tfrecord").rename(tmp_path / "there" / "a.tfrecord")
    assert list(ad.TFRecordDataset(moved).iterate(state=state)) == records[3:]


def test_another_file_is_refused(tmp_path: Path) -> None:
    one, other = two_files(tmp_path)
    state = stopped(ad.TFRecordDataset(one), 3)
    with pytest.raises(ResumeError, match="step 1 was .*a.tfrecord.*, and is .*b.tfrecord"):
        ad.TFRecordDataset(other).iterate(state=state)


def test_names_from_a_generator_that_gives_others_are_refused_at_the_file(tmp_path: Path) -> None:
    names = two_files(tmp_path)
    order = [*names]

    def build() -> ad.Dataset:
        return ad.TFRecordDataset(ad.Dataset.from_generator(lambda: iter(order)))

    state = stopped(build(), 3)
    order.reverse()
    with pytest.raises(ResumeError, match="the state was in '.*a.tfrecord' there; the list of files has changed"):
        list(build().iterate(state=state))


# how much is read again


class Reads:
    """Notes from where on bytes of files are read, in each of the ways in which they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: list[int] = []
        self.opened: list[str] = []
        offsets, opened, preadv, pread, openat = self.offsets, self.opened, os.preadv, os.pread, os.open

        class Noting(io.FileIO):
            def __init__(self, path: str | int) -> None:
                if isinstance(path, str):
                    opened.append(path)
                super().__init__(path)

            def readinto(self, buffer: Any) -> int | None:
                offsets.append(self.tell())
                return super().readinto(buffer)

        def noting_preadv(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
            offsets.append(offset)
            return preadv(fd, buffers, offset, flags)

        def noting_pread(fd: int, size: int, offset: int) -> bytes:
            offsets.append(offset)
            return pread(fd, size, offset)

        def noting_open(path: str, *arguments: Any, **more: Any) -> int:
            opened.append(path)
            return openat(path, *arguments, **more)

        monkeypatch.setattr(io, "FileIO", Noting)
        monkeypatch.setattr(os, "open", noting_open)
        monkeypatch.setattr(os, "preadv", noting_preadv)
        monkeypatch.setattr(os, "pread", noting_pread)


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="reads the page cache by preadv")
@pytest.mark.parametrize(("size", "once"), [(100, 2000), (LARGE, BLOCK_BYTES)], ids=["small", "large"])
def test_what_was_read_is_not_read_again(tmp_path: Path, size: int, once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on at a record's offset, no more than what is read at once before the record that comes next."""
    count, block = 60, 2000
    path = tmp_path / "records.tfrecord"
    path.write_bytes(whole(frames_of((size,) * count)))
    reads = Reads(monkeypatch)
    for place in range(0, count, 7):
        state = stopped(ad.TFRecordDataset(path, buffer_size=block), place)
        reads.offsets.clear()
        assert len(list(ad.TFRecordDataset(path, buffer_size=block).iterate(state=state))) == count - place
        begin = state["position"][3] if place else 0
        assert min(reads.offsets) == begin
        assert place * (size + FRAMING) - begin <= once + size + FRAMING


def test_files_that_were_read_to_their_end_are_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = two_files(tmp_path)
    state = stopped(ad.TFRecordDataset(names), len(SMALL) + 2)
    reads = Reads(monkeypatch)
    assert len(list(ad.TFRecordDataset(names).iterate(state=state))) == len(SMALL) - 2
    assert reads.opened == names[1:]

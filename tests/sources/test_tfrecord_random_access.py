"""TFRecordDataset(index=True): the same elements as without, each of them without those before it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats import tfrecord_index
from asyncdata.formats.tfrecord import FRAMING, HEADER, LARGE, frame
from asyncdata.formats.tfrecord_index import RecordIndex, Stamp
from asyncdata.sources.tfrecord_random_access import IndexCache
from asyncdata.storage import RandomFile
from asyncdata.system.crc32c import crc32c
from asyncdata.testing import check_resumes, leaves_nothing

ROOT = Path(__file__).parents[2]

SIZES = (10, 0, LARGE, 700, LARGE - 1, LARGE + 1, 0, 5, 5, 5, 3 * LARGE, 40, 90)

SMALL = (10, 0, 300, 4000, 5, 5, 20, 0, 0, 70, 6, 1, 90)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, as a folder of the test's own."""
    monkeypatch.setenv("ASYNCDATA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "records"


def frames_of(sizes: tuple[int, ...], seed: int = 0) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [frame(random.bytes(size)) for size in sizes]


def flipped(framed: bytes, place: int) -> bytes:
    return framed[:place] + bytes([framed[place] ^ 1]) + framed[place + 1 :]


def whole(frames: list[bytes]) -> bytes:
    return b"".join(frames)


def corrupt_data(frames: list[bytes]) -> bytes:
    return whole([*frames[:3], flipped(frames[3], HEADER + 1), *frames[4:]])


def corrupt_length(frames: list[bytes]) -> bytes:
    return whole([*frames[:8], flipped(frames[8], 0), *frames[9:]])


def corrupt_length_checksum(frames: list[bytes]) -> bytes:
    return whole([*frames[:2], flipped(frames[2], 9), *frames[3:]])


def enormous_length(frames: list[bytes]) -> bytes:
    return whole([*frames[:4], flipped(frames[4], 7), *frames[5:]])


def cut_short(frames: list[bytes]) -> bytes:
    return whole(frames)[:-3]


def cut_in_a_length(frames: list[bytes]) -> bytes:
    return whole(frames[:5]) + frames[5][:6]


def only_a_header(frames: list[bytes]) -> bytes:
    return frames[2][:HEADER]


def empty(frames: list[bytes]) -> bytes:
    return b""


STATES = (
    whole,
    corrupt_data,
    corrupt_length,
    corrupt_length_checksum,
    enormous_length,
    cut_short,
    cut_in_a_length,
    only_a_header,
    empty,
)
"""Everything that can be the matter with what is in a file."""


def folder_of(folder: Path, sizes: tuple[int, ...]) -> list[str]:
    """Write a file for everything that can be the matter; name one that is missing, and one that is a folder."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{state.__name__}.tfrecord" for state in STATES]
    for seed, (path, state) in enumerate(zip(paths, STATES, strict=True)):
        path.write_bytes(state(frames_of(sizes, seed)))
    (folder / "folder").mkdir(exist_ok=True)
    names = [*map(str, paths)]
    return [*names[:2], str(folder / "missing.tfrecord"), *names[2:], str(folder / "folder")]


def told(read: Callable[[], Any]) -> Any:
    """An element, or an error as a user sees it."""
    try:
        return read()
    except (ad.DataLossError, OSError) as error:
        return type(error), str(error), error.__notes__


def reading(ds: ad.Dataset[Any]) -> list[Any]:
    """Every element, errors as a user sees them."""
    found: list[Any] = []
    with ds.iterate() as elements:
        while True:
            try:
                found.append(told(lambda: next(elements)))
            except StopIteration:
                return found


def counted(elements: list[Any]) -> list[Any]:
    return sorted(elements, key=repr)


def written(path: Path, sizes: tuple[int, ...] = SMALL, seed: int = 0) -> str:
    path.write_bytes(whole(frames_of(sizes, seed)))
    return str(path)


def index_of(path: str) -> Path:
    return Path(path).with_name(f".{Path(path).name}.index")


# the same elements


@pytest.mark.parametrize("sizes", [SMALL, SIZES], ids=["small", "large"])
@pytest.mark.parametrize("state", STATES)
def test_one_file_gives_the_same_elements_and_errors_by_number(tmp_path: Path, state: Any, sizes: Any) -> None:
    path = tmp_path / "one.tfrecord"
    path.write_bytes(state(frames_of(sizes)))
    elements = reading(ad.TFRecordDataset(path))
    ds = ad.TFRecordDataset(path, index=True)
    assert len(ds) == ds.cardinality() == len(elements)
    assert [told(lambda place=place: ds[place]) for place in range(len(ds))] == elements
    assert reading(ds) == elements
    assert counted(reading(ds.shuffle(seed=1))) == counted(elements)
    for place in (len(elements), -len(elements) - 1):
        with pytest.raises(IndexError):
            ds.at(place)


@pytest.mark.parametrize("sizes", [SMALL, SIZES], ids=["small", "large"])
def test_several_files_give_the_same_elements_and_errors_by_number(tmp_path: Path, sizes: Any) -> None:
    names = folder_of(tmp_path / "data", sizes)
    elements = reading(ad.TFRecordDataset(names))
    with leaves_nothing():
        ds = ad.TFRecordDataset(names, index=True)
        assert len(ds) == len(elements)
        assert [told(lambda place=place: ds.at(place)) for place in range(len(ds))] == elements
        assert reading(ds) == elements
    for seed in range(3):
        found = reading(ds.shuffle(seed=seed))
        assert counted(found) == counted(elements)
        assert found != elements


def test_the_failure_of_a_file_that_a_step_leaves_out_is_raised_and_has_no_number(tmp_path: Path) -> None:
    """`skip` and `shard` raise what a damaged file lost also where its place is not theirs."""
    names = [tmp_path / "torn.tfrecord", tmp_path / "whole.tfrecord"]
    names[0].write_bytes(whole(frames_of(SMALL))[:-3])
    names[1].write_bytes(whole(frames_of(SMALL, 1)))
    ds = ad.TFRecordDataset(names, index=True)
    elements = reading(ds)
    place = len(SMALL) - 1
    assert elements[place] == told(lambda: ds.at(place))
    for some, chosen in (
        (ds.skip(place + 2), elements[place + 2 :]),
        (ds.shard(2, 1 - place % 2), elements[1 - place % 2 :: 2]),
    ):
        assert len(reading(some)) == len(chosen) + 1
        assert elements[place] in reading(some)
        assert [told(lambda some=some, at=at: some.at(at)) for at in range(len(some))] == chosen


def test_the_same_file_twice_is_twice_the_elements(tmp_path: Path) -> None:
    names = [written(tmp_path / "a.tfrecord")] * 2
    ds = ad.TFRecordDataset(names, index=True)
    assert len(ds) == 2 * len(SMALL)
    assert counted(list(ds.shuffle(seed=1))) == counted([*ad.TFRecordDataset(names)])


def test_no_files_are_no_elements() -> None:
    ds = ad.TFRecordDataset([], index=True)
    assert (len(ds), list(ds), list(ds.shuffle())) == (0, [], [])


@pytest.mark.parametrize(
    "change",
    [
        lambda ds: ds.shard(3, 1),
        lambda ds: ds.skip(5).take(20),
        lambda ds: ds.repeat(2),
        lambda ds: ds.enumerate().map(lambda number, record: (number, len(record))),
        lambda ds: ad.Dataset.zip(ds, ad.Dataset.counter()),
        lambda ds: ds.concatenate(ds),
    ],
)
def test_what_is_made_of_records_has_them_by_number_too(tmp_path: Path, change: Any) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord", SMALL, seed) for seed in range(4)]
    elements = list(change(ad.TFRecordDataset(names)))
    ds = change(ad.TFRecordDataset(names, index=True))
    assert len(ds) == len(elements)
    assert [ds[place] for place in range(0, len(ds), 5)] == elements[::5]
    assert counted(list(ds.shuffle(seed=1))) == counted(elements)


def test_shards_of_all_records_are_all_records(tmp_path: Path) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord", SMALL, seed) for seed in range(4)]
    ds = ad.TFRecordDataset(ad.Dataset.list_files(str(tmp_path / "*.tfrecord"), shuffle=False), index=True)
    shards = [list(ds.shard(3, index).shuffle(seed=1)) for index in range(3)]
    assert counted([record for shard in shards for record in shard]) == counted(list(ad.TFRecordDataset(names)))


@given(
    files=st.lists(
        st.lists(st.sampled_from([0, 1, 5, 4080, 4090, LARGE - 1, LARGE, 2 * LARGE]), max_size=8), max_size=4
    ),
    lost=st.integers(0, 40),
    window=st.sampled_from([16, 100, 5000, 1 << 20]),
    data=st.data(),
)
def test_by_number_is_as_in_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], lost: int, window: int, data: st.DataObject
) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp()))
    names: list[str] = []
    for number, sizes in enumerate(files):
        content = whole(frames_of(tuple(sizes), number))
        (folder / str(number)).write_bytes(content[: max(0, len(content) - lost)])
        names.append(str(folder / str(number)))
    elements = reading(ad.TFRecordDataset(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord_index, "WINDOW", window)
        ds = ad.TFRecordDataset(names, index=True)
        assert len(ds) == len(elements)
    places = data.draw(st.permutations(range(len(elements))))
    for place in places[:5]:
        assert told(lambda place=place: ds[place]) == elements[place]
    assert counted(reading(ds.shuffle(seed=1))) == counted(elements)


# going on


@pytest.mark.parametrize("reads", [None, 3])
def test_going_on_gives_what_comes_next(tmp_path: Path, reads: int | None) -> None:
    names = folder_of(tmp_path / "data", SMALL)

    def build() -> ad.Dataset[Any]:
        return ad.TFRecordDataset(names, num_parallel_reads=reads, index=True)

    check_resumes(lambda: build().shuffle(20, seed=1).batch(3))
    if reads is None:
        check_resumes(lambda: build().shuffle(seed=1).batch(3))


BUILDS: dict[str, Callable[[list[str], bool], ad.Dataset[Any]]] = {
    "files": lambda names, index: ad.TFRecordDataset(names, index=index),
    "parallel": lambda names, index: ad.TFRecordDataset(names, num_parallel_reads=3, index=index),
    "one": lambda names, index: ad.TFRecordDataset(names[0], index=index),
    "names": lambda names, index: ad.TFRecordDataset(ad.Dataset.from_generator(lambda: iter(names)), index=index),
    "shuffled names": lambda names, index: ad.TFRecordDataset(ad.Dataset.list_files(names, seed=1), index=index),
    "interleave": lambda names, index: ad.Dataset.from_iterable(names).interleave(
        lambda name: ad.TFRecordDataset(name, index=index), cycle_length=2
    ),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS.keys())
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("last", [lambda ds: ds, lambda ds: ds.shuffle(7, seed=2), lambda ds: ds.shuffle(7).batch(2)])
def test_a_state_made_without_an_index_is_gone_on_with_by_one_with_it_and_the_other_way(
    tmp_path: Path, build: Any, before: bool, last: Any
) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord", SMALL, seed) for seed in range(4)]
    with last(build(names, before)).iterate() as elements:
        for _ in range(6):
            next(elements)
        state = json.loads(json.dumps(elements.state_dict()))
        rest = [np.asarray(element).tolist() for element in elements]
    went_on = last(build(names, not before)).iterate(state=state)
    assert [np.asarray(element).tolist() for element in went_on] == rest


class Opened:
    """Notes which parts of files are read other than by blocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spans: list[tuple[int, int]] = []
        spans = self.spans

        def noting(read: Any) -> Any:
            def noted(file: RandomFile, offset: int, buffer: memoryview) -> int:
                done = read(file, offset, buffer)
                if done:
                    spans.append((offset, done))
                return done

            return noted

        for name in ("peek_at", "fill_at"):
            monkeypatch.setattr(RandomFile, name, noting(getattr(RandomFile, name)))


def test_exactly_the_records_that_are_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = ad.TFRecordDataset(written(tmp_path / "a.tfrecord", (100,) * 50), index=True)
    opened = Opened(monkeypatch)
    places = [7, 49, 0]
    for place in places:
        ds.at(place)
    assert opened.spans == [(place * (100 + FRAMING), 100 + FRAMING) for place in places]


@pytest.mark.parametrize("reads", [None, 2])
def test_going_on_reads_of_the_past_what_a_buffer_held(
    tmp_path: Path, reads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord", (100,) * 200, seed) for seed in range(2)]

    def build() -> ad.Dataset[bytes]:
        return ad.TFRecordDataset(names, num_parallel_reads=reads, index=True).shuffle(10, seed=1)

    with build().iterate() as records:
        for _ in range(300):
            next(records)
        state = records.state_dict()
    opened = Opened(monkeypatch)
    assert len(list(build().iterate(state=state))) == 100
    assert len(opened.spans) == 10


def test_what_is_not_in_the_page_cache_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = folder_of(tmp_path / "data", SIZES)
    elements = reading(ad.TFRecordDataset(names))
    monkeypatch.setattr(RandomFile, "peek_at", lambda *_: 0)
    assert counted(reading(ad.TFRecordDataset(names, index=True).shuffle(seed=1))) == counted(elements)


def test_a_broken_disk_costs_the_records_that_lie_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = ad.TFRecordDataset(written(tmp_path / "a.tfrecord", (100,) * 30), index=True)
    elements, real = list(ds), RandomFile.fill_at
    broken = {place * (100 + FRAMING): place for place in (0, 7, 29)}

    def fill_at(file: RandomFile, offset: int, buffer: memoryview) -> int:
        if offset in broken:
            raise OSError(5, "the disk is broken")
        return real(file, offset, buffer)

    monkeypatch.setattr(RandomFile, "peek_at", lambda *_: 0)
    monkeypatch.setattr(RandomFile, "fill_at", fill_at)
    found = reading(ds.shuffle(seed=1))
    errors = [element for element in found if not isinstance(element, bytes)]
    assert counted([element for element in found if isinstance(element, bytes)]) == counted(
        [element for place, element in enumerate(elements) if place not in broken.values()]
    )
    assert {error[:2] for error in errors} == {(OSError, "[Errno 5] the disk is broken")}
    assert {error[2][0].rpartition(" ")[2] for error in errors} == {"0", "7", "29"}


# when it is made, and kept


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord") for seed in range(2)]
    ds = ad.TFRecordDataset(names, index=True).map(len).shard(2, 0).repeat(2).batch(2)
    assert list(iter(ds))  # `list(ds)` would ask for the length
    assert not [name for name in names if index_of(name).exists()]
    assert len(ds) == len(SMALL)
    assert all(index_of(name).exists() for name in names)


def test_no_pattern_finds_an_index(tmp_path: Path) -> None:
    name = written(tmp_path / "a.tfrecord")
    len(ad.TFRecordDataset(name, index=True))
    assert list(ad.Dataset.list_files(str(tmp_path / "a*"), shuffle=False)) == [name]
    assert sorted(os.listdir(tmp_path)) == [".a.tfrecord.index", "a.tfrecord"]


def test_what_is_kept_is_small_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = written(tmp_path / "a.tfrecord", (300,) * 1000)
    elements = list(ad.TFRecordDataset(name))
    assert len(ad.TFRecordDataset(name, index=True)) == 1000
    assert os.path.getsize(index_of(name)) < 2 * 1000 + 60
    monkeypatch.setattr(RecordIndex, "of", None)  # nothing is made anew
    ds = ad.TFRecordDataset(name, index=True)
    assert [ds[place] for place in (0, 999, 500)] == [elements[place] for place in (0, 999, 500)]


@pytest.mark.parametrize("sizes", [(), (0,), (255,), (256, 3), (LARGE,), (LARGE - 1, 0)])
def test_an_index_is_what_its_file_says(sizes: tuple[int, ...]) -> None:
    data = whole(frames_of(sizes))
    made = RecordIndex.of(lambda offset, size: data[offset : offset + size], Stamp(len(data), -5))
    read = RecordIndex.from_bytes(made.to_bytes())
    assert (read.stamp, read.begins, read.count) == (made.stamp, made.begins, len(sizes))
    assert read.lengths.dtype == np.min_scalar_type(max(sizes, default=0))


def rewritten(path: str) -> None:
    Path(path).write_bytes(whole(frames_of(SMALL[::-1], 3)))
    os.utime(path, ns=(1, 1))


def appended(path: str) -> None:
    with open(path, "ab") as file:
        file.write(frame(b"one more"))


def shortened(path: str) -> None:
    os.truncate(path, os.path.getsize(path) - 1)


CHANGES = pytest.mark.parametrize("change", [rewritten, appended, shortened])


@CHANGES
def test_a_file_that_has_changed_gets_a_new_index(tmp_path: Path, change: Any) -> None:
    name = written(tmp_path / "a.tfrecord")
    len(ad.TFRecordDataset(name, index=True))
    before = index_of(name).read_bytes()
    change(name)
    elements = reading(ad.TFRecordDataset(name))
    assert counted(reading(ad.TFRecordDataset(name, index=True).shuffle(seed=1))) == counted(elements)
    assert index_of(name).read_bytes() != before


@CHANGES
def test_a_file_that_changes_while_a_dataset_is_in_use_says_so(tmp_path: Path, change: Any) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord", SMALL, seed) for seed in range(2)]
    ds = ad.TFRecordDataset(names, index=True)
    elements = list(ds)
    change(names[0])
    for place in (0, 5):
        with pytest.raises(ad.DataLossError, match=r"0.tfrecord: the file has changed since its index was read; build"):
            ds[place]
    assert ds[len(SMALL)] == elements[len(SMALL)]
    os.remove(names[0])
    with pytest.raises(FileNotFoundError):
        ds[0]


def test_a_change_that_only_the_bytes_tell_is_an_error_too(tmp_path: Path) -> None:
    name = written(tmp_path / "a.tfrecord", (10, 20, 30))
    ds = ad.TFRecordDataset(name, index=True)
    assert len(ds) == 3
    time = os.stat(name).st_mtime_ns
    Path(name).write_bytes(whole(frames_of((20, 30, 10))))
    os.utime(name, ns=(time, time))
    for place in range(3):
        with pytest.raises(ad.DataLossError):
            ds[place]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: flipped(content, 50),
        lambda content: b"something else altogether, and quite long: " * 3,
        lambda content: sealed(content[:8] + b"\x02" + content[9:]),
        lambda content: sealed(content[:12] + b"\x03" + content[13:]),
        lambda content: sealed(content[:32] + b"\xff" * 8 + content[40:]),
    ],
    ids=["empty", "short", "long", "flipped", "other", "version", "width", "count"],
)
def test_an_index_that_is_damaged_or_of_another_version_is_made_anew(tmp_path: Path, damage: Any) -> None:
    name = written(tmp_path / "a.tfrecord")
    elements = list(ad.TFRecordDataset(name))
    len(ad.TFRecordDataset(name, index=True))
    good = index_of(name).read_bytes()
    index_of(name).write_bytes(damage(good))
    assert counted(list(ad.TFRecordDataset(name, index=True).shuffle(seed=1))) == counted(elements)
    assert index_of(name).read_bytes() == good


def sealed(content: bytes) -> bytes:
    """An index that only its content is wrong with."""
    return content[:-4] + crc32c(content[:-4]).to_bytes(4, "little")


def test_a_file_that_grows_while_its_index_is_made_is_as_it_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, real = written(tmp_path / "a.tfrecord"), RandomFile.read_at

    def growing(file: RandomFile, offset: int, size: int) -> bytes:
        appended(name)
        return real(file, offset, size)

    monkeypatch.setattr(RandomFile, "read_at", growing)
    assert len(ad.TFRecordDataset(name, index=True)) == len(SMALL)
    assert not index_of(name).exists()


# where it is kept


def test_an_index_that_cannot_lie_beside_the_file_lies_in_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(tmp_path / "a.tfrecord")
    index_of(name).mkdir()  # what nobody can replace by a file, not even root
    assert len(ad.TFRecordDataset(name, index=True)) == len(SMALL)
    assert [len(part.name) for part in cache.iterdir()] == [len("0" * 32 + ".index")]
    assert sorted(os.listdir(tmp_path)) == [".a.tfrecord.index", "a.tfrecord", "cache"]
    monkeypatch.setattr(RecordIndex, "of", None)
    monkeypatch.chdir(tmp_path)
    assert len(ad.TFRecordDataset("a.tfrecord", index=True)) == len(SMALL)


def test_a_folder_that_is_read_only(small_disk: Path, cache: Path) -> None:
    name = written(small_disk / "a.tfrecord")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert len(ad.TFRecordDataset(name, index=True)) == len(SMALL)
    assert len(list(cache.iterdir())) == 1
    assert os.listdir(small_disk) == ["a.tfrecord"]


def test_a_disk_that_is_full(small_disk: Path, cache: Path) -> None:
    name = written(small_disk / "a.tfrecord", (0,) * 2000)
    with open(small_disk / "rest", "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(512))
    assert len(ad.TFRecordDataset(name, index=True)) == 2000
    assert len(list(cache.iterdir())) == 1
    assert sorted(os.listdir(small_disk)) == ["a.tfrecord", "rest"]


@pytest.mark.parametrize("nowhere", ["a file", "no home"])
def test_an_index_that_can_be_kept_nowhere_is_in_memory(
    tmp_path: Path, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(tmp_path / "a.tfrecord")
    index_of(name).mkdir()
    if nowhere == "a file":
        monkeypatch.setenv("ASYNCDATA_CACHE", name)
    else:
        monkeypatch.delenv("ASYNCDATA_CACHE")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(Path, "expanduser", homeless)
    ds = ad.TFRecordDataset(name, index=True)
    assert counted(list(ds.shuffle(seed=1))) == counted(list(ds))
    assert ds[3] == list(ds)[3]


def homeless(_: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")


PROGRAM = """
import sys, asyncdata as ad
print(len(list(ad.TFRecordDataset(sys.argv[1:], index=True).shuffle(seed=1))))
"""


@pytest.mark.slow
def test_several_processes_at_once_do_each_other_no_harm(tmp_path: Path) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord", SMALL, seed) for seed in range(20)]
    for name in names[::2]:
        index_of(name).write_bytes(b"damaged")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *names]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    assert [process.communicate()[0].strip() for process in running] == [str(20 * len(SMALL))] * 4
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for name in names for path in (Path(name), index_of(name)))


def test_datasets_of_one_list_share_what_they_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = IndexCache.of

    def of(indexes: IndexCache, path: str) -> RecordIndex:
        if path not in indexes.known:
            asked.append(path)
        return real(indexes, path)

    monkeypatch.setattr(IndexCache, "of", of)
    name = written(tmp_path / "a.tfrecord")
    ds = ad.TFRecordDataset([name], index=True)
    assert len(ds) == len(ds.map(len)) == len(list(ds.shuffle())) == len(SMALL)
    assert asked == [name]


# what is refused


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_an_index_of_what_is_compressed_is_a_mistake(compression: str) -> None:
    with pytest.raises(ad.PlanError, match=rf"index=True\) is not for compression_type='{compression}': compressed"):
        ad.TFRecordDataset("a.tfrecord", compression, index=True)


@pytest.mark.parametrize("build", [build for name, build in BUILDS.items() if name not in ("files", "one")])
def test_where_names_are_not_known_or_files_are_read_in_turn_there_is_no_order_by_number(
    tmp_path: Path, build: Any
) -> None:
    names = [written(tmp_path / f"{seed}.tfrecord") for seed in range(2)]
    ds = build(names, True)
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    with pytest.raises(ad.PlanError, match="without a buffer_size needs"):
        ds.shuffle()


@pytest.mark.parametrize("files", [1, 3])
def test_records_that_are_skipped_are_not_read(tmp_path: Path, files: int) -> None:
    paths = [tmp_path / f"{number}.tfrecord" for number in range(files)]
    for number, path in enumerate(paths):
        with ad.TFRecordWriter(path) as writer:
            for record in range(50):
                writer.write(b"%d of %d" % (record, number))
    ds = ad.TFRecordDataset(paths if files > 1 else paths[0], index=True).batch(4)
    everything = [batch.tolist() for batch in ds]
    for count in (0, 1, 7, len(everything) - 1, len(everything), 1000):
        with ds.iterate() as batches:
            batches.skip(count)
            state = batches.state_dict()
            assert "skip" not in (state["position"] or ())
            assert [batch.tolist() for batch in batches] == everything[count:]
        assert [batch.tolist() for batch in ds.iterate(state=state)] == everything[count:]

"""cache in a file: written as it is read, whole or gone on with, whoever writes it and whatever happens to them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count as counting
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.tfrecord import RecordParser, frame
from asyncdata.persistence.file_cache import FileCache
from asyncdata.persistence.header import HEAD
from asyncdata.sources.tfrecord_random_access import IndexCache
from asyncdata.storage import AppendFile, append_file
from asyncdata.storage.locks import FileLock
from asyncdata.testing import check_resumes, check_transform, leaves_nothing
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, collect, results, unnamed
from tests.states import edited
from tests.transforms.test_hostile import KINDS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "squares"


class Counted:
    """A function that counts its calls."""

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        self.calls: list[int] = []
        self.fails = [*fails]

    def __call__(self, x: int) -> int:
        self.calls.append(x)
        if x in self.fails:
            raise Boom(x)
        return x * x


def squares(path: Path, fn: Callable[[int], int], count: int = 10) -> ad.Dataset:
    """A cached map; nothing runs ahead of the consumer."""
    return ad.Dataset.range(count).map(fn).cache(path).with_options(ad.Options(optimize=False))


def test_keeps_its_contract(tmp_path: Path) -> None:
    names = map(str, counting())
    check_transform(lambda ds: ds.map(lambda x: x).cache(tmp_path / next(names)), lambda items: items)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_elements_are_computed_once_also_for_another_process(path: Path, way: Any) -> None:
    fn = Counted()
    ds = squares(path, fn)
    with leaves_nothing():
        assert [way(ds) for _ in range(3)] == [[x * x for x in range(10)]] * 3
    assert way(squares(path, fn)) == [x * x for x in range(10)]
    assert fn.calls == [*range(10)]
    assert os.listdir(path.parent) == ["squares"]


@pytest.mark.parametrize("first", range(11))
def test_left_early_the_next_epoch_reads_on_from_there(path: Path, first: int) -> None:
    fn = Counted()
    assert list(islice(squares(path, fn), first)) == [x * x for x in range(first)]
    assert list(squares(path, fn)) == [x * x for x in range(10)]
    assert fn.calls == [*range(10)]


def test_take_before_the_end_repeated_is_a_cache_too(path: Path) -> None:
    fn = Counted()
    assert list(squares(path, fn).take(3).repeat(4)) == [0, 1, 4] * 4
    assert fn.calls == [0, 1, 2]


def test_a_shuffle_without_a_seed_is_gone_on_with_in_another_process(path: Path) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.range(50).shuffle(20).map(lambda x: x).cache(path)

    begun = list(islice(build(), 20))
    whole = list(build())
    assert whole[:20] == begun
    assert sorted(whole) == [*range(50)]
    assert list(build().repeat(2)) == whole * 2


def test_what_goes_in_comes_out(path: Path) -> None:
    elements: list[Any] = [1, 2.5, True, None, "x", b"y", (1, {"k": np.arange(3)}), [np.float32(1)], 1 << 80]
    ds = ad.Dataset.from_iterable(elements).cache(path)
    for _ in range(2):
        found = list(ds)
        assert repr(found) == repr(elements)
    assert not found[6][1]["k"].flags.writeable


def test_large_elements_and_many_small_ones(path: Path) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.range(5000).map(lambda x: np.full(x % 7 * 20_000, x, np.uint8) if x < 50 else x).cache(path)

    one, other = list(build()), list(build())
    assert [int(np.sum(x)) for x in one] == [int(np.sum(x)) for x in other]
    assert len(list(islice(build().skip(4000), 10))) == 10


def test_what_cannot_be_written_is_an_error_that_says_what_to_do(path: Path) -> None:
    ds = ad.Dataset.from_iterable([1, {2, 3}]).cache(path)
    for _ in range(2):
        with pytest.raises(ad.StructureError, match="cannot be written to a file: builtins.set") as caught:
            list(ds)
        assert "kept" in "".join(caught.value.__notes__)
    assert list(ad.Dataset.from_iterable([1]).cache(path.with_name("other"))) == [1]


@pytest.mark.parametrize("kind", [set, *KINDS])
@pytest.mark.parametrize("size", first_by_default([1000, 1]))
@pytest.mark.parametrize("keep", ["cache", "snapshot"])
def test_an_element_that_cannot_be_written_fails_in_its_place(path: Path, kind: Any, size: int, keep: str) -> None:
    good = False

    def made(x: int) -> Any:
        return [x] * size if x in (2, 5) and good else kind() if x in (2, 5) else [x] * size

    ds = getattr(ad.Dataset.range(8).map(made), keep)(path)
    for _ in range(2):
        found = [one if isinstance(one, Failed) else one[0] for one in results(ds)]
        assert [found[place] for place in (0, 1, 3, 4, 6, 7)] == [0, 1, 3, 4, 6, 7]
        assert all(isinstance(found[place], Failed) for place in (2, 5))
        assert len(found) == 8
        assert ds.ignore_errors().map(lambda x: x[0]).take(8).batch(8).get_single_element().tolist() == [
            0,
            1,
            3,
            4,
            6,
            7,
        ]
    with ds.iterate() as elements:
        next(elements), next(elements)
        with pytest.raises(Exception) as caught:
            next(elements)
        assert any("element 2" in note and f"{keep}(" in note for note in caught.value.__notes__)
        state = elements.state_dict()
    with ds.iterate(state=state) as rest:
        assert next(rest)[0] == 3
    assert not path.is_file()
    good = True
    for _ in range(2):
        assert [x[0] for x in ds] == [*range(8)]


def test_whoever_reads_beside_a_writer_meets_the_same_failures(path: Path) -> None:
    ds = ad.Dataset.from_generator(lambda: iter([0, 1, {2}, 3, 4])).cache(path)
    with ds.iterate() as writer:
        assert next(writer) == 0
        found = results(ds)  # a generator's file has one writer, and nobody else reads what it has written
        assert found[:2] + found[3:] == [0, 1, 3, 4]
        assert isinstance(found[2], Failed)
        assert list(ds.ignore_errors()) == [0, 1, 3, 4]


def test_a_failure_ends_what_is_kept_and_is_tried_again(path: Path) -> None:
    fn = Counted(fails=(4,))
    expected = [Failed("Boom(4)") if x == 4 else x * x for x in range(10)]
    for _ in range(3):
        assert results(squares(path, fn)) == expected
    assert fn.calls == [*range(10), *range(4, 10), *range(4, 10)]
    fn.fails.clear()
    assert list(squares(path, fn)) == [x * x for x in range(10)]


def test_an_empty_input_is_kept_too(path: Path) -> None:
    fn = Counted()
    for _ in range(2):
        assert list(squares(path, fn, 0)) == []
    assert path.exists()


def test_a_generator_is_kept_when_it_was_read_to_its_end(path: Path) -> None:
    runs: list[int] = []
    count = 20_000  # more than is read ahead

    def numbers() -> Iterator[int]:
        runs.append(0)
        yield from range(count)

    def build() -> ad.Dataset:
        return ad.Dataset.from_generator(numbers).cache(path)

    with build().iterate() as elements:
        assert [next(elements) for _ in range(5)] == [*range(5)]
    assert [list(build()) for _ in range(3)] == [[*range(count)]] * 3
    assert len(runs) == 2


def test_what_has_no_order_is_kept_in_the_order_in_which_it_came(path: Path) -> None:
    def build() -> ad.Dataset:
        ds = ad.Dataset.range(200).map(lambda x: x, num_parallel_calls=4, deterministic=False)
        return ds.cache(path)

    first = list(build())
    assert sorted(first) == [*range(200)]
    assert list(build()) == list(build()) == first


def test_two_readers_at_once(path: Path) -> None:
    ds = ad.Dataset.range(500).map(lambda x: x).cache(path)

    async def both() -> Any:
        return await asyncio.gather(collect(ds), collect(ds))

    assert asyncio.run(both()) == [[*range(500)]] * 2
    assert list(ad.Dataset.zip(ds, ds)) == [(x, x) for x in range(500)]


def test_a_reader_that_opens_the_file_just_as_another_one_finishes_it(path: Path, monkeypatch: Any) -> None:
    ds = ad.Dataset.range(200).map(lambda x: 2 * x).cache(path)
    first, stored = iter(ds), FileCache.stored
    next(first)

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(FileCache, "stored", stored)
        assert len(list(first)) == 199
        return stored(*arguments)

    monkeypatch.setattr(FileCache, "stored", overtaken)
    assert list(ds) == list(range(0, 400, 2))


def test_a_reader_that_opens_the_file_while_it_gets_its_name(path: Path, monkeypatch: Any) -> None:
    ds = ad.Dataset.range(200).map(lambda x: 2 * x).cache(path)
    first, stored = iter(ds), FileCache.stored
    next(first)
    renamed, synced = threading.Event(), threading.Event()
    finishing = threading.Thread(target=lambda: list(first))

    def sync_folder(_: Path) -> None:
        renamed.set()
        assert synced.wait(60)

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(FileCache, "stored", stored)
        finishing.start()
        assert renamed.wait(60)
        threading.Timer(0.1, synced.set).start()
        return stored(*arguments)

    monkeypatch.setattr(append_file, "sync_folder", sync_folder)
    monkeypatch.setattr(FileCache, "stored", overtaken)
    assert list(ds) == list(range(0, 400, 2))
    finishing.join()


def test_readers_of_a_generator_at_once_get_all_of_it(path: Path) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.from_generator(lambda: iter(range(50))).cache(path)

    async def several() -> Any:
        return await asyncio.gather(*[collect(build()) for _ in range(6)])

    assert asyncio.run(several()) == [[*range(50)]] * 6
    assert list(build()) == [*range(50)]


# states


@pytest.mark.parametrize("kept", ["nothing", "some", "all"])
def test_goes_on_from_a_state_whatever_the_file_has(tmp_path: Path, kept: str) -> None:
    names = map(str, counting())

    def build() -> ad.Dataset:
        name = tmp_path / next(names)
        ds = ad.Dataset.range(60).shuffle(10, seed=1).map(lambda x: x).cache(name)
        list(islice(ds, {"nothing": 0, "some": 25, "all": 100}[kept]))
        return ds.repeat(2).shuffle(5, seed=2).batch(4)

    check_resumes_in_any_file(build)


def check_resumes_in_any_file(build: Callable[[], ad.Dataset]) -> None:
    """What a state says of a file is its name, which is another one each time here."""
    whole = [batch.tolist() for batch in build()]
    for place in (0, 1, 7, 16, 29):
        with build().iterate() as batches:
            for _ in range(place):
                next(batches)
            state = batches.state_dict()
        other = build()
        state = edited(state, plan=other.iterate().state_dict()["plan"])
        assert [batch.tolist() for batch in other.iterate(state=state)] == whole[place:]


def test_goes_on_in_the_same_file(path: Path) -> None:
    check_resumes(lambda: ad.Dataset.range(60).shuffle(10).map(lambda x: x).cache(path).repeat(2).batch(7))


def test_a_state_of_what_has_no_order_needs_the_file(path: Path) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.range(20).map(abs, num_parallel_calls=2, deterministic=False).cache(path).repeat(2)

    with build().iterate() as elements:
        first = [next(elements) for _ in range(30)]
        state = elements.state_dict()
    assert sorted(first + list(build().iterate(state=state))) == sorted([*range(20)] * 2)
    path.unlink()
    with pytest.raises(ad.ResumeError, match="the file is gone"):
        next(build().iterate(state=state))


# other pipelines, other files


def test_another_pipelines_file_is_refused_and_says_what_differs(path: Path) -> None:
    list(ad.Dataset.range(10).shuffle(3, seed=1).cache(path))
    others = {
        "step 1 was range(10), and is range(11) now": ad.Dataset.range(11).shuffle(3, seed=1),
        "step 3 was nothing, and is batch(2) now": ad.Dataset.range(10).shuffle(3, seed=1).batch(2),
        "the seed of step 2 was 1, and is 2 now": ad.Dataset.range(10).shuffle(3, seed=2),
    }
    for words, ds in others.items():
        with pytest.raises(ad.ResumeError) as caught:
            list(ds.cache(path))
        assert words in str(caught.value)
    assert sorted(ad.Dataset.range(10).shuffle(3).cache(path)) == [*range(10)]


def test_another_pipelines_unfinished_file_is_refused_too(path: Path) -> None:
    next(iter(ad.Dataset.range(10).cache(path)))
    with pytest.raises(ad.ResumeError, match=r"squares\.partial has the elements of another pipeline"):
        list(ad.Dataset.range(11).cache(path))
    assert list(ad.Dataset.range(10).cache(path)) == [*range(10)]


def test_a_share_is_told_from_another(path: Path) -> None:
    list(ad.Dataset.range(10).shard(2, 0).cache(path))
    with pytest.raises(ad.ResumeError, match="share"):
        list(ad.Dataset.range(10).shard(2, 1).cache(path))


@pytest.mark.parametrize("content", [b"", b"model", os.urandom(100_000)], ids=["empty", "short", "long"])
def test_a_file_of_somebody_else_is_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(ad.ResumeError, match=r"model\.bin: not a cache file"):
        list(ad.Dataset.range(10).cache(path))
    assert path.read_bytes() == content


def test_an_empty_name_is_memory() -> None:
    assert str(ad.Dataset.range(3).cache("").plan) == "range(3) → cache()"


def test_wrong_names_are_errors_where_they_are_given() -> None:
    for name in (3, b"x", "s3://bucket/x"):
        with pytest.raises(ad.PlanError):
            ad.Dataset.range(3).cache(name)  # type: ignore[arg-type]


# damage


def test_a_file_that_was_cut_short_is_an_error_after_what_is_whole(path: Path) -> None:
    fn = Counted()
    list(squares(path, fn))
    data = path.read_bytes()
    for size in (len(data) - 1, len(data) - 40, len(data) // 2 + 40):
        path.write_bytes(data[:size])
        found = results(squares(path, fn))
        good = [x for x in found if not isinstance(x, Failed)]
        assert good == [x * x for x in range(len(good))]
        assert set(found[len(good) :]) == {Failed("DataLossError")}
    with pytest.raises(ad.DataLossError, match="delete it, and it is written again|cut short"):
        list(squares(path, fn))


def evens(path: Path) -> ad.Dataset[int]:
    return ad.Dataset.range(2000).filter(is_even).cache(path)


def is_even(number: int) -> bool:
    return number % 2 == 0


def test_a_file_that_is_whole_gives_any_element_and_tells_how_many_there_are(path: Path) -> None:
    ds = evens(path)
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    with pytest.raises(ad.PlanError, match="needs random access"):
        ds.at(3)
    everything = list(ds)
    for again in (ds, evens(path)):
        assert (len(again), again[3], again[-1]) == (1000, 6, 1998)
        shuffled = list(again.shuffle(seed=1))
        assert shuffled != everything
        assert sorted(shuffled) == everything
    with pytest.raises(IndexError):
        ds.at(1000)
    path.unlink()
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert list(ds) == everything  # in a file of another age than the index
    assert ds[999] == 1998


def test_elements_that_are_skipped_are_not_read(path: Path) -> None:
    everything = list(evens(path))
    damage(path, 100)  # which reading would come across
    with evens(path).iterate() as elements:
        elements.skip(990)
        state = elements.state_dict()
        assert list(elements) == everything[990:]
    assert list(evens(path).iterate(state=state)) == everything[990:]
    with evens(path).iterate() as elements:
        elements.skip(5000)
        assert list(elements) == []


def damage(path: Path, number: int, offset: int = 12) -> None:
    """Change a byte of element `number`: of its content, or at another offset of its record."""
    content = bytearray(path.read_bytes())
    content[IndexCache().of(str(path)).span(number + 1)[0] + offset] ^= 1
    path.write_bytes(content)


def test_any_element_of_a_damaged_file(path: Path) -> None:
    list(evens(path))
    damage(path, 400)
    assert (evens(path)[399], evens(path)[401]) == (798, 802)
    with pytest.raises(ad.DataLossError, match=r"checksum"):
        evens(path).at(400)
    damage(path, 300, offset=0)  # a length: what follows cannot be found
    assert (evens(path)[299], len(evens(path))) == (598, 1000)
    with pytest.raises(ad.DataLossError, match="damaged before element 302; delete it"):
        evens(path).at(302)
    path.write_bytes(path.read_bytes()[:-1])
    assert evens(path).cardinality() == ad.UNKNOWN_CARDINALITY
    path.with_name("other").write_bytes(path.read_bytes())
    assert ad.Dataset.range(3).filter(is_even).cache(path.with_name("other")).cardinality() == ad.UNKNOWN_CARDINALITY


def test_a_file_that_was_cut_between_elements_is_noticed(path: Path) -> None:
    fn = Counted()
    list(squares(path, fn))
    data = path.read_bytes()
    path.write_bytes(data[: -len(b"\0asyncdata end\n10") - 16])
    assert results(squares(path, fn)) == [*[x * x for x in range(10)], Failed("DataLossError")]


def test_a_corrupt_element_is_an_error_in_its_place(path: Path) -> None:
    fn = Counted()
    list(squares(path, fn))
    data = bytearray(path.read_bytes())
    data[data.index((49).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    assert results(squares(path, fn)) == [Failed("DataLossError") if x == 7 else x * x for x in range(10)]


@pytest.mark.parametrize("lost", [1, 5, 20, 24, 26, 60])
def test_of_an_unfinished_file_what_is_whole_is_used_and_the_rest_computed_again(path: Path, lost: int) -> None:
    fn = Counted()
    with squares(path, fn).iterate() as elements:
        assert len(list(islice(elements, 6))) == 6
    partial = path.with_name("squares.partial")
    os.truncate(partial, partial.stat().st_size - lost)
    assert list(squares(path, fn)) == [x * x for x in range(10)]
    assert list(squares(path, fn)) == [x * x for x in range(10)]


def test_of_an_unfinished_file_that_is_corrupt_what_comes_before_is_used(path: Path) -> None:
    fn = Counted()
    with squares(path, fn).iterate() as elements:
        assert len(list(islice(elements, 6))) == 6
    partial = path.with_name("squares.partial")
    data = bytearray(partial.read_bytes())
    data[data.index((9).to_bytes(8, "little"))] ^= 1
    partial.write_bytes(data)
    assert list(squares(path, fn)) == [x * x for x in range(10)]
    assert fn.calls.count(2) == 2  # run past, to come to the third: where the input stood there nobody wrote down
    assert list(squares(path, fn)) == [x * x for x in range(10)]


# a full disk


@pytest.mark.parametrize("size", [100, 1000, 20_000])
def test_a_full_disk_is_an_error_and_what_is_whole_stays(small_disk: Path, size: int) -> None:
    def build() -> ad.Dataset:
        ds = ad.Dataset.range(2000).map(lambda x: np.full(size, x % 256, np.uint8))
        return ds.cache(small_disk / "kept").with_options(ad.Options(optimize=False))

    found: list[Any] = []
    with pytest.raises(OSError) as caught:
        found.extend(int(array[0]) for array in build())
    assert caught.value.errno == errno.ENOSPC
    assert "in cache(" in "".join(caught.value.__notes__)
    assert found == [x % 256 for x in range(len(found))]
    with pytest.raises(OSError, match="No space left"):
        found.extend(int(array[0]) for array in build())
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert [int(array[0]) for array in build()] == [x % 256 for x in range(2000)]
    assert os.listdir(small_disk) == ["kept"]


def test_a_file_that_may_not_grow_is_an_error_and_what_is_whole_stays(small_files: Path) -> None:
    ds = ad.Dataset.range(2000).map(lambda x: np.full(100, x % 256, np.uint8)).cache(small_files / "kept")
    for _ in range(2):
        with pytest.raises(OSError, match="File too large"):
            list(ds)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert [int(array[0]) for array in ds] == [x % 256 for x in range(2000)]
    assert os.listdir(small_files) == ["kept"]


# processes that are killed, or run at once


def start(path: Path, count: int, delay: float = 0) -> subprocess.Popen[str]:
    program = ROOT / "tests" / "faults" / "filling.py"
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(program), str(path), str(count), str(delay)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=4096,  # so that it waits until its lines are read, however late that is
    )


def read_of(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("read ")]


@pytest.mark.slow
def test_killed_again_and_again_it_goes_on_with_what_was_written(path: Path) -> None:
    size, seen = 400, list[list[int]]()
    for reads in (5, 60, 130):
        process = start(path, size, 0.001)
        assert process.stdout is not None
        lines: list[str] = []
        while len(read_of(lines)) < reads:
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate()[1]
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        seen.append(read_of(lines))
    out, err = start(path, size).communicate(timeout=100)
    assert (out.split()[-1], err) == ("done", "")
    whole = read_of(out.splitlines())
    assert sorted(whole) == [x * x for x in range(size)]
    assert all(whole[: len(some)] == some for some in seen)
    assert os.listdir(path.parent) == ["squares"]
    again, _ = start(path, size).communicate(timeout=100)
    assert read_of(again.splitlines()) == whole
    assert "computed" not in again


KILLED = first_by_default(["ordered", "shuffled", "unordered", "generated", "empty"])


@pytest.mark.parametrize("source", KILLED)
def test_killed_just_before_the_file_gets_its_name_the_next_run_gives_it(path: Path, source: str) -> None:
    killed = unnamed("cache", path, source)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not path.exists()
    read = read_of(killed.stdout.splitlines())  # not all, where the last were written before they were read
    for _ in range(2):
        again = unnamed("cache", path, source, "named")
        assert (again.returncode, again.stderr) == (0, "")
        whole = read_of(again.stdout.splitlines())
        assert whole[: len(read)] == read
        assert sorted(whole) == [x * x for x in range(0 if source == "empty" else 10)]
        assert "computed" not in again.stdout
        assert os.listdir(path.parent) == ["squares"]


@pytest.mark.slow
def test_killed_just_before_the_file_gets_its_name_another_pipeline_is_refused(path: Path) -> None:
    assert unnamed("cache", path, "ordered").returncode == -signal.SIGKILL
    again = unnamed("cache", path, "shuffled", "named")
    assert "ResumeError" in again.stderr
    assert "squares.partial has the elements of another pipeline" in again.stderr
    assert len(read_of(unnamed("cache", path, "ordered", "named").stdout.splitlines())) == 10


@pytest.mark.parametrize("behind", [b"\0", b"more"])
def test_what_comes_behind_the_end_of_an_unfinished_file_is_dropped(path: Path, behind: bytes) -> None:
    fn = Counted()
    list(squares(path, fn))
    path.rename(path.with_name("squares.partial"))
    with open(path.with_name("squares.partial"), "ab") as file:
        file.write(behind)
    for _ in range(2):
        assert list(squares(path, fn)) == [x * x for x in range(10)]
    assert os.listdir(path.parent) == ["squares"]


@pytest.mark.slow
def test_of_two_processes_one_writes_and_both_get_all(path: Path) -> None:
    runs = [start(path, 300, 0.001) for _ in range(3)]
    found = [run.communicate(timeout=100) for run in runs]
    orders = [read_of(out.splitlines()) for out, _ in found]
    assert [err for _, err in found] == [""] * 3
    assert orders == [orders[0]] * 3
    assert sorted(orders[0]) == [x * x for x in range(300)]
    assert os.listdir(path.parent) == ["squares"]


def test_a_file_that_another_process_has_not_begun_yet_is_in_the_order_of_its_readers(path: Path) -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.range(50).shuffle(20).cache(path)

    path.parent.mkdir()
    lock = FileLock.take(AppendFile.partial(path))
    assert lock is not None
    found = [list(build()), list(build())]
    lock.release()
    assert found == [list(build())] * 2
    assert os.listdir(path.parent) == ["squares"]


def test_ragged_batches_are_kept_in_a_file(tmp_path: Path) -> None:
    ds = ad.Dataset.range(6).map(lambda x: np.arange(x % 3)).ragged_batch(2)
    path = tmp_path / "kept"
    assert list(ds.cache(path)) == list(ds.cache(path)) == list(ds)


def shuffled_alone(path: Path) -> ad.Dataset:
    """Shuffled by a seed that is another one in each dataset."""
    return ad.Dataset.range(20).shuffle(20).cache(path)


STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "cache alone": lambda ds: ds,
    "unique": lambda ds: ds.unique(),
    "scan": lambda ds: ds.scan(0, lambda total, x: (total + x, total)),
    "scan of objects": lambda ds: ds.scan(object(), lambda state, x: (state, x)),
    "group_by_reducer": lambda ds: ds.group_by_reducer(
        lambda x: x % 10, ad.Reducer(lambda _: (), lambda found, x: (*found, x), lambda *found: found)
    ),
}
"""Steps that read their input again from its beginning, or may have to."""


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_state_is_refused_where_the_file_was_filled_in_another_order(tmp_path: Path, step: Any) -> None:
    def shuffled(path: Path) -> ad.Dataset[Any]:
        return step(shuffled_alone(path))

    numbers = iter(shuffled(tmp_path / "a"))
    first = [next(numbers) for _ in range(6)]
    state = numbers.state_dict()
    rest = list(numbers)
    assert list(shuffled(tmp_path / "a").iterate(state=state)) == rest
    (tmp_path / "b").mkdir()
    with shuffled(tmp_path / "b" / "a").iterate() as others:
        next(others)
    with pytest.raises(ad.ResumeError, match="in another order"):  # which has been begun
        list(shuffled(tmp_path / "b" / "a").iterate(state=state))
    list(shuffled(tmp_path / "b" / "a"))
    with pytest.raises(ad.ResumeError, match="in another order"):  # which is whole
        list(shuffled(tmp_path / "b" / "a").iterate(state=state))
    (tmp_path / "a").unlink()
    assert list(shuffled(tmp_path / "a").iterate(state=state)) == rest
    assert list(shuffled(tmp_path / "a")) == first + rest


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_state_of_a_reader_goes_on_in_the_order_of_the_file(tmp_path: Path, step: Any) -> None:
    """Its own seed is another one than the file's."""

    def shuffled(path: Path) -> ad.Dataset[Any]:
        return step(shuffled_alone(path))

    kept = list(shuffled(tmp_path / "a"))
    for whole in (True, False):
        numbers = iter(shuffled(tmp_path / "a"))
        assert [next(numbers) for _ in range(6)] == kept[:6]
        state = numbers.state_dict()
        assert list(numbers) == kept[6:]
        if not whole:
            (tmp_path / "a").unlink()
        assert list(shuffled(tmp_path / "a").iterate(state=state)) == kept[6:]


def test_a_file_that_was_filled_without_order_is_in_order(path: Path) -> None:
    base = ad.Dataset.range(40).map(lambda x: x, num_parallel_calls=4).cache(path)
    assert sorted(base.with_options(ad.Options(deterministic=False))) == list(range(40))
    assert list(base) == list(range(40))


@pytest.mark.parametrize(
    "change",
    [{"plan": 3}, {"plan": [3]}, {"contents": None}, {"shares": [[1]]}, {"shares": 5}, {"seeds": [["a", 1]]}, {"x": 1}],
    ids=str,
)
def test_a_heading_of_another_shape_is_refused(path: Path, change: dict[str, Any]) -> None:
    ds = ad.Dataset.range(5).shuffle(3, seed=1).cache(path)
    list(ds)
    head = RecordParser(str(path))
    head.feed(path.read_bytes())
    first, *rest = head.parse(100)
    told = {**json.loads(first.removeprefix(HEAD)), **change}
    path.write_bytes(b"".join(map(frame, [HEAD + json.dumps(told).encode(), *rest])))
    with pytest.raises(ad.ResumeError, match="not a cache file"):
        list(ad.Dataset.range(5).shuffle(3, seed=1).cache(path))

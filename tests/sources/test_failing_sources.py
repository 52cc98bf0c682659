"""What goes wrong with a source is raised, whatever leaves elements out of it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.cluster.test_calls import read_one
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import results

Make = Callable[[Path], ad.Dataset[Any]]


def lines(path: Path, count: int) -> Path:
    path.write_text("".join(f"{number}\n" for number in range(count)))
    return path


def failing() -> Iterator[int]:
    yield from range(3)
    raise ValueError("the generator fails")


async def failing_async() -> AsyncIterator[int]:
    for number in range(3):
        yield number
    raise ValueError("the generator fails")


class Failing:
    def __iter__(self) -> Iterator[int]:
        return failing()


class FailingAsync:
    def __aiter__(self) -> AsyncIterator[int]:
        return failing_async()


def corrupt_gzip(folder: Path) -> Path:
    content = bytearray(gzip.compress(b"".join(b"%d\n" % (number * 7919) for number in range(999))))
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    (folder / "corrupt.gz").write_bytes(content)
    return folder / "corrupt.gz"


def cut_gzip(folder: Path) -> Path:
    (folder / "cut.gz").write_bytes(gzip.compress(b"one\ntwo\n")[:-9])
    return folder / "cut.gz"


def no_gzip(folder: Path) -> Path:
    (folder / "none.gz").write_bytes(b"no gzip at all\n")
    return folder / "none.gz"


def corrupt_length(folder: Path) -> Path:
    path = folder / "records"
    with ad.TFRecordWriter(path) as writer:
        for number in range(3):
            writer.write(b"%d" % number)
    content = bytearray(path.read_bytes())
    content[2 * 17] ^= 1
    path.write_bytes(content)
    return path


def open_quote(folder: Path) -> Path:
    (folder / "a.csv").write_text('1\n"2\n3\n')
    return folder / "a.csv"


def table(folder: Path) -> str:
    path = str(folder / "a.db")
    sqlite3.connect(path).close()
    return path


SOURCES: dict[str, Make] = {
    "missing lines": lambda folder: ad.TextLineDataset(folder / "missing"),
    "missing records": lambda folder: ad.TFRecordDataset(folder / "missing"),
    "missing records by index": lambda folder: ad.TFRecordDataset(folder / "missing", index=True),
    "missing records of fixed length": lambda folder: ad.FixedLengthRecordDataset(folder / "missing", 4),
    "missing CSV": lambda folder: ad.experimental.CsvDataset(str(folder / "missing"), [0]),
    "a folder": lambda folder: ad.TextLineDataset(folder),
    "corrupt gzip": lambda folder: ad.TextLineDataset(corrupt_gzip(folder), "GZIP"),
    "cut-short gzip": lambda folder: ad.TextLineDataset(cut_gzip(folder), "GZIP"),
    "no gzip": lambda folder: ad.TFRecordDataset(no_gzip(folder), "GZIP"),
    "no whole number of records": lambda folder: ad.FixedLengthRecordDataset(lines(folder / "a", 5), 3),
    "corrupt length": lambda folder: ad.TFRecordDataset(corrupt_length(folder)),
    "corrupt length by index": lambda folder: ad.TFRecordDataset(corrupt_length(folder), index=True),
    "open quote": lambda folder: ad.experimental.CsvDataset(str(open_quote(folder)), [0]),
    "generator": lambda _: ad.Dataset.from_generator(failing),
    "iterable": lambda _: ad.Dataset.from_iterable(Failing()),
    "async iterable": lambda _: ad.Dataset.from_async_iterable(FailingAsync()),
    "query": lambda folder: ad.experimental.SqlDataset("sqlite", table(folder), "SELECT a FROM b", ("int64",)),
}

NUMBERS = ad.Dataset.range(50).map(lambda x: x)

STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "itself": lambda ds: ds,
    "map": lambda ds: ds.map(lambda *x: x, num_parallel_calls=2),
    "concatenate": lambda ds: ds.concatenate(NUMBERS),
    "flat_map": lambda ds: ad.Dataset.range(2).flat_map(lambda _: ds),
    "interleave": lambda ds: ad.Dataset.range(2).interleave(lambda _: ds, num_parallel_calls=2),
    "zip": lambda ds: ad.Dataset.zip(ad.Dataset.range(5000), ds),
    "repeat": lambda ds: ds.repeat(2),
    "shuffle": lambda ds: ds.shuffle(9999, seed=1),
    "sample": lambda ds: ad.Dataset.sample_from_datasets([ds, NUMBERS], seed=1),
    "window": lambda ds: ds.window(1, shift=3, drop_remainder=True).flat_map(lambda window: window),
    "window that is never full": lambda ds: ds.window(9999, drop_remainder=True).flat_map(lambda window: window),
    "filter": lambda ds: ds.filter(lambda *_: True),
    "batch": lambda ds: ds.batch(10_000, drop_remainder=True),
    "cache": lambda ds: ds.cache(),
    "enumerate": lambda ds: ds.enumerate(),
    "skip": lambda ds: ds.skip(2),
    "prefetch": lambda ds: ds.prefetch(3),
}


def errors(ds: ad.Dataset[Any]) -> set[str]:
    return {one.reason for one in results(ds) if isinstance(one, Failed)}


CASES = [
    *[(name, "itself") for name in SOURCES],
    *[(name, step) for name in ("missing lines", "corrupt gzip", "generator") for step in STEPS if step != "itself"],
]


@pytest.mark.parametrize(("name", "step"), first_by_default(CASES, len(SOURCES) + len(STEPS)))
def test_is_raised_whatever_is_left_out(tmp_path: Path, name: str, step: str) -> None:
    source = SOURCES[name](tmp_path)
    expected = errors(source)
    assert len(expected) == 1
    ds = STEPS[step](source)
    assert errors(ds.skip(1)) == errors(ds.skip(100_000)) == expected
    assert errors(ds.skip(2).skip(1)) == expected
    for how in ({}, {"drop_remainder": True}, {"pad_remainder": True}):
        assert [errors(ds.shard(3, index, **how)) for index in range(3)] == [expected] * 3


@pytest.mark.parametrize("index", range(3))
def test_is_raised_once_by_a_share_that_misses_an_element_in_the_last_row(index: int) -> None:
    """It does not make up for that element."""

    def fails() -> Iterator[int]:
        yield 0
        raise Boom("generator")

    ds = ad.Dataset.from_generator(fails).shard(3, index, pad_remainder=True)
    expected = [[(0, True)], [], []][index]
    found: list[Any] = []
    with ds.iterate() as elements:
        states = [elements.state_dict()]
        for _ in range(len(expected) + 1):
            found += read_one(elements)
            states.append(elements.state_dict())
        assert read_one(elements) == []
    assert found == [*expected, Failed("Boom('generator')")]
    for done, state in enumerate(states):
        with ds.iterate(state=json.loads(json.dumps(state))) as elements:
            assert [one for _ in found[done:] for one in read_one(elements)] == found[done:]
            assert read_one(elements) == []


@pytest.mark.parametrize("placement", ["current", "thread", "process"])
def test_has_one_position(tmp_path: Path, placement: Any) -> None:
    """So what `take` and `skip` give stays apart."""
    names = [tmp_path / "missing", lines(tmp_path / "a", 4)]
    ds = ad.TextLineDataset(names).with_options(ad.Options(placement=placement))
    lost = Failed("FileNotFoundError")
    assert results(ds.skip(2)) == [lost, b"1", b"2", b"3"]
    assert results(ds.take(2)) == [lost, b"0"]
    assert results(ds.shard(2, 0)) == [lost, b"1", b"3"]
    assert results(ds.shard(2, 1)) == [lost, b"0", b"2"]


@pytest.mark.parametrize("skip", range(7))
def test_a_state_goes_on_behind_it(tmp_path: Path, skip: int) -> None:
    names = [lines(tmp_path / "a", 2), tmp_path / "missing", lines(tmp_path / "b", 4)]
    for build in (
        lambda: ad.TextLineDataset(names).skip(skip),
        lambda: ad.TextLineDataset(names).shard(3, skip % 3),
        lambda: ad.TextLineDataset(names).shard(3, skip % 3, drop_remainder=True),
        lambda: ad.TextLineDataset(names).window(2, 1 + skip % 4).flat_map(lambda window: window),
    ):
        assert results(build()).count(Failed("FileNotFoundError")) == 1
        check_resumes(build)


def test_an_iterator_that_skips_raises_it(tmp_path: Path) -> None:
    iterator = ad.TextLineDataset([tmp_path / "missing", lines(tmp_path / "a", 4)]).iterate()
    with pytest.raises(FileNotFoundError):
        iterator.skip(3)
        next(iterator)
    assert next(iterator) == b"2"


def saved_without_a_file(folder: Path) -> ad.Dataset[Any]:
    ad.Dataset.range(9).save(folder / "saved", shard_func=lambda x: x % 3)
    sorted((folder / "saved").glob("*.tfrecord"))[1].unlink()
    return ad.Dataset.load(folder / "saved")


WITH_PLACES: dict[str, Make] = {
    "records of a size": lambda folder: ad.FixedLengthRecordDataset([folder / "missing", lines(folder / "a", 4)], 2),
    "a size that does not fit": lambda folder: ad.FixedLengthRecordDataset([lines(folder / "a", 4)] * 2, 3),
    "records": lambda folder: ad.TFRecordDataset([folder / "missing", corrupt_length(folder)], index=True),
    "lines of JSON": lambda folder: ad.JsonLinesDataset([folder / "missing", lines(folder / "a", 4)], index=True),
    "arrays": lambda folder: ad.NpyDataset([folder / "missing"], index=True),
    "saved": saved_without_a_file,
}
"""Sources that know where their elements are, so that an iterator skips them without reading."""


@pytest.mark.parametrize("step", ["take", "repeat", "assert_cardinality", "concatenate"])
def test_an_iterator_that_skips_beyond_an_end_raises_it(tmp_path: Path, step: str) -> None:
    ds: ad.Dataset[Any] = ad.TextLineDataset([tmp_path / "missing", lines(tmp_path / "a", 4)])
    made = {
        "take": ds.take(8),
        "repeat": ds.assert_cardinality(5).repeat(2),
        "assert_cardinality": ds.assert_cardinality(5),
        "concatenate": ds.assert_cardinality(5).concatenate(ad.Dataset.range(3)),
    }[step]
    iterator = made.iterate()
    with pytest.raises(FileNotFoundError):
        iterator.skip(100)
        next(iterator)


@pytest.mark.parametrize("step", ["none", "concatenate", "repeat", "take", "shuffle"])
@pytest.mark.parametrize("name", WITH_PLACES)
def test_an_iterator_that_skips_without_reading_raises_it(tmp_path: Path, name: str, step: str) -> None:
    ds = WITH_PLACES[name](tmp_path)
    made = {
        "none": ds,
        "concatenate": ds.concatenate(ad.Dataset.range(3)),
        "repeat": ds.repeat(2),
        "take": ds.take(8),
        "shuffle": ds.shuffle(seed=1) if step == "shuffle" else ds,
    }[step]
    iterator = made.iterate()
    iterator.skip(100)
    with pytest.raises((FileNotFoundError, ad.DataLossError)):
        next(iterator)


def test_a_failed_element_is_left_out() -> None:
    ds = ad.Dataset.range(4).map(lambda x: 1 // x)
    assert results(ds.skip(1)) == [1, 0, 0]
    assert results(ds.shard(2, 1)) == [1, 0]


def test_ignore_errors_drops_it(tmp_path: Path) -> None:
    assert list(ad.TextLineDataset([tmp_path / "missing", lines(tmp_path / "a", 2)]).ignore_errors()) == [b"0", b"1"]

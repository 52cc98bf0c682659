"""Where elements came from: the origin of each, its records in words, and the element once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.recorder.locations import words_of_record
from tests.pages import check_examples

SUM = ad.Reducer(lambda key: 0, lambda state, x: state + x, int)


def origins_of(ds: ad.Dataset[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    elements: list[Any] = []
    origins: list[dict[str, Any]] = []
    with ds.iterate() as iterator:
        for element in iterator:
            elements.append(element)
            origins.append(json.loads(json.dumps(iterator.origin())))
    return elements, origins


def write_files(folder: Path, files: int = 3, records: int = 5) -> list[str]:
    paths = [str(folder / f"{number}.tfrecord") for number in range(files)]
    for number, path in enumerate(paths):
        with ad.TFRecordWriter(path) as writer:
            for record in range(records):
                writer.write(b"%d-%d" % (number, record))
    return paths


def words(ds: ad.Dataset[Any], origin: dict[str, Any]) -> list[str]:
    return [words_of_record(record) for record in ds.locate(origin)]


@pytest.mark.parametrize(("placement", "reads"), [("thread", None), ("thread", 2), ("current", None), ("process", 2)])
def test_a_record_of_a_file_is_named_by_file_and_number(tmp_path: Path, placement: Any, reads: int | None) -> None:
    write_files(tmp_path)
    files = ad.Dataset.list_files(str(tmp_path / "*.tfrecord"), shuffle=False)
    ds = ad.TFRecordDataset(files, num_parallel_reads=reads).shuffle(8, seed=2).filter(lambda x: x != b"1-1")
    ds = ds.batch(3).with_options(ad.Options(placement=placement))
    batches, origins = origins_of(ds)
    for batch, origin in zip(batches, origins, strict=True):
        expected = [Path(one["file"]).stem + f"-{one['record']}" for one in ds.locate(origin)]
        assert [record.decode() for record in batch.tolist()] == expected
    assert [one.tolist() for one in ds.replay(origins[::-1])] == [one.tolist() for one in batches[::-1]]


def test_names_of_files_are_known_through_shuffle_and_repeat(tmp_path: Path) -> None:
    paths = write_files(tmp_path)
    names = ad.Dataset.from_tensor_slices(paths).repeat(2).shuffle(6, seed=1)
    ds = ad.TFRecordDataset(names)
    elements, origins = origins_of(ds)
    for element, origin in zip(elements, origins, strict=True):
        (record,) = ds.locate(origin)
        assert element.decode() == f"{Path(record['file']).stem}-{record['record']}"
        assert record["turn"] in (0, 1)


INSIDE = "inside {'of': [0, 1, 2]}"

STEPS = [
    (lambda: ad.Dataset.range(6).map(abs, num_parallel_calls=2), 2, ["range(6) index 2"]),
    (lambda: ad.Dataset.from_list(["a", "b"]).skip(1).enumerate(5), 0, ["from_list(2 elements) index 1"]),
    (lambda: ad.Dataset.range(4).batch(2).unbatch(), 3, ["range(4) index 3"]),
    (
        lambda: ad.Dataset.range(4).batch(2).map(np.flip).unbatch(),
        0,
        [f"range(4) index {index}, row 0" for index in (0, 1)],
    ),
    (lambda: ad.Dataset.range(2).concatenate(ad.Dataset.range(3)), 3, ["range(3) index 1, dataset 1"]),
    (
        lambda: ad.Dataset.zip((ad.Dataset.range(2), ad.Dataset.range(3))),
        1,
        ["range(2) index 1, dataset 0", "range(3) index 1, dataset 1"],
    ),
    (lambda: ad.Dataset.range(2).flat_map(lambda x: ad.Dataset.range(3)), 4, ["range(2) index 1, inside 1"]),
    (lambda: ad.Dataset.range(4).cache().repeat(2), 5, ["range(4) index 1, turn 1"]),
    (
        lambda: ad.Dataset.range(5).window(3, shift=1).flat_map(lambda window: window.batch(3)),
        1,
        [f"range(5) index {index}, {INSIDE}" for index in (1, 2, 3)],
    ),
    (lambda: ad.Dataset.range(3).group_by_reducer(lambda x: x % 2, SUM), 0, ["unknown"]),
]


@pytest.mark.parametrize(("build", "step", "expected"), STEPS)
def test_each_step_says_where_its_elements_came_from(build: Any, step: int, expected: list[str]) -> None:
    ds = build()
    _, origins = origins_of(ds)
    found = words(ds, origins[step])
    assert [one if "unknown" not in one else "unknown" for one in found] == expected


def test_a_packed_row_names_the_tokens_of_a_sequence_that_was_cut() -> None:
    sequences = [np.arange(10, 15), np.arange(20, 25), np.arange(30, 32)]
    rows, origins = origins_of(ad.Dataset.from_list(sequences).pack_sequences(4, overlong="split"))
    ds = ad.Dataset.from_list(sequences).pack_sequences(4, overlong="split")
    for row, origin in zip(rows, origins, strict=True):
        tokens: list[int] = []
        for record in ds.locate(origin):
            tokens += sequences[record["index"]][slice(*record.get("tokens", [None]))].tolist()
        assert row["inputs"].tolist()[: len(tokens)] == tokens


def test_an_element_that_failed_has_an_origin_and_fails_again() -> None:
    ds = ad.Dataset.range(4).map(lambda x: 1 // (x - 2))
    with ds.iterate() as elements:
        next(elements), next(elements)
        with pytest.raises(ZeroDivisionError):
            next(elements)
        origin = elements.origin()
    with ds.replay([origin, {**origin, "ticket": 3}]) as again:
        with pytest.raises(ZeroDivisionError):
            next(again)
        assert list(again) == [1]


def test_an_origin_is_asked_for_after_an_element() -> None:
    with ad.Dataset.range(4).iterate() as elements, pytest.raises(LookupError, match="no element was read"):
        elements.origin()


def test_nothing_else_is_read_or_made_where_the_source_has_random_access() -> None:
    made: list[int] = []
    ds = ad.Dataset.range(10**9).shuffle(seed=3).map(lambda x: made.append(x) or x).batch(2)
    with ds.iterate() as batches:
        batches.skip(400_000_000)
        batch, origin = next(batches), batches.origin()
    made.clear()
    assert next(ds.replay([origin])).tolist() == batch.tolist()
    assert len(made) == 2


def test_each_rank_and_epoch_replays_anywhere() -> None:
    def share(index: int) -> ad.Dataset[Any]:
        return (
            ad.Dataset.range(20)
            .shuffle(20, seed=1)
            .shard(2, index)
            .map(lambda x, rng: (x, rng.random()), rng=True, seed=2)
        )

    found: list[Any] = []
    origins: list[Any] = []
    for index in range(2):
        ds = share(index)
        for _ in range(2):
            elements, some = origins_of(ds)
            found += elements
            origins += some
    order = np.random.default_rng(1).permutation(len(found))
    assert list(share(0).replay([origins[place] for place in order])) == [found[place] for place in order]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plan": ["range(5)"]}, "of another pipeline"),
        ({"ticket": "x"}, "no element of this source"),
        ({"ticket": 9}, "element 9"),
        ({"ticket": {"what": 1}}, "does not fit"),
        ({"epoch": "0"}, "'epoch' should be int"),
    ],
)
def test_an_origin_of_something_else_is_an_error(change: dict[str, Any], message: str) -> None:
    ds = ad.Dataset.range(4)
    with ds.iterate() as elements:
        next(elements)
        origin = elements.origin()
    with pytest.raises(ad.ResumeError, match=message):
        list(ds.replay([{**origin, **change}]))
    with pytest.raises(ad.PlanError, match="put it into a list"):
        ds.replay(origin)


def test_what_can_be_read_only_once_says_which_step_cannot_be_replayed() -> None:
    ds = ad.Dataset.from_iterable(iter(range(3)))
    with ds.iterate() as elements:
        next(elements)
        origin = elements.origin()
    with pytest.raises(ad.ResumeError, match="step 0 cannot be replayed"):
        ds.replay([origin])


def test_a_channel_that_stores_nothing_says_which_step_cannot_be_replayed() -> None:
    channel = ad.Channel(4)
    channel.send_nowait([3, 4])
    channel.close()
    ds = ad.Dataset.from_channel(channel)
    with ds.iterate() as items:
        next(items), next(items)
        origin = items.origin()
    assert ds.locate(origin) == [{"source": "from_channel(Channel)", "index": 1}]
    with pytest.raises(ad.ResumeError, match="step 1 cannot be replayed"):
        ds.replay([origin])


def test_an_element_that_is_not_there_any_more_says_which_step_it_was(tmp_path: Path) -> None:
    (path,) = write_files(tmp_path, 1, 5)
    _, origins = origins_of(ad.TFRecordDataset(path))
    (path,) = write_files(tmp_path, 1, 3)
    with ad.TFRecordDataset(path).replay([origins[1], origins[4]]) as again:
        assert next(again) == b"0-1"
        with pytest.raises(ad.ResumeError, match="element 4 existed") as raised:
            next(again)
    assert "step 4 of epoch 0 was to be replayed" in raised.value.__notes__


def test_the_examples_of_the_page_print_what_it_says() -> None:
    check_examples("recorder.md")

"""Datasets of Hugging Face and of PyTorch: any row by its number, and streams that go on exactly."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import StageError
from asyncdata.sources.hugging_face_rows import TableRows, rows_getter
from asyncdata.testing import check_resumes

ROWS = 300


def table() -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"x": [*range(ROWS)], "name": [f"#{number}" for number in range(ROWS)]})


def expected(number: int) -> dict[str, Any]:
    return {"x": number, "name": f"#{number}"}


class MapStyle:
    """As PyTorch's datasets are, which count how they are asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        if index == 150:
            raise ValueError("150")
        return index * index

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        self.asked.append(len(indices))
        return [self[index] for index in indices]


def test_getitems_gets_many_at_once_and_failures_stay_in_their_places() -> None:
    source = MapStyle()
    ds = ad.Dataset.from_source(source)
    found = list(ds.ignore_errors())
    assert found == [index * index for index in range(ROWS) if index != 150]
    assert max(source.asked) > 1
    with pytest.raises(ValueError, match="150"):
        ds[150]
    assert ds[7] == 49


class Columns(MapStyle):
    def __getitems__(self, indices: Sequence[int]) -> Any:
        return {index: index for index in indices}


def test_what_is_no_list_of_elements_is_an_error() -> None:
    """As many names as there are indices are no elements, nor are the splits of a `DatasetDict`."""
    with pytest.raises(StageError, match="it returned a dict for"):
        list(ad.Dataset.from_source(Columns()))
    with pytest.raises(ad.PlanError, match=r"this dict has names, \['train'\]; give one of its values, such as source"):
        ad.Dataset.from_source({"train": [1, 2]})  # type: ignore[arg-type]
    assert list(ad.Dataset.from_source({0: "a", 1: "b"})) == ["a", "b"]


@pytest.mark.torch
def test_datasets_of_pytorch() -> None:
    data = pytest.importorskip("torch.utils.data")
    subset = data.Subset(MapStyle(), [5, 3, 2])
    assert list(ad.Dataset.from_source(subset)) == [25, 9, 4]


@pytest.mark.formats
def test_rows_in_any_order() -> None:
    ds = ad.Dataset.from_source(table())
    assert list(ds) == [expected(number) for number in range(ROWS)]
    assert ds[7] == expected(7)
    assert sorted(row["x"] for row in ds.shuffle(seed=1)) == [*range(ROWS)]
    check_resumes(lambda: ad.Dataset.from_source(table()).shuffle(seed=1), places=20)
    batch = next(iter(ad.Dataset.from_source(table().with_format("numpy")).batch(4)))
    assert np.array_equal(batch["x"], np.arange(4))


def kinds() -> Any:
    """Rows with values of all kinds, one of which is made from others where it is read."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "label": datasets.ClassLabel(names=["a", "b"]),
            "matrix": datasets.Array2D((2, 2), "float32"),
            "parts": [{"text": datasets.Value("string"), "at": datasets.Value("timestamp[ns]")}],
            "picture": datasets.Image(),
            "missing": datasets.Value("int16"),
        }
    )
    picture = {"bytes": PNG, "path": None}
    rows = [
        {
            "label": number % 2,
            "matrix": [[number, 1], [2, 3]],
            "parts": [{"text": "x" * number, "at": number}] * (number % 3),
            "picture": picture if number % 4 else None,
            "missing": number if number % 5 else None,
        }
        for number in range(40)
    ]
    return datasets.Dataset.from_list(rows, features=features)


PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc`\0\0\0\x02\0\x01H\xaf"
    b"\xa4q\0\0\0\0IEND\xaeB`\x82"
)


def spelled(row: Any) -> str:
    """A row as text, with the pixels and mode of a picture in its place."""
    picture = row.get("picture")
    return repr({**row, "picture": (picture.mode, picture.tobytes())} if hasattr(picture, "tobytes") else row)


@pytest.mark.formats
@pytest.mark.parametrize(
    "source",
    [
        lambda: kinds(),
        lambda: kinds().select([5, 3, 3, 7, 8, 9]),
        lambda: kinds().shuffle(seed=1),
        lambda: pytest.importorskip("datasets").concatenate_datasets([kinds(), kinds().select([1, 2])]),
        lambda: kinds().remove_columns(["picture", "matrix"]),
    ],
    ids=["all", "selected", "shuffled", "in pieces", "without decoding"],
)
def test_many_rows_at_once_are_what_each_one_is(source: Callable[[], Any]) -> None:
    rows = source()
    get = rows_getter(rows)
    assert isinstance(get, TableRows)
    numbers = [*range(len(rows))]
    for asked in (numbers, numbers[::-1], numbers[2:5], [1, 1, 0], [3]):
        expected = [spelled(rows[number]) for number in asked]
        assert [*map(spelled, get(asked))] == expected
        assert [*map(spelled, pickle.loads(pickle.dumps(get))(asked))] == expected
    assert [*map(spelled, ad.Dataset.from_source(rows))] == [spelled(row) for row in rows]


@pytest.mark.formats
@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.with_format("numpy"),
        lambda rows: rows.with_format(None, columns=["x"]),
        lambda rows: rows.with_transform(lambda batch: batch),
        lambda rows: rows.remove_columns(["x", "name"]),
    ],
    ids=["a format", "some columns", "a transform", "no columns"],
)
def test_rows_with_a_format_are_left_to_the_source(change: Callable[[Any], Any]) -> None:
    assert not isinstance(rows_getter(change(table())), TableRows)


@pytest.mark.formats
def test_other_rows_have_another_fingerprint() -> None:
    pytest.importorskip("datasets")
    assert ad.Dataset.from_source(table()).fingerprint() == ad.Dataset.from_source(table()).fingerprint()
    other = table().select(range(1, ROWS))
    assert ad.Dataset.from_source(table()).fingerprint() != ad.Dataset.from_source(other).fingerprint()


def concatenated() -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.interleave_datasets([table().to_iterable_dataset(2), table().to_iterable_dataset(3)])


STREAMS: dict[str, Callable[[], Any]] = {
    "plain": lambda: table().to_iterable_dataset(num_shards=3),
    "mapped": lambda: table().to_iterable_dataset(num_shards=3).map(lambda row: {"y": row["x"] + 1}),
    "filtered": lambda: table().to_iterable_dataset(num_shards=3).filter(lambda row: row["x"] % 3),
    "in batches": lambda: table().to_iterable_dataset(num_shards=3).batch(7),
    "skipped": lambda: table().to_iterable_dataset(num_shards=3).skip(5).take(100),
    "shuffled": lambda: table().to_iterable_dataset(num_shards=3).shuffle(seed=3, buffer_size=20),
    "shuffled, mapped": lambda: STREAMS["shuffled"]().map(lambda row: {"y": row["x"]}),
    "interleaved": concatenated,
    "shuffled, interleaved": lambda: concatenated().shuffle(seed=1, buffer_size=10),
}


@pytest.mark.formats
@pytest.mark.parametrize("name", STREAMS)
def test_streams_go_on_exactly(name: str, caplog: pytest.LogCaptureFixture) -> None:
    found = list(ad.Dataset.from_iterable(STREAMS[name]()))
    assert [str(row) for row in found] == [str(row) for row in STREAMS[name]()]
    check_resumes(lambda: ad.Dataset.from_iterable(STREAMS[name]()), places=15)
    check_resumes(lambda: ad.Dataset.from_iterable(STREAMS[name]()).shuffle(10, seed=2).batch(4), places=6)
    assert not [record for record in caplog.records if "without the buffer content" in record.message]


@pytest.mark.formats
@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_are_left_early_begin_again(name: str) -> None:
    """Runs of one stream share a state, so one that begins must not meet the end of the last."""
    count = 6 if name == "in batches" else 30
    ds = ad.Dataset.from_iterable(STREAMS[name]()).prefetch(20).take(count).repeat(4)
    first = [str(row) for row in islice(STREAMS[name](), count)]
    for _ in range(5):
        assert [str(row) for row in ds] == first * 4


@pytest.mark.formats
@pytest.mark.parametrize("name", STREAMS)
def test_epochs_after_one_that_resumed_are_whole(name: str) -> None:
    ds = ad.Dataset.from_iterable(STREAMS[name]())
    whole = [str(row) for row in STREAMS[name]()]
    with ds.iterate() as rows:
        state = [next(rows) for _ in range(12)] and rows.state_dict()
    assert [str(row) for row in ds.iterate(state=state)] == whole[12:]
    assert [str(row) for row in ds] == whole
    repeated = ad.Dataset.from_iterable(STREAMS[name]()).repeat(2)
    with repeated.iterate() as rows:
        state = [next(rows) for _ in range(12)] and rows.state_dict()
    assert [str(row) for row in repeated.iterate(state=state)] == [*whole[12:], *whole]


@pytest.mark.formats
def test_a_stream_that_its_user_set_to_a_state_stays_there() -> None:
    stream = STREAMS["plain"]()
    assert len([*zip(stream, range(50), strict=False)]) == 50
    state = stream.state_dict()
    stream.load_state_dict(state)
    rest = [str(row) for row in stream]
    ds = ad.Dataset.from_iterable(stream)
    for _ in range(2):
        assert [str(row) for row in ds] == rest


@pytest.mark.formats
@pytest.mark.filterwarnings("ignore:make_block is deprecated")  # by pandas 3, which pyarrow 15 does not know
def test_files_that_it_keeps_are_read_by_us(tmp_path: Path) -> None:
    """Its cache is Arrow's streams, its exports Parquet and JSON Lines."""
    table().save_to_disk(tmp_path / "saved")
    (name,) = (tmp_path / "saved").glob("*.arrow")
    table().to_parquet(str(tmp_path / "a.parquet"))
    table().to_json(str(tmp_path / "a.jsonl"))
    for ds in (
        ad.ArrowDataset(name),
        ad.ParquetDataset(tmp_path / "a.parquet"),
        ad.JsonLinesDataset(tmp_path / "a.jsonl"),
    ):
        assert list(ds) == [expected(number) for number in range(ROWS)]


@pytest.mark.formats
@pytest.mark.parametrize(
    ("stored", "batch"),
    [
        pytest.param([16_777_217, None], np.array([16_777_217, None]), id="missing"),
        pytest.param([2**40 + 1], np.array([2**40 + 1]), id="int64"),
        pytest.param([0.1], np.array([0.1]), id="float64"),
        pytest.param([b"ab\0\0"], np.array([b"ab\0\0"], object), id="bytes"),
    ],
)
def test_without_a_format_values_are_what_was_stored(stored, batch):
    """What datasets 5.2 changes with its formats: the table in docs/formats.md."""
    datasets = pytest.importorskip("datasets")
    ds = ad.Dataset.from_source(datasets.Dataset.from_dict({"value": stored}))
    assert [row["value"] for row in ds] == list(stored)
    (found,) = ds.batch(len(stored))
    assert found["value"].dtype == batch.dtype
    assert found["value"].tolist() == batch.tolist()


@pytest.mark.formats
def test_without_a_format_large_integers_are_themselves():
    datasets = pytest.importorskip("datasets")
    ds = ad.Dataset.from_source(datasets.Dataset.from_dict({"value": np.array([2**63 + 5], np.uint64)}))
    assert [row["value"] for row in ds] == [2**63 + 5]
    with pytest.raises(ad.StructureError, match="does not fit int64"):
        list(ds.batch(1))
    (found,) = ds.map(lambda row: np.uint64(row["value"])).batch(1)
    assert found.dtype == np.uint64


@pytest.mark.parametrize("first", [0.5, 16_777_217])
def test_a_batch_of_numbers_does_not_depend_on_their_order(first):
    numbers = sorted([0.5, 16_777_217], key=lambda number: number != first)
    (found,) = ad.Dataset.from_iterable(numbers).batch(2)
    assert found.dtype == np.float64
    assert found.tolist() == numbers

"""Lance datasets as users read them, written by the package with its options, on this machine."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.sources.lance_table import FIRST, LanceTable
from asyncdata.testing import check_resumes
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import WAYS, results

pa: Any = pytest.importorskip("pyarrow")
lance: Any = pytest.importorskip("lance")

pytestmark = pytest.mark.formats

ROWS = 40
LEFT = [number for number in range(ROWS) if number % 7 != 3]
"""The rows that are not deleted."""

LOST = Failed("DataLossError")


def table(rows: int = ROWS, begin: int = 0) -> Any:
    numbers = np.arange(begin, begin + rows)
    columns = {
        "id": numbers,
        "name": [f"#{number}" for number in numbers],
        "point": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * rows, dtype=np.float32)), 2),
    }
    return pa.table(columns)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A dataset of four fragments, without some rows."""
    path = tmp_path / "a.lance"
    lance.write_dataset(table(), path, max_rows_per_file=11).delete("id % 7 = 3")
    return path


def ids(ds: ad.Dataset[Any]) -> list[Any]:
    return [one if isinstance(one, Failed) else int(one["id"]) for one in results(ds)]


@pytest.mark.parametrize("way", WAYS)
def test_rows_in_any_order(path: Path, way: Any) -> None:
    ds = ad.LanceDataset(path, ["name", "id"])
    expected = [{"name": f"#{number}", "id": number} for number in LEFT]
    assert way(ds) == expected
    assert len(ds) == len(LEFT)
    assert ds[-1] == expected[-1]
    assert [one["id"] for one in way(ds.shuffle(seed=1))] != LEFT
    assert sorted(one["id"] for one in way(ds.shuffle(seed=1))) == LEFT
    batches = way(ds.batch(9))
    assert [batch["id"].tolist() for batch in batches] == [LEFT[at : at + 9] for at in range(0, len(LEFT), 9)]


@pytest.mark.parametrize("way", WAYS)
def test_filtered_rows(path: Path, way: Any) -> None:
    ds = ad.LanceDataset(path, ["id"], "id % 3 = 0 AND name <> '#6'")
    expected = [number for number in LEFT if number % 3 == 0 and number != 6]
    assert [one["id"] for one in way(ds)] == expected
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert ids(ad.LanceDataset(path, filters="id > 99")) == []
    assert ids(ad.LanceDataset(path, filters="name in ('#5', ') random(') -- (a comment)")) == [5]
    with pytest.raises(ad.PlanError, match="random access"):
        ds[0]


def test_rows_of_old_files_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of these the package has no filter by numbers; Lance 0.7 did not store how many rows were deleted."""
    path = tmp_path / "a.lance"
    lance.write_dataset(table(), path, max_rows_per_file=11, data_storage_version="legacy").delete("id % 7 = 3")
    asked, read = list[int](), LanceTable.read

    def counted(table: LanceTable, rows: Sequence[int]) -> Any:
        asked.append(len(rows))
        return read(table, rows)

    monkeypatch.setattr(LanceTable, "read", counted)
    check_legacy(path)
    assert sum(asked) < 300, "rows that were asked for together were read one by one"
    (manifest,) = (path / "_versions").glob("18446744073709551613.manifest")  # of version 2
    manifest.write_bytes(re.sub(rb"\x20([\x01\x02\x07\x0b])", rb"x\1", manifest.read_bytes()))  # unknown fields now
    metadata = lance.dataset(path).get_fragments()[0].metadata
    assert metadata.physical_rows is metadata.deletion_file.num_deleted_rows is None
    check_legacy(path)


def check_legacy(path: Path) -> None:
    ds = ad.LanceDataset(path, ["name", "id"])
    assert ids(ds) == LEFT
    assert sorted(ids(ds.shuffle(seed=1))) == LEFT != ids(ds.shuffle(seed=1))
    assert ids(ad.LanceDataset(path, filters="id % 2 = 0")) == [number for number in LEFT if number % 2 == 0]


def test_resumes_at_each_row(path: Path) -> None:
    check_resumes(lambda: ad.LanceDataset(path), places=ROWS)
    check_resumes(lambda: ad.LanceDataset(path, ["id"], "id % 2 = 0"), places=ROWS)
    check_resumes(lambda: ad.LanceDataset(path, filters="id % 2 = 0").shuffle(5, seed=2), places=ROWS)
    check_resumes(lambda: ad.LanceDataset(path, ["id"]).shuffle(seed=1).shard(2, 1).batch(3), places=5)


def test_a_state_needs_the_rows_that_it_was_made_with(path: Path) -> None:
    with ad.LanceDataset(path).iterate() as rows:
        assert [int(next(rows)["id"]) for _ in range(5)] == LEFT[:5]
        state = rows.state_dict()
    lance.dataset(path).create_scalar_index("id", "BTREE")  # a new version with the same rows
    assert [int(row["id"]) for row in ad.LanceDataset(path).iterate(state=state)] == LEFT[5:]
    lance.write_dataset(table(5, ROWS), path, mode="append")
    with pytest.raises(ad.ResumeError, match="to continue, read the version of the state: version=3"):
        next(ad.LanceDataset(path).iterate(state=state))
    assert [int(row["id"]) for row in ad.LanceDataset(path, version=2).iterate(state=state)] == LEFT[5:]
    lance.dataset(path).tags.create("train", 3)
    assert [int(row["id"]) for row in ad.LanceDataset(path, version="train").iterate(state=state)] == LEFT[5:]
    assert len(ad.LanceDataset(path)) == len(LEFT) + 5
    shutil.rmtree(path)
    lance.write_dataset(table(), path)
    with pytest.raises(ad.ResumeError, match="no version with those of the state is there"):
        next(ad.LanceDataset(path).iterate(state=state))


def test_a_run_reads_one_version(path: Path) -> None:
    ds = ad.LanceDataset(path)
    rows = iter(ds)
    next(rows)
    lance.dataset(path).delete("id >= 0")
    assert [int(row["id"]) for row in rows] == LEFT[1:]
    assert ids(ds.shuffle(seed=0).map(lambda row: row)) != LEFT
    assert ids(pickle.loads(pickle.dumps(ds))) == LEFT
    sent = pickle.dumps(ds)
    shutil.rmtree(path)
    lance.write_dataset(table(), path)
    lance.write_dataset(table(), path, mode="append")
    with pytest.raises(ad.DataLossError, match="version 2 is another one than when the dataset was made"):
        pickle.loads(sent)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"columns": "id"}, "must be a list of names"),
    ({"columns": []}, "must be a list of names"),
    ({"columns": ["none"]}, r"No field named none.* The columns are \['id'"),
    ({"filters": "none > 3"}, "No field named none"),
    ({"filters": "id >"}, "Error parsing statement"),
    ({"filters": 3}, "must be a condition in SQL"),
    ({"filters": "id < 5) OR (id > 10"}, "a bracket is closed that was not opened"),
    ({"filters": "id < 5 AND Random () < 0.5"}, r"Random\(\) gives other rows each time"),
    ({"columns": ["id", "_rowaddr"]}, "cannot have _rowaddr"),
    ({"version": 1.5}, "must be a number or a tag"),
]


def test_wrong_arguments(path: Path) -> None:
    for how, message in WRONG:
        with pytest.raises(ad.PlanError, match=message):
            ad.LanceDataset(path, **how)
    for where, version in ((path.with_name("none"), None), (path, 77), (path, "none")):
        with pytest.raises(FileNotFoundError, match="LanceDataset"):
            ad.LanceDataset(where, version=version)
    with pytest.raises(FileNotFoundError, match=r"has no version 77: the newest is \d+, .* the tags are \["):
        ad.LanceDataset(path, version=77)
    with pytest.raises(NotADirectoryError, match="a Lance dataset is a folder"):
        ad.LanceDataset(__file__)
    with pytest.raises(ad.PlanError, match=r"LanceDataset takes one path or URL, got list: .*concatenate"):
        ad.LanceDataset([path])  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="reads local folders and s3"):
        ad.LanceDataset("http://example.org/a.lance")


def files_below(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file())


@pytest.mark.parametrize("version", first_by_default(["2.1", "legacy", "2.0", "2.2"], 1))
def test_cut_at_every_97th_byte(path: Path, version: str) -> None:
    """Each row is the right one or an error, in its place; a table without its list of fragments cannot be opened."""
    shutil.rmtree(path)
    lance.write_dataset(table(), path, max_rows_per_file=11, data_storage_version=version).delete("id % 7 = 3")
    for file in files_below(path):
        content = file.read_bytes()
        for end in range(0, len(content), 97):
            file.write_bytes(content[:end])
            try:
                found = ids(ad.LanceDataset(path))
            except ad.DataLossError:
                assert "_versions" in file.parts
                continue
            assert all(one in (number, LOST) for one, number in zip(found, LEFT, strict=True))
            assert (LOST in found) == (file.parent.name in ("data", "_deletions"))
        file.write_bytes(content)


def test_a_fragment_that_is_damaged_or_gone(path: Path) -> None:
    """Each of its rows is an error in its place; with a filter, the rest of it is one."""
    file = files_below(path / "data")[0]
    file.unlink()
    found = ids(ad.LanceDataset(path))
    there = [one for one in found if one != LOST]
    assert len(there) < len(found) == len(LEFT)
    assert all(one in (number, LOST) for one, number in zip(found, LEFT, strict=True))
    assert ids(ad.LanceDataset(path).shuffle(seed=0)).count(LOST) == found.count(LOST)
    filtered = ids(ad.LanceDataset(path, filters="id >= 0"))
    assert [one for one in filtered if one != LOST] == there
    assert len(filtered) == len(there) + 1
    with pytest.raises(ad.DataLossError, match=r"a\.lance: rows? \d+.* cannot be read: .*Not found"):
        list(ad.LanceDataset(path))
    check_resumes(lambda: ad.LanceDataset(path).ignore_errors(), places=10)
    check_resumes(lambda: ad.LanceDataset(path, filters="id >= 0").ignore_errors(), places=10)


def test_two_fragments_of_one_number(path: Path) -> None:
    """As in tables that old versions damaged, where the package reads some of their rows and not others."""
    fragments = lance.dataset(path).get_fragments()
    with (
        mock.patch.object(lance.LanceDataset, "get_fragments", return_value=[*fragments, fragments[1]]),
        pytest.raises(ad.DataLossError, match=r"a\.lance: two of its fragments have one number: \[0, 1, .*, 1\]"),
    ):
        ad.LanceDataset(path)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_are_bytes(tmp_path: Path, version: str) -> None:
    blobs = [None if n % 7 == 5 else b"" if n % 7 == 6 else bytes([n]) * 100 * n for n in range(30)]
    kind = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    column = pa.array(blobs, pa.large_binary())
    if version == "2.2":
        kind, column = lance.blob_field("blob"), lance.blob_array(blobs)
    rows = pa.table([pa.array(range(30)), column], pa.schema([pa.field("id", pa.int64()), kind]))
    lance.write_dataset(rows, tmp_path / "a", max_rows_per_file=11, data_storage_version=version)
    assert [row["blob"] for row in ad.LanceDataset(tmp_path / "a")] == blobs
    ds = ad.LanceDataset(tmp_path / "a").shuffle(seed=1)
    assert [row["blob"] for row in sorted(ds, key=lambda row: row["id"])] == blobs
    assert ad.LanceDataset(tmp_path / "a", ["blob"])[3] == {"blob": blobs[3]}


def test_compacted_fragments_and_rows_of_several_columns(path: Path) -> None:
    """Fragments keep their order, not their numbers; a column is added in files of its own."""
    dataset = lance.write_dataset(table(20, ROWS), path, mode="append", max_rows_per_file=7)
    dataset.add_columns({"double": "id * 2"})
    dataset.optimize.compact_files(target_rows_per_fragment=12)
    expected = lance.dataset(path).to_table()["id"].to_pylist()
    assert sorted(expected) == [*LEFT, *range(ROWS, ROWS + 20)]
    ds = ad.LanceDataset(path)
    assert ids(ds) == [int(ds[place]["id"]) for place in range(len(ds))] == expected
    assert [row["double"] for row in ds] == [2 * number for number in expected]
    assert ids(ad.LanceDataset(path, filters="double >= 0")) == expected
    check_resumes(lambda: ad.LanceDataset(path, filters="double % 4 = 0"), places=ROWS)


def test_rows_may_be_changed(path: Path) -> None:
    for ds in (ad.LanceDataset(path), ad.LanceDataset(path).shuffle(seed=1)):
        for row in ds:
            row["point"][...] = 7
    assert ad.LanceDataset(path)[0]["point"].tolist() == [0, 1]


def test_more_rows_are_read_at_once_from_the_first_epoch_on(tmp_path: Path) -> None:
    lance.write_dataset(table(3000), tmp_path / "a")
    ds = ad.LanceDataset(tmp_path / "a")
    with mock.patch.object(LanceTable, "read", autospec=True, side_effect=LanceTable.read) as read:
        assert ids(ds) == [*range(3000)]
    sizes = [len(call.args[1]) for call in read.call_args_list]
    assert sizes[0] == FIRST
    assert all(after >= 4 * before for before, after in pairwise(sizes[:-1]))


def test_a_table_without_rows(tmp_path: Path) -> None:
    lance.write_dataset(table(0), tmp_path / "a")
    for ds in (ad.LanceDataset(tmp_path / "a"), ad.LanceDataset(tmp_path / "a", filters="id > 0")):
        assert list(ds.batch(2)) == []
    assert len(ad.LanceDataset(tmp_path / "a")) == 0

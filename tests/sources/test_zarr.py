"""Arrays and groups of Zarr as users read them by path or URL, written by the package with its options."""

from __future__ import annotations

import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results

zarr: Any = pytest.importorskip("zarr")

pytestmark = [
    pytest.mark.formats,
    pytest.mark.filterwarnings("ignore:The codec `vlen-utf8` is currently not part:UserWarning"),
]

IMAGES = np.arange(300, dtype=np.int16).reshape(50, 3, 2)
NAMES = [f"#{number}" for number in range(50)]
LOST = Failed("DataLossError")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A group of arrays with chunks of several lengths, one of them in shards, another in a group within."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("image", shape=IMAGES.shape, dtype="int16", chunks=(4, 3, 1), shards=(8, 3, 2))[:] = IMAGES
    group.create_array("name", shape=(50,), dtype=str, chunks=(7,))[:] = np.array(NAMES, object)
    codecs = [zarr.codecs.Crc32cCodec()]
    group.create_array("in/half", shape=(50,), dtype="float64", chunks=(5,), compressors=codecs)[:] = np.arange(50) / 2
    return tmp_path / "a.zarr"


def halves(ds: ad.Dataset[Any]) -> list[Any]:
    return [one if isinstance(one, Failed) else float(one["in/half"]) * 2 for one in results(ds)]


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_group_in_any_order(path: Path, way: Any) -> None:
    ds = ad.ZarrDataset(path)
    found = way(ds)
    assert len(ds) == len(found) == 50
    assert [one["name"] for one in found] == NAMES
    assert np.array_equal([one["image"] for one in found], IMAGES)
    assert ds[-2]["name"] == "#48"
    shuffled = way(ds.shuffle(seed=1))
    assert [one["name"] for one in shuffled] != NAMES
    assert sorted(one["image"].tolist() for one in shuffled) == IMAGES.tolist()
    assert all(IMAGES[int(one["name"][1:])].tolist() == one["image"].tolist() for one in shuffled)
    (batch,) = way(ad.ZarrDataset(path, ["image", "in/half"]).batch(60))
    assert {name: (array.dtype.name, array.shape) for name, array in batch.items()} == {
        "image": ("int16", (50, 3, 2)),
        "in/half": ("float64", (50,)),
    }


def test_chunks_are_elements(path: Path) -> None:
    ds = ad.ZarrDataset(path, element="chunk")
    assert [len(one["name"]) for one in ds] == [8, 8, 8, 8, 8, 8, 2]
    assert [row["name"] for row in ds.unbatch()] == NAMES
    rows = [row["name"] for row in ds.shuffle(seed=3).unbatch()]
    assert sorted(rows) == sorted(NAMES)
    assert rows != NAMES
    check_resumes(lambda: ad.ZarrDataset(path, element="chunk").shuffle(seed=3).unbatch().shuffle(9, seed=1), places=9)
    assert [one.shape for one in ad.ZarrDataset(path / "image", element="chunk")] == [(8, 3, 2)] * 6 + [(2, 3, 2)]


def test_rows_of_an_array(path: Path) -> None:
    ds = ad.ZarrDataset(path / "image")
    for row in ds.shuffle(seed=1):
        row[...] = 0  # it may be changed, and is in no other
    assert np.array_equal(list(ds), IMAGES)
    assert np.array_equal(next(iter(ds.batch(50))), IMAGES)
    check_resumes(lambda: ad.ZarrDataset(path / "image"), places=50)
    check_resumes(lambda: ad.ZarrDataset(path).shuffle(seed=1).shard(2, 1).batch(3), places=5)


def test_each_process_opens_the_arrays(path: Path) -> None:
    ds = ad.ZarrDataset(path, ["in/half"])
    placed = ds.with_options(ad.Options(placement="process"))
    assert halves(placed) == halves(pickle.loads(pickle.dumps(ds))) == [*range(50)]
    sent = pickle.dumps(ds)
    with ds.iterate() as rows:
        next(rows)
        state = rows.state_dict()
    zarr.open_array(path / "in/half").resize((51,))
    with pytest.raises(ad.DataLossError, match="others than when the dataset was made"):
        pickle.loads(sent)
    with pytest.raises(ad.ResumeError, match=r"was ZarrDataset\(a\.zarr, .*\(50, 'float64'\).*\(51, 'float64'\)"):
        next(ad.ZarrDataset(path, ["in/half"]).iterate(state=state))


def test_damage_at_every_5th_byte(path: Path) -> None:
    """A codec with checksums finds it in rows of its chunk; without, values differ, or none: zarr gives the fill value
    where a chunk is missing."""
    files = sorted(one for one in (path / "in/half/c").rglob("*") if one.is_file())
    for number, file in enumerate(files):
        content = file.read_bytes()
        wrong = [content[:end] for end in range(number % 5, len(content), 5)]
        wrong += [
            content[:at] + bytes([content[at] ^ 5]) + content[at + 1 :] for at in range(number % 5, len(content), 5)
        ]
        for damaged in wrong:
            file.write_bytes(damaged)
            found = halves(ad.ZarrDataset(path, ["in/half"]))
            rows = range(5 * int(file.name), 5 * int(file.name) + 5)
            assert found == [LOST if row in rows else row for row in range(50)], number
        file.write_bytes(content)
    ds = ad.ZarrDataset(path, ["in/half", "name"])
    files[0].write_bytes(b"")
    with pytest.raises(ad.DataLossError, match=r"a\.zarr, array 'in/half': rows \d+ to \d+ cannot be read"):
        list(ds)
    assert halves(ds.shuffle(seed=1)).count(LOST) == 5
    assert results(ad.ZarrDataset(path, ["in/half"], element="chunk")).count(LOST) == 1
    check_resumes(lambda: ad.ZarrDataset(path, ["in/half", "name"]).ignore_errors(), places=10)


def test_rows_that_were_appended_after_consolidation(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is no part of the format yet
        zarr.consolidate_metadata(path)
    zarr.open_array(path / "in/half").append(np.arange(50, 53) / 2)
    assert halves(ad.ZarrDataset(path, ["in/half"])) == [*range(53)]


def test_arrays_on_a_web_server(path: Path) -> None:
    with web() as server:
        for file in path.rglob("*"):
            if file.is_file():
                url = server.put(f"a.zarr/{file.relative_to(path)}", file.read_bytes())
        url = f"{url.partition('a.zarr')[0]}a.zarr"
        assert np.array_equal(list(ad.ZarrDataset(f"{url}/image")), IMAGES)
        ds = ad.ZarrDataset(url, ["name", "in/half"])
        assert [row["name"] for row in ds] == NAMES
        check_resumes(lambda: ad.ZarrDataset(url, ["in/half"]).shuffle(seed=1), places=5)
        with pytest.raises(ad.PlanError, match="give arrays="):
            ad.ZarrDataset(url)
        with pytest.raises(FileNotFoundError):
            ad.ZarrDataset(f"{url}/none")


def test_wrong_arguments(path: Path) -> None:
    zarr.open_group(path)["in"].create_array("other", shape=(3,), dtype="int8")
    zarr.open_group(path).create_array("one", shape=(), dtype="int8")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"arrays": "image"}, "must be a list of names"),
        ({"arrays": []}, "must be a list of names"),
        ({"arrays": ["none"]}, r"there is no array 'none' in .*, whose arrays are \[.*'image'"),
        ({"arrays": ["in"]}, "there is no array 'in' in"),
        ({"arrays": ["image", "in/other"]}, r"equally many rows.*'in/other': \(3,\)"),
        ({"arrays": ["one"]}, "equally many rows"),
        ({"element": "shard"}, "must be 'row' or 'chunk'"),
    ]
    for how, message in wrong:
        with pytest.raises(ad.PlanError, match=message):
            ad.ZarrDataset(path, **how)
    with pytest.raises(ad.PlanError, match=r"ZarrDataset takes one path or URL, got Array: .*Dataset\.from_source"):
        ad.ZarrDataset(zarr.open_array(path / "image"))  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="is an array, and no group"):
        ad.ZarrDataset(path / "image", ["image"])
    with pytest.raises(FileNotFoundError, match="ZarrDataset"):
        ad.ZarrDataset(path.with_name("none"))
    (path / "image" / "zarr.json").write_bytes(b"{")
    with pytest.raises(ad.DataLossError, match=r"ZarrDataset\(.*cannot be opened"):
        ad.ZarrDataset(path / "image")


def test_the_format_of_before(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a", shape=IMAGES.shape, dtype="int16", chunks=(9, 2, 2), zarr_format=2)
    array[:] = IMAGES
    assert np.array_equal(list(ad.ZarrDataset(tmp_path / "a")), IMAGES)
    shutil.rmtree(tmp_path / "a")
    zarr.create_array(tmp_path / "a", shape=(0, 2), dtype="int16", chunks=(9, 2))
    assert list(ad.ZarrDataset(tmp_path / "a").batch(2)) == []

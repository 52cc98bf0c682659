"""Folders of LitData as users read them: those in tests/data were written by litdata."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.litdata_encodings import json_of
from asyncdata.testing import check_resumes
from tests.data.write_litdata import COUNT, FOLDER, ROWS, TOKENS, row, sample
from tests.marks import first_by_default
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results

PLAIN = FOLDER / "plain"

LEAF = {"type": None, "context": None, "children_spec": []}


def told(value: Any) -> Any:
    """Return a sample as it is compared: with the types of its values, and the dtypes and shapes of arrays."""
    if isinstance(value, dict):
        return {name: told(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [*map(told, value)]
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tolist()
    return type(value), value


SAMPLES = [told(sample(number)) for number in range(COUNT)]


@pytest.mark.parametrize(
    "name", ["plain", *(pytest.param(name, marks=pytest.mark.formats) for name in ("chunk", "sample", "batch"))]
)
def test_samples_are_those_that_were_written(name: str) -> None:
    found = [*ad.LitDataset(FOLDER / name)]
    assert [*map(told, found)] == SAMPLES
    for element in found:
        element["array"][...] = 0  # it may be changed
    check_resumes(lambda: ad.LitDataset(FOLDER / name, buffer_size=500), places=COUNT)


@pytest.mark.parametrize("way", WAYS)
def test_any_sample_by_its_number(way: Any) -> None:
    ds = ad.LitDataset([PLAIN, PLAIN], index=True)
    assert len(ds) == 2 * COUNT
    assert told(ds[COUNT + 20]) == told(ds[-3]) == SAMPLES[20]
    assert [*map(told, way(ds))] == SAMPLES * 2
    numbers = [-element["int"] for element in way(ds.shuffle(seed=3))]
    assert sorted(numbers) == sorted([*range(COUNT)] * 2) != numbers
    check_resumes(lambda: ad.LitDataset(PLAIN, index=True).shuffle(seed=3), places=5)


@pytest.mark.formats
def test_samples_compressed_alone_by_their_numbers() -> None:
    ds = ad.LitDataset(FOLDER / "sample", index=True)
    assert told(ds[9]) == SAMPLES[9]
    with pytest.raises(ad.PlanError, match=r"chunk-0-0\.zstd\.bin is compressed.*compression_level='sample'"):
        ad.LitDataset(FOLDER / "chunk", index=True)


@pytest.mark.formats
@pytest.mark.parametrize("name", ["batch", "rows"])
def test_samples_in_groups(name: str) -> None:
    made = [row(number) for number in range(ROWS)] if name == "rows" else [sample(number) for number in range(COUNT)]
    samples = [*map(told, made)]
    for way in WAYS:
        assert [*map(told, way(ad.LitDataset(FOLDER / name)))] == samples
    ds = ad.LitDataset(FOLDER / name, index=True)
    assert len(ds) == len(samples)
    assert [told(ds[number]) for number in (0, 4, -1)] == [samples[number] for number in (0, 4, -1)]
    key = next(iter(made[0]))  # a number
    shuffled = [*ds.shuffle(seed=1)]
    assert [*map(told, sorted(shuffled, key=lambda one: abs(one[key])))] == samples
    check_resumes(lambda: ad.LitDataset(FOLDER / name), places=8)
    check_resumes(lambda: ad.LitDataset(FOLDER / name, index=True).shuffle(seed=1), places=3)


@pytest.mark.formats
@pytest.mark.parametrize("name", ["batch", "rows"])
def test_damaged_groups(name: str, tmp_path: Path) -> None:
    whole = [*map(told, ad.LitDataset(FOLDER / name))]
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "chunk-0-0.bin"
    content = path.read_bytes()
    first = json.loads((tmp_path / "index.json").read_text())["chunks"][0]["chunk_size"]
    changes = [content[:size] for size in range(0, len(content), 97 * 7)]
    if name == "batch":  # Arrow has no checksums
        changes += [content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :] for at in range(8, len(content), 97)]
    for change in changes:
        path.write_bytes(change)
        for index in (False, True):
            found = [
                one if isinstance(one, Failed) else told(one) for one in results(ad.LitDataset(tmp_path, index=index))
            ]
            assert found[len(found) - len(whole) + first :] == whole[first:]
            rest = found[: len(found) - len(whole) + first]
            assert (
                rest == [Failed("DataLossError")]
                or [
                    one == other or one == Failed("DataLossError")
                    for one, other in zip(rest, whole[:first], strict=True)
                ].count(False)
                <= 4
            )  # of one group, whose bytes have no checksum


@pytest.mark.formats
def test_groups_of_remote_chunks_need_a_cache(tmp_path: Path) -> None:
    with web() as server:
        for path in (FOLDER / "rows").iterdir():
            url = server.put(f"rows/{path.name}", path.read_bytes())
        folder = url.rpartition("/")[0]
        assert [*ad.LitDataset(folder, cache_dir=tmp_path)] == [row(number) for number in range(ROWS)]
        with pytest.raises(ad.DataLossError, match=r"chunk-0-0\.bin: its samples are stored in groups.*cache_dir="):
            list(ad.LitDataset(folder))


@pytest.mark.parametrize("way", WAYS)
def test_tokens(way: Any) -> None:
    folder = FOLDER / "tokens"
    assert [element.tolist() for element in way(ad.LitDataset(folder))] == TOKENS
    counts = [chunk["chunk_size"] for chunk in json.loads((folder / "index.json").read_text())["chunks"]]
    windows, begin = list[list[int]](), 0
    for count in counts:  # windows do not pass over the ends of chunks
        tokens = [token for document in TOKENS[begin : begin + count] for token in document]
        windows += [tokens[place : place + 7] for place in range(0, len(tokens) - 6, 7)]
        begin += count
    ds = ad.LitDataset(folder, window=7)
    assert len(ds) == len(windows)
    assert [(element.dtype, element.tolist()) for element in way(ds)] == [(np.int32, window) for window in windows]
    assert sorted(element.tolist() for element in way(ds.shuffle(seed=1))) == sorted(windows)


def copied(folder: Path, name: str, change: Any) -> Path:
    """Return a copy of the folder without compression in which one file is changed."""
    shutil.copytree(PLAIN, folder, dirs_exist_ok=True)
    (folder / name).write_bytes(change((PLAIN / name).read_bytes()))
    return folder


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("step", first_by_default([97 * 7, 97], 1))
def test_a_chunk_cut_anywhere_is_one_error_after_its_complete_samples(step: int, index: bool, tmp_path: Path) -> None:
    for size in range(0, (PLAIN / "chunk-0-1.bin").stat().st_size, step):
        folder = copied(tmp_path, "chunk-0-1.bin", lambda content, size=size: content[:size])
        found = [one if isinstance(one, Failed) else told(one) for one in results(ad.LitDataset(folder, index=index))]
        lost = found.index(Failed("DataLossError"))
        assert found == [*SAMPLES[:lost], Failed("DataLossError"), *SAMPLES[18:]]


@pytest.mark.parametrize("step", first_by_default([97 * 7, 97], 1))
def test_damaged_chunks_are_the_same_with_an_index(step: int, tmp_path: Path) -> None:
    size = (PLAIN / "chunk-0-1.bin").stat().st_size
    for place in [*range(0, 44, 9), *range(44, size, step)]:
        folder = copied(tmp_path, "chunk-0-1.bin", lambda c, at=place: c[:at] + bytes([c[at] ^ 0xFF]) + c[at + 1 :])
        plain, indexed = (results(ad.LitDataset(folder, index=index)) for index in (False, True))
        assert [str(one) for one in plain] == [str(one) for one in indexed]
        assert [*map(told, plain[:9])] == SAMPLES[:9]
        assert [*map(told, plain[-5:])] == SAMPLES[-5:]


def test_indexes_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        ad.LitDataset(tmp_path / "none")
    assert "has a file index.json" in missing.value.__notes__[0]
    index = json.loads((PLAIN / "index.json").read_text())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"data_format": ["int"]}, "more leaves than serializers"),
        ({"data_format": [*index["config"]["data_format"], "int"]}, "fewer leaves than serializers"),
        ({"data_format": ["word"] * 15}, "'word', which is not supported"),
        ({"data_format": ["no_header_tensor:10"] * 15}, "dtype has the number 10, which is not supported"),
        ({"data_spec": json.dumps([1, LEAF | {"type": "my.Class"}])}, "of the type 'my.Class'"),
        ({"encryption": {"algorithm": "fernet"}}, "encrypted"),
        ({"compression": "lz4"}, "compressed by 'lz4'"),
    ]
    for change, message in changes:
        (tmp_path / "index.json").write_text(json.dumps(index | {"config": index["config"] | change}))
        with pytest.raises(ad.DataLossError, match=f"index.json: it is no index of LitData: ValueError: .*{message}"):
            ad.LitDataset(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps(index).replace("chunk-0-1", "../chunk-0-1"))
    with pytest.raises(ad.DataLossError, match="is outside of the folder"):
        ad.LitDataset(tmp_path)
    with pytest.raises(ad.PlanError, match="of tokens of one dtype"):
        ad.LitDataset(PLAIN, window=7)
    with pytest.raises(ad.PlanError, match="must be a folder, or several"):
        ad.LitDataset(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [False, True])
def test_pickles_are_refused_unless_they_are_allowed(index: bool, tmp_path: Path) -> None:
    values = [pickle.dumps({1, 2}), b"no pickle"]
    ends = np.cumsum([16, *(4 + len(value) for value in values)])
    bodies = b"".join(struct.pack("<I", len(value)) + value for value in values)
    (tmp_path / "chunk-0-0.bin").write_bytes(struct.pack("<4I", 2, *ends) + bodies)
    config = {"data_format": ["pickle"], "data_spec": json.dumps([1, LEAF])}
    chunks = [{"filename": "chunk-0-0.bin", "chunk_size": 2}]
    (tmp_path / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    with pytest.raises(ad.DataLossError, match="a leaf is pickled.*allow_pickle=True"):
        ad.LitDataset(tmp_path, index=index)
    assert results(ad.LitDataset(tmp_path, index=index, allow_pickle=True)) == [{1, 2}, Failed("DataLossError")]


def test_a_folder_on_a_web_server(tmp_path: Path) -> None:
    with web() as server:
        for path in PLAIN.iterdir():
            url = server.put(f"lit/{path.name}", path.read_bytes())
        folder = url.rpartition("/")[0]
        assert [*map(told, ad.LitDataset(folder))] == SAMPLES
        check_resumes(lambda: ad.LitDataset(folder), places=2)
        assert told(ad.LitDataset(folder, index=True, cache_dir=tmp_path)[11]) == SAMPLES[11]
        with pytest.raises(ad.PlanError, match="needs cache_dir="):
            list(ad.LitDataset(folder, index=True))


def test_a_count_of_dicts_without_keys_that_cannot_be() -> None:
    """They have no bytes, so that the end of a value does not end them."""
    assert json_of(struct.pack("<BII", 6, 3, 0)) == [{}, {}, {}]
    with pytest.raises(ValueError, match="4294967295 dicts in 9 bytes"):
        json_of(struct.pack("<BII", 6, (1 << 32) - 1, 0))

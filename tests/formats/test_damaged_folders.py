"""Folders of formats that have several files, damaged at many places of each: the same elements, or an error.

Where a format has checksums there are no other elements; without them other ones are possible, but never another kind
of error, and never a run that does not end.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import AsyncDataError
from tests.marks import first_by_default

DATA = Path(__file__).parent.parent / "data"

MOST = 2000
"""More elements than any of the folders has, damaged or not."""

EVERY = 97


@dataclass(frozen=True)
class Folder:
    """A folder in tests/data, and how it is read."""

    place: str
    read: Callable[[Path], ad.Dataset[Any]]
    checked: tuple[str, ...] = ()
    """What the names of files have in them whose every byte has a checksum."""
    cut: tuple[str, ...] = ()
    """What the names of files have in them that are an error if they are cut short."""
    unread: tuple[str, ...] = ()
    """What the names of files have in them that are not read, or are like another one."""
    packages: bool = True
    """Whether it needs the packages of the tests marked `formats`."""


def tokens(path: Path) -> ad.Dataset[Any]:
    return ad.TokenDataset(path / "int32.bin", 9)


ALIKE = ("train.tfrecord-00001", "train.tfrecord-00002", "tfrecord-00003", "test.tfrecord-00001")

FOLDERS = {
    "tfds": Folder(
        "tfds/mine", lambda path: ad.TfdsDataset(path, "all"), ("tfrecord",), (".json",), ALIKE, packages=False
    ),
    "mds": Folder("mds/plain/train", ad.MdsDataset, (), (".mds", ".json"), packages=False),
    "mds.gz": Folder("mds/gz/train", ad.MdsDataset, (), (".json",), packages=False),
    "mds.zstd": Folder("mds/zstd/train", ad.MdsDataset, (), (".zstd", ".json")),
    "litdata": Folder("litdata/plain", ad.LitDataset, (), (".bin", ".json"), packages=False),
    "litdata.batch": Folder("litdata/batch", ad.LitDataset, (), (".bin", ".json")),
    "litdata.chunk": Folder("litdata/chunk", ad.LitDataset, (), (".bin", ".json")),
    "litdata.sample": Folder("litdata/sample", ad.LitDataset, (), (".bin", ".json")),
    "litdata.rows": Folder("litdata/rows", ad.LitDataset, (), (".bin", ".json")),
    "litdata.tokens": Folder("litdata/tokens", lambda path: ad.LitDataset(path, window=9), (), (".json",)),
    "energon": Folder("energon/images", lambda path: ad.EnergonDataset(path, index=True), (), (), (".info.json",)),
    "lerobot": Folder("lerobot", ad.LeRobotDataset, (), ("info.json", "file-"), (".npz", "stats.json", "file-001")),
    "tokens": Folder("tokens", tokens, (), ("int32.bin", "int32.idx"), ("int8", "int16", "int64", "float")),
}


def told(value: Any) -> Any:
    """Return a value as it is compared: with its types, and dtypes and shapes of arrays."""
    if isinstance(value, dict):
        return {name: told(part) for name, part in value.items() if name != "__shard__"}
    if isinstance(value, list | tuple):
        return [*map(told, value)]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist() if value.dtype == object else value.tobytes()
    return repr(value)


def outcomes(folder: Folder, path: Path) -> list[Any]:
    """Read a folder from its beginning; one that cannot be opened is one error."""
    try:
        with folder.read(path).iterate() as elements:
            found = [*elements_and_errors(elements)]
    except (AsyncDataError, FileNotFoundError) as error:
        return [error]
    assert len(found) < MOST
    return found


def elements_and_errors(elements: Any) -> Iterable[Any]:
    """Yield elements as they are compared, and errors as they are."""
    for _ in range(MOST):
        try:
            yield told(next(elements))
        except StopIteration:
            return
        except Exception as error:
            yield error


def is_clear(error: Exception) -> bool:
    """Whether an error says what cannot be read: of members of tar archives those of their decoders, with a note."""
    if isinstance(error, ad.DataLossError | FileNotFoundError | ad.PlanError):
        return True
    return isinstance(error, ValueError) and any(".tar" in note for note in getattr(error, "__notes__", ()))


def damages(content: bytes, step: int) -> Iterable[tuple[bool, bytes]]:
    """Yield what is left if a file is cut short, and what it is if a byte is another one, at each of many places."""
    for place in range(0, len(content), step):
        yield True, content[:place]
        yield False, content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


def check(folder: Folder, file: Path, was_cut: bool, found: list[Any], whole: list[Any]) -> None:
    errors = [one for one in found if isinstance(one, Exception)]
    for error in errors:
        assert is_clear(error), (file.name, error)
    others = [one for one in found if not isinstance(one, Exception) and one not in whole]
    if any(part in file.name for part in folder.checked):
        assert not others
        assert errors or found == whole, file.name
    elif was_cut and any(part in file.name for part in folder.cut):
        assert errors or found == whole, file.name
        assert not others, file.name


@pytest.mark.parametrize("most", first_by_default([2, 60], 1))
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.formats] * one.packages) for name, one in FOLDERS.items()]
)
def test_files_cut_short_or_changed(name: str, most: int, tmp_path: Path) -> None:
    """At every 97th byte, of files above 6 kB at 60 places; by default at few."""
    folder = FOLDERS[name]
    path = Path(shutil.copytree(DATA / folder.place, tmp_path / "folder"))
    whole = outcomes(folder, path)
    assert not any(isinstance(one, Exception) for one in whole)
    files = [one for one in path.rglob("*") if one.is_file() and not any(part in one.name for part in folder.unread)]
    assert len(files) > 1
    for file in files:
        content = file.read_bytes()
        for was_cut, damaged in damages(content, EVERY * max(1, len(content) // EVERY // most)):
            file.write_bytes(damaged)
            for index in path.rglob(".*.index"):
                index.unlink()
            check(folder, file, was_cut, outcomes(folder, path), whole)
        file.write_bytes(content)

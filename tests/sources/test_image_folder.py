"""Folders of files, one for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.running import WAYS

FILES = ["cat/b.jpg", "cat/a.JPEG", "dog/in/deep.png", "dog/1.jpg", "ant/1.png", "ant/.hidden.jpg", "ant/notes.txt"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in [*FILES, "top.jpg"]:
        path = tmp_path / "[a] *" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "[a] *"


EXPECTED = [(b"ant/1.png", 0), (b"cat/a.JPEG", 1), (b"cat/b.jpg", 1), (b"dog/1.jpg", 2), (b"dog/in/deep.png", 2)]


@pytest.mark.parametrize("way", WAYS)
def test_files_and_labels(root: Path, way: Any) -> None:
    ds = ad.ImageFolderDataset(f"{root}/")
    assert ds.class_names == ["ant", "cat", "dog"]
    assert way(ds) == EXPECTED


def test_any_order(root: Path) -> None:
    ds = ad.ImageFolderDataset(root)
    assert (len(ds), ds[2]) == (5, EXPECTED[2])
    assert sorted(ds.shuffle(seed=1)) == sorted(EXPECTED)
    check_resumes(lambda: ad.ImageFolderDataset(root).shuffle(seed=1))


def test_classes_and_extensions(root: Path) -> None:
    ds = ad.ImageFolderDataset(root, ["jpg", ".TXT"], ["cat", "ant"])
    assert list(ds) == [(b"ant/notes.txt", 1), (b"cat/b.jpg", 0)]
    assert len(ad.ImageFolderDataset(root, None)) == 6
    with pytest.raises(ad.PlanError, match="'cow' is not among the folders"):
        ad.ImageFolderDataset(root, class_names=["cow"])
    with pytest.raises(ad.PlanError, match=r"class_names=\) must be a list"):
        ad.ImageFolderDataset(root, class_names="cat")
    with pytest.raises(ad.PlanError, match=r"path=\) must be a folder"):
        ad.ImageFolderDataset([root])  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="no file with one of the extensions"):
        ad.ImageFolderDataset(root / "cat")


def test_a_file_that_is_gone_fails_in_its_place(root: Path) -> None:
    ds = ad.ImageFolderDataset(root)
    (root / "cat" / "b.jpg").unlink()
    assert list(ds.ignore_errors()) == [EXPECTED[0], EXPECTED[1], *EXPECTED[3:]]
    with pytest.raises(FileNotFoundError) as caught:
        list(ds)
    assert "element 2" in "".join(caught.value.__notes__)

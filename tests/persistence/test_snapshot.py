"""snapshot: a cache that finds a name for the pipeline."""

from __future__ import annotations

import os
from itertools import count as counting
from pathlib import Path

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform


def test_keeps_its_contract(tmp_path: Path) -> None:
    names = map(str, counting())
    check_transform(lambda ds: ds.snapshot(tmp_path / next(names)), lambda items: items)


NAMES = {
    "a list": lambda name: [name],
    "from_list": lambda name: ad.Dataset.from_list([name]),
    "from_tensor_slices": lambda name: ad.Dataset.from_tensor_slices([name]),
    "shuffled": lambda name: ad.Dataset.from_list([name]).shuffle().shard(1, 0).repeat(1),
    "list_files": ad.Dataset.list_files,
}


@pytest.mark.parametrize("names", NAMES)
def test_a_file_that_has_grown_is_read_again(names: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for lines in (["one"], ["one", "two"]):
        path.write_text("\n".join(lines))
        ds = ad.TextLineDataset(NAMES[names](str(path))).snapshot(tmp_path / "stored")
        assert list(ds) == [line.encode() for line in lines]


def test_each_pipeline_has_a_file_of_its_own(tmp_path: Path) -> None:
    calls: list[int] = []
    for size in (3, 5, 3, 5):
        ds = ad.Dataset.range(size).shuffle(5).map(lambda x: calls.append(x) or x).snapshot(tmp_path)
        assert sorted(ds) == [*range(size)]
    assert len(calls) == 3 + 5
    assert len(os.listdir(tmp_path)) == 2
    list(ad.Dataset.range(3).shuffle(5, seed=1).map(lambda x: x).snapshot(tmp_path))
    assert len(os.listdir(tmp_path)) == 3


def test_goes_on(tmp_path: Path) -> None:
    check_resumes(lambda: ad.Dataset.range(30).shuffle(9, seed=1).snapshot(tmp_path).batch(4))


def test_what_it_has_not_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(ad.PlanError, match=r"use save\(\) and Dataset\.load\(\)"):
        ad.Dataset.range(3).snapshot(tmp_path, compression="GZIP")
    with pytest.raises(ad.PlanError, match=r"use save\(\) and Dataset\.load\(\)"):
        ad.Dataset.range(3).snapshot(tmp_path, shard_func=lambda x: 0)

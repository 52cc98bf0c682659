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

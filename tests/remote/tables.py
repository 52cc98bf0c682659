"""Tables of Lance and arrays of Zarr in an object store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.__main__ import main

__all__ = ("check_lance", "check_zarr")


def check_both(ds: Any, url: str, kind: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """300 rows are read in order and in another one, gone on with, and described on the command line."""
    assert [int(row["x"]) for row in ds] == [*range(300)]
    assert sorted(int(row["x"]) for row in ds.shuffle(seed=1)) == [*range(300)]
    with ds.shuffle(seed=1).iterate() as rows:
        found = [int(next(rows)["x"]) for _ in range(100)]
        state = rows.state_dict()
    assert sorted(found + [int(row["x"]) for row in ds.shuffle(seed=1).iterate(state=state)]) == [*range(300)]
    pairs = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
    assert main(["inspect", url, *pairs]) == 0
    told = capsys.readouterr().out
    assert f"format    {kind}\n" in told
    assert "elements  300\n" in told


def check_lance(root: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    pa, lance = pytest.importorskip("pyarrow"), pytest.importorskip("lance")
    url = f"{root}/table.lance"
    lance.write_dataset(pa.table({"x": range(300)}), url, storage_options={**options, "allow_http": "true"})
    check_both(ad.LanceDataset(url, storage_options=options), url, "Lance", options, capsys)


def check_zarr(root: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    zarr, stores = pytest.importorskip("zarr"), pytest.importorskip("obstore.store")
    url = f"{root}/arrays.zarr"
    store = stores.from_url(url, **options, client_options={"allow_http": True})
    group = zarr.open_group(zarr.storage.ObjectStore(store), mode="w")
    group.create_array("x", shape=(300,), dtype="int32", chunks=(40,))[:] = np.arange(300)
    group.create_array("in/y", shape=(300, 2), dtype="float32", chunks=(50, 2))
    check_both(ad.ZarrDataset(url, ["x"], storage_options=options), url, "Zarr", options, capsys)

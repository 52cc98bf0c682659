#!/usr/bin/env bash
# xarray 2026.9.0 with zarr 3.1.6: integers that are appended to a Zarr array of a narrower dtype wrap around, without an
# error or a warning: 70,000 in an array of int16 is 4,464. For texts of another length the same call raises an error
# about dtypes that differ. Values that are stored scaled (`scale_factor`) wrap too: 1,000,000 is read as -15,808.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 zarr==3.1.6 numpy==2.4.6
cd "$folder"
venv/bin/python -W error -W "ignore:Consolidated metadata" -W "ignore:The data type" - <<'PYTHON'
import numpy as np
import xarray as xr


def appended(folder, first, later, encoding=None):
    xr.Dataset({"v": ("n", np.array(first))}).to_zarr(folder, encoding=encoding)
    xr.Dataset({"v": ("n", np.array(later))}).to_zarr(folder, append_dim="n")
    return xr.open_zarr(folder).v.values


print("xarray", xr.__version__)
found = appended("a.zarr", np.array([1, 2], "i2"), np.array([70_000], "i4"))
print("appended 70000, read", found)
assert found.tolist() == [1, 2, 4464] and found.dtype == np.int16, "it has changed"
scaled = {"v": {"scale_factor": 0.5, "dtype": "i2", "_FillValue": -1}}
found = appended("b.zarr", [1.5, 2.5], [1e6], scaled)
print("appended 1000000.0, read", found)
assert found.tolist() == [1.5, 2.5, -15808.0], "it has changed"
try:
    appended("c.zarr", ["ab", "c"], ["abcdef"])
except ValueError as error:
    print("texts:", str(error)[:60])
else:
    raise AssertionError("it has changed")
PYTHON

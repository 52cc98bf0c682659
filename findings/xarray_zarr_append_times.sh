#!/usr/bin/env bash
# xarray 2026.9.0 with zarr 3.1.6: `to_zarr(append_dim="time")` writes times in the unit that fits the new ones, while
# the array keeps the unit of the first write. Two midnights are stored in days; noon of 3 January, appended to them, is
# written as 60 hours and read as 60 days: 1 March. A warning says that hours are used, not that they are read as days.
# Cure: `encoding={"time": {"units": "nanoseconds since 1970-01-01", "dtype": "int64"}}` in the first write.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 zarr==3.1.6 numpy==2.4.6
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import numpy as np
import xarray as xr


def measured(*times):
    return xr.Dataset({"v": ("time", np.arange(len(times)))}, coords={"time": np.array(times, "M8[ns]")})


first, later = measured("2020-01-01", "2020-01-02"), measured("2020-01-03T12:00")
print("xarray", xr.__version__)
first.to_zarr("a.zarr")
later.to_zarr("a.zarr", append_dim="time")
stored = xr.open_zarr("a.zarr", decode_times=False).time
print(stored.values, stored.attrs["units"])
assert stored.values.tolist() == [0, 1, 60] and stored.attrs["units"].startswith("days"), "it has changed"
found = xr.open_zarr("a.zarr").time.values
print("appended", later.time.values[0], "read", found[-1])
assert found[-1] == np.datetime64("2020-03-01"), "it has changed"

units = {"time": {"units": "nanoseconds since 1970-01-01", "dtype": "int64"}}
first.to_zarr("b.zarr", encoding=units)
later.to_zarr("b.zarr", append_dim="time")
assert xr.open_zarr("b.zarr").time.values[-1] == later.time.values[0]
print("with a unit given at first:", xr.open_zarr("b.zarr").time.values[-1])
PYTHON

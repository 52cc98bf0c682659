#!/usr/bin/env bash
# netCDF4 1.7.5.1.post1: 255 in a variable of uint8, as white pixels of pictures are, is masked when it is read, as
# 255 is the default fill value, though the variable was written whole and has no `_FillValue`. Means leave the white
# pixels out. -127 of int8, 65535 of uint16 are masked too. xarray reads the same variable as 255. Cure:
# `createVariable(..., fill_value=False)`, or `set_auto_mask(False)` of the reader.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q netCDF4==1.7.5.1.post1 xarray==2026.9.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import netCDF4
import numpy as np
import xarray

print("netCDF4", netCDF4.__version__)
with netCDF4.Dataset("a.nc", "w") as file:
    file.createDimension("x", 3)
    file.createVariable("picture", "u1", ("x",))[:] = np.array([0, 254, 255], "u1")
    file.createVariable("cured", "u1", ("x",), fill_value=False)[:] = np.array([0, 254, 255], "u1")
with netCDF4.Dataset("a.nc") as file:
    attributes = file["picture"].ncattrs()
    found, cured = file["picture"][:], file["cured"][:]
    file.set_auto_mask(False)
    plain = file["picture"][:]
other = xarray.open_dataset("a.nc", engine="netcdf4")["picture"].values
print(attributes, found, found.mean(), "cured", cured, cured.mean(), "xarray", other)
assert attributes == []
assert np.ma.getmaskarray(found).tolist() == [False, False, True] and found.mean() == 127.0, "it has changed"
assert not np.ma.getmaskarray(cured).any() and plain.tolist() == other.tolist() == [0, 254, 255]
PYTHON

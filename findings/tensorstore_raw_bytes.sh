#!/usr/bin/env bash
# tensorstore 0.1.86 opens an array of raw bytes (void of 4 bytes) that zarr has written, in version 2 and 3 of the
# format, with one more axis and the dtype `byte`, which is `|V0` in NumPy: what it reads has the shape (3, 4) and no
# bytes at all, without an error. zarr reads the bytes. Cure: store them as uint8 with an axis more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tensorstore==0.1.86 zarr==3.1.6 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import os

import numpy as np
import tensorstore
import zarr

print("tensorstore 0.1.86, zarr", zarr.__version__)
values = np.array([b"abcd", b"efgh", b"ijkl"], "S4").view("V4")
for version, driver in ((2, "zarr"), (3, "zarr3")):
    path = os.path.abspath(f"{version}.zarr")
    zarr.create_array(path, shape=(3,), chunks=(2,), dtype="V4", zarr_format=version)[:] = values
    by_zarr = zarr.open_array(path, mode="r")[:].tobytes()
    store = tensorstore.open({"driver": driver, "kvstore": {"driver": "file", "path": path}}).result()
    found = store.read().result()
    print("version", version, "zarr:", by_zarr, "tensorstore:", store.dtype, found.shape, found.dtype, found.tobytes())
    assert by_zarr == b"abcdefghijkl"
    assert found.shape == (3, 4) and found.dtype == "V0" and found.tobytes() == b"", "the bytes are read now"
PYTHON

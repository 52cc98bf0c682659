#!/usr/bin/env bash
# zarr 3.1.6 with NumPy 2: None and NaN that are assigned to an array of strings are stored as the texts "None" and
# "nan", and numbers as their digits, without an error, so a missing value cannot be told from a text. Bytes of
# variable length make b"" of None. Cure: check for None before you assign.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q zarr==3.1.6 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import zarr

print("zarr", zarr.__version__)
found = {}
for version in (2, 3):
    array = zarr.create_array(f"{version}.zarr", shape=(4,), chunks=(2,), dtype=str, zarr_format=version)
    array[:] = np.array(["a", None, float("nan"), 1.0], object)
    found[version] = zarr.open_array(f"{version}.zarr", mode="r")[:].tolist()
print(found)
array = zarr.create_array("bytes.zarr", shape=(3,), chunks=(2,), dtype="variable_length_bytes")
array[:] = np.array([b"a", None, b"c"], object)
print(array[:].tolist())
assert found == {2: ["a", "None", "nan", "1.0"], 3: ["a", "None", "nan", "1.0"]}, "it has changed"
assert array[:].tolist() == [b"a", b"", b"c"]
PYTHON

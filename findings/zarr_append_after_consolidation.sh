#!/usr/bin/env bash
# zarr 3.1.6: rows that are appended to an array of a group after `consolidate_metadata` are stored, but the group goes on
# to give the array its old shape, in the program that appended and in those that open the group later: the new rows
# are missing there without an error. Cure: `open_group(..., use_consolidated=False)`, or consolidate again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q zarr==3.1.6 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'EOF'
import numpy as np
import zarr

print("zarr", zarr.__version__)
group = zarr.open_group("a.zarr", mode="w")
group.create_array("x", data=np.arange(4), chunks=(2,))
zarr.consolidate_metadata("a.zarr")
writer = zarr.open_group("a.zarr", mode="r+")
print("append returns the shape", writer["x"].append(np.arange(4, 8)))
reader = zarr.open_group("a.zarr", mode="r")
found = {
    "the group that appended": writer["x"].shape,
    "the group opened again": reader["x"].shape,
    "without consolidated metadata": zarr.open_group("a.zarr", mode="r", use_consolidated=False)["x"].shape,
    "the array itself": zarr.open_array("a.zarr/x", mode="r").shape,
}
print(*(f"{name}: {shape}" for name, shape in found.items()), sep="\n")
assert [*found.values()] == [(4,), (4,), (8,), (8,)], "the group shows the new rows now"
EOF

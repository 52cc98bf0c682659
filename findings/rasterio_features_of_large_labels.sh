#!/usr/bin/env bash
# rasterio 1.4.4: `features.shapes` takes labels of float64 and compares them as float32, so neighbouring regions
# 16777216 and 16777217 are one polygon, and `features.rasterize` into int64 or uint64 burns numbers through float64,
# so 2**53 + 1 becomes 2**53, without an error or a warning. int32 is exact in both. Cure: number the labels from 1
# before, and look the identifiers up afterwards.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q rasterio==1.4.4 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import rasterio
from rasterio import features

print("rasterio", rasterio.__version__, "GDAL", rasterio.__gdal_version__)
labels = np.array([[16777216, 16777217]])
shapes = {name: [value for _, value in features.shapes(labels.astype(name))] for name in ("int32", "float64")}
print(labels.tolist(), "->", shapes)
square = {"type": "Polygon", "coordinates": [[(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]]}
burnt = {}
for name, label in (("int32", 2**31 - 1), ("int64", 2**53 + 1), ("uint64", 2**63 + 1)):
    image = features.rasterize([(square, label)], out_shape=(1, 1), dtype=name)
    burnt[name] = int(image[0, 0]) - label
    print(name, label, "->", image.tolist())
assert shapes["int32"] == [16777216, 16777217] and burnt["int32"] == 0
assert shapes["float64"] == [16777216], "it has changed"
assert burnt["int64"] == burnt["uint64"] == -1, "it has changed"
PYTHON

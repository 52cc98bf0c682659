#!/usr/bin/env bash
# datasets 5.2.0: with the format "numpy", a float64 column is float64 where one row is read and float32 where several
# are: `ds[0]["x"]` and `ds[:1]["x"][0]` are different numbers. Files of measurements lose digits as soon as they are
# read in batches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q datasets==5.2.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import datasets
import numpy as np

print("datasets", datasets.__version__)

ds = datasets.Dataset.from_dict({"x": [0.1]}).with_format("numpy")
row, several = ds[0]["x"], ds[:1]["x"]
print(ds.features["x"].dtype, repr(row), "->", repr(several))
assert row.dtype == np.float64
assert several.dtype == np.float32, "it has changed"
EOF

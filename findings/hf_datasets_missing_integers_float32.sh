#!/usr/bin/env bash
# datasets 5.2.0: with the format "numpy", a slice of an int64 column with one missing value is float32: all
# identifiers above 2**24 in it are rounded, without a warning, while the same row read by itself is exact. "torch"
# does the same.
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

ds = datasets.Dataset.from_dict({"id": [16_777_217, None]}).with_format("numpy")
row, several = ds[0]["id"], ds[:]["id"]
print(repr(row), "->", repr(several))
assert int(row) == 16_777_217
assert several.dtype == np.float32 and int(several[0]) == 16_777_216, "it has changed"
EOF

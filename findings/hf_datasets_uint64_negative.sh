#!/usr/bin/env bash
# datasets 5.2.0: with the format "numpy" or "torch" values of uint64 columns above 2**63 become negative, without an
# error: lists of them in "numpy", all of them in "torch". Without a format, or from Arrow, they are right. Hashes
# used as keys are such numbers.
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

key = 2**63 + 5
ds = datasets.Dataset.from_dict({"keys": [np.array([key], np.uint64)]})
plain, formatted = ds[0]["keys"], ds.with_format("numpy")[0]["keys"]
print(ds.features["keys"], plain, "->", formatted, formatted.dtype)
assert plain == [key]
assert formatted.tolist() == [key - 2**64], "it has changed"
EOF

#!/usr/bin/env bash
# datasets 5.2.0: with the format "numpy", and with "torch", which uses it, byte strings lose the zero bytes at their
# end, as they become NumPy's dtype S. Encoded arrays, hashes and pictures that end with zeros are cut, without an
# error. Without a format they are right.
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

ds = datasets.Dataset.from_dict({"content": [b"ab\0\0"]})
plain, formatted = ds[0]["content"], ds.with_format("numpy")[0]["content"]
print(plain, "->", bytes(formatted))
assert plain == b"ab\0\0"
assert bytes(formatted) == b"ab", "it has changed"
EOF

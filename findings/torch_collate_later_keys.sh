#!/usr/bin/env bash
# PyTorch 2.13: `default_collate` takes the keys of the first sample. Keys that only later samples have are dropped
# without a word, while a key that a later sample lacks is a KeyError: the same two samples, in another order, are
# taken or refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import torch
from torch.utils.data import default_collate

print("torch", torch.__version__)
small, large = {"a": 1}, {"a": 2, "b": 3}
found = default_collate([small, large])
print([small, large], "->", found)
assert found.keys() == {"a"}, "it has changed"
try:
    default_collate([large, small])
except KeyError as error:
    print([large, small], "-> KeyError", error)
else:
    raise AssertionError("it is no error any more")
EOF

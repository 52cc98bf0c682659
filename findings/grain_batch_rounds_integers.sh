#!/usr/bin/env bash
# grain 0.2.18: `batch` takes the dtype that NumPy makes of its elements, for each batch anew. int64 and uint64 in one
# batch become float64, so identifiers above 2**53 are rounded, without an error, and the next batch may be int64
# again: what comes depends on the batch size. Cure: one dtype, in a map before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q grain==0.2.18 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import grain
import numpy as np

numbers = [np.int64(1), np.uint64(2**63 + 1), np.int64(2**53 + 1), np.int64(4)]
found = {}
for size in (1, 2):
    batches = list(grain.MapDataset.source(numbers).batch(size))
    found[size] = [(batch.dtype.name, [int(number) for number in batch]) for batch in batches]
    print("batches of", size, found[size])
assert [number for _, batch in found[1] for number in batch] == [1, 2**63 + 1, 2**53 + 1, 4]
assert found[2] == [("float64", [1, 2**63]), ("int64", [2**53 + 1, 4])], "it has changed"
PYTHON

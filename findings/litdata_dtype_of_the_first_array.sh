#!/usr/bin/env bash
# litdata 0.2.76: samples that are NumPy arrays of one axis are all stored with the dtype of the first. An array of
# float64 behind one of int64 is read back as int64: its bytes as other numbers, without an error or a warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q litdata==0.2.76 torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import litdata
import numpy as np
from litdata.streaming.cache import Cache

written = [np.array([1, 2, 3], np.int64), np.array([0.5, 1.5, 2.5], np.float64)]
cache = Cache("data", chunk_bytes=1 << 20)
for number, array in enumerate(written):
    cache[number] = array
cache.done()
cache.merge()
read = [np.array(array) for array in litdata.StreamingDataset("data")]
print("litdata", litdata.__version__)
for before, after in zip(written, read, strict=True):
    print("written", before.dtype, before.tolist(), "read", after.dtype, after.tolist())
assert read[0].tolist() == [1, 2, 3]
assert read[1].dtype == np.int64
assert read[1].tolist() == written[1].view(np.int64).tolist()
EOF

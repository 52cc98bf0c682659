#!/usr/bin/env bash
# litdata 0.2.76: the first sample decides the dtype that is stored for arrays and tensors of one axis. A later sample
# of another dtype is written without an error, and its bytes are read as that dtype: `[1.5, 2.5]` becomes
# `[4609434218413702656, 4612811918334230528]`, and two int32 become one int64. A later matrix loses its shape. Cure:
# convert all samples to one dtype.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q litdata==0.2.76 torch==2.13.0 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import tempfile

import litdata
import numpy as np
from litdata.streaming.cache import Cache

print("litdata", litdata.__version__)


def written_and_read(*samples):
    folder = tempfile.mkdtemp(dir=".")
    cache = Cache(folder, chunk_bytes="1MB")
    for index, sample in enumerate(samples):
        cache[index] = sample
    cache.done()
    cache.merge()
    found = litdata.StreamingDataset(folder)
    return [found[index] for index in range(len(samples))]


first = np.arange(3)
for later in (np.array([1.5, 2.5]), np.array([7, 8], np.int32), np.arange(4).reshape(2, 2)):
    _, back = written_and_read(first, later)
    print(later.dtype, later.tolist(), "->", back.dtype, back.tolist())
    assert back.dtype == first.dtype and back.tolist() != later.tolist(), "it is read as it was, or refused"
EOF

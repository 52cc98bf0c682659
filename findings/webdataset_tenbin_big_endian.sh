#!/usr/bin/env bash
# webdataset 1.0.2: its format for arrays, `.ten`, stores bytes as they are and the dtype without its byte order:
# big-endian arrays, as from FITS, NetCDF and IDX files, are read with their bytes swapped, without an error: 1 becomes
# 16777216. Cure: `array.astype(array.dtype.newbyteorder("="))`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q webdataset==1.0.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import io

import numpy as np
import webdataset

print("webdataset", webdataset.__version__)
file = io.BytesIO()
array = np.arange(3, dtype=">i4")
with webdataset.TarWriter(file) as writer:
    writer.write({"__key__": "a", "big.ten": [array], "little.ten": [array.astype("<i4")]})
with open("a.tar", "wb") as out:
    out.write(file.getvalue())
(sample,) = webdataset.WebDataset("a.tar", shardshuffle=False).decode()
big, little = (sample[name][0].tolist() for name in ("big.ten", "little.ten"))
print(array.tolist(), "->", big, "little-endian:", little)
assert little == [0, 1, 2]
assert big == [0, 2**24, 2**25], "the byte order is kept now"
PYTHON

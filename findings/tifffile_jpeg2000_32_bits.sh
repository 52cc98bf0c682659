#!/usr/bin/env bash
# tifffile 2026.3.3 with imagecodecs 2026.3.6: `imwrite(labels, compression="jpeg2000")` of uint32 keeps the lowest 26
# bits of each number: the label 2**26 + 5 is read as 5, without an error, also where it is told to be lossless
# (`level=0`, `reversible=True`). `imagecodecs.jpeg2k_encode` does the same, and int32 keeps one bit less. Cure: zlib
# or zstd for such labels.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tifffile==2026.3.3 numpy==2.4.6 imagecodecs==2026.3.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import tifffile

found = {}
for label in (2**24 + 5, 2**26 - 1, 2**26 + 5, 2**31 + 7):
    labels = np.full((32, 32), label, np.uint32)
    options = {"level": 0, "reversible": True}
    tifffile.imwrite("a.tif", labels, compression="jpeg2000", compressionargs=options)
    back = tifffile.imread("a.tif")
    assert back.dtype == np.uint32
    assert (back == back[0, 0]).all()
    found[label] = back[0, 0].item()
print("tifffile", tifffile.__version__, found)
assert found == {2**24 + 5: 2**24 + 5, 2**26 - 1: 2**26 - 1, 2**26 + 5: 5, 2**31 + 7: 7}, "it has changed"
PYTHON

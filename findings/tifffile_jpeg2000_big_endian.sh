#!/usr/bin/env bash
# tifffile 2026.3.3 with imagecodecs 2026.3.6: a picture of 16 bits that `imwrite` compresses as JPEG 2000 in a
# big-endian file (`byteorder=">"`, or an ImageJ file) is stored with the bytes of each pixel swapped: `imread` gives
# 256 where 1 was written, without an error. 8 bits, and zlib or LZW in the same file, are right.
# `imagecodecs.jpeg2k_encode` swaps any big-endian array in this way. Cure: little-endian files.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tifffile==2026.3.3 numpy==2.4.6 imagecodecs==2026.3.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import tifffile

picture = np.full((32, 32), 1, np.uint16)
found = {}
for byteorder in "<>":
    for compression, options in {"zlib": {}, "lzw": {}, "jpeg2000": {"level": 0}}.items():
        tifffile.imwrite("a.tif", picture, byteorder=byteorder, compression=compression, compressionargs=options)
        back = tifffile.imread("a.tif")
        assert back.dtype == np.uint16
        found[byteorder, compression] = sorted(set(back.ravel().tolist()))
print("tifffile", tifffile.__version__, found)
right = {key: [1] for key in found}
assert found == {**right, (">", "jpeg2000"): [256]}, "it has changed"
PYTHON

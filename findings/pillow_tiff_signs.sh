#!/usr/bin/env bash
# Pillow 13.0.0 reads a TIFF file of int8 as uint8, so -10 is 246, and one of uint32 as int32, so 2**31 is -2**31,
# without a warning. int16, uint16, int32 and float32 are right. Cure: `tifffile.imread`, or
# `np.asarray(image).view(...)` as the tag SampleFormat says.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pillow==13.0.0 tifffile==2026.3.3 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import tifffile
from PIL import Image

changed = {}
for dtype in ("i1", "i2", "u2", "i4", "u4", "f4"):
    first = 2**31 if dtype == "u4" else 10 if dtype == "u2" else -10
    stored = np.full((4, 5), first, dtype)
    tifffile.imwrite("a.tif", stored)
    assert (tifffile.imread("a.tif") == stored).all()
    with Image.open("a.tif") as image:
        found = np.asarray(image)
    if found[0, 0] != first:
        changed[dtype] = (image.mode, first, found[0, 0].item())
print("Pillow 13.0.0:", changed)
assert changed == {"i1": ("L", -10, 246), "u4": ("I", 2**31, -(2**31))}, "it has changed"
PYTHON

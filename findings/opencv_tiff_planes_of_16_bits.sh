#!/usr/bin/env bash
# OpenCV 5.0.0: `imread(..., IMREAD_UNCHANGED)` of a TIFF file in planes (all of red, then green, then blue:
# `planarconfig= "separate"`) with more than 8 bits fills the pixels with the first plane, three of its neighbours to a
# pixel: the other planes are lost, without an error. So it does for float32. Files of 8 bits are right. Cure: tifffile
# or rasterio.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tifffile==2026.3.3 numpy==2.4.6 opencv-python-headless==5.0.0.93
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import cv2
import numpy as np
import tifffile

found = {}
for dtype in ("u1", "u2", "f4"):
    planes = np.stack([np.full((4, 6), value, dtype) for value in (10, 20, 30)])  # red, green, blue
    planes[0] += np.arange(6).astype(dtype)
    tifffile.imwrite("a.tif", planes, photometric="rgb", planarconfig="separate")
    assert (tifffile.imread("a.tif") == planes).all()
    picture = cv2.imread("a.tif", cv2.IMREAD_UNCHANGED)
    assert picture.shape == (4, 6, 3)
    assert picture.dtype == dtype
    found[dtype] = picture[0, :2, ::-1].tolist()
print("OpenCV", cv2.__version__, found)
right, wrong = [[10, 20, 30], [11, 20, 30]], [[10, 11, 12], [13, 14, 15]]
assert found == {"u1": right, "u2": wrong, "f4": wrong}, "it has changed"
PYTHON

#!/usr/bin/env bash
# A grey TIFF file in which 0 is white (`photometric="miniswhite"`): Pillow 13.0.0 and OpenCV 5.0.0 invert pictures of
# 8 bits and not those of 16 bits, without a warning, so the two depths of one picture are each other's negatives.
# tifffile 2026.3.3 inverts neither. Cure: read with tifffile, and invert as `page.photometric` says.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pillow==13.0.0 opencv-python-headless==5.0.0.93 tifffile==2026.3.3 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import cv2
import numpy as np
import tifffile
from PIL import Image

found = {}
for depth in (8, 16):
    stored = np.arange(20, dtype=f"u{depth // 8}").reshape(4, 5)
    tifffile.imwrite("a.tif", stored, photometric="miniswhite")
    with Image.open("a.tif") as image:
        by_pillow = np.asarray(image)
    by_opencv = cv2.imread("a.tif", cv2.IMREAD_UNCHANGED)
    pictures = {"Pillow": by_pillow, "OpenCV": by_opencv, "tifffile": tifffile.imread("a.tif")}
    for name, picture in pictures.items():
        found[name, depth] = picture[0, 1].item()
print(found)
assert found == {
    ("Pillow", 8): 254, ("OpenCV", 8): 254, ("tifffile", 8): 1,
    ("Pillow", 16): 1, ("OpenCV", 16): 1, ("tifffile", 16): 1,
}, "it has changed"
PYTHON

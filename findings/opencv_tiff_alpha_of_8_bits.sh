#!/usr/bin/env bash
# OpenCV 5.0.0: `imread(..., IMREAD_UNCHANGED)` of a TIFF file with transparency (8 bits, alpha "unassociated", as
# Pillow and tifffile write it) multiplies the colours by alpha: 200 with an alpha of 128 is 100, and where alpha is 0
# all colours are lost. The same picture as PNG, or as TIFF of 16 bits, keeps its colours. Nothing is said. Cure:
# Pillow or tifffile.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pillow==13.0.0 numpy==2.4.6 tifffile==2026.3.3 opencv-python-headless==5.0.0.93
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import cv2
import numpy as np
import tifffile
from PIL import Image

pixels = np.empty((2, 2, 4), np.uint8)
pixels[0], pixels[1] = (200, 100, 50, 128), (200, 100, 50, 0)
Image.fromarray(pixels).save("a.tif")
Image.fromarray(pixels).save("a.png")
tifffile.imwrite("b.tif", pixels.astype(np.uint16), photometric="rgb", extrasamples=["unassalpha"])
found = {}
for name in ("a.tif", "a.png", "b.tif"):
    picture = cv2.imread(name, cv2.IMREAD_UNCHANGED)
    found[name] = picture[:, 0, [2, 1, 0, 3]].tolist()
print("OpenCV", cv2.__version__, found)
right = pixels[:, 0].tolist()
assert found == {"a.tif": [[100, 50, 25, 128], [0, 0, 0, 0]], "a.png": right, "b.tif": right}, "it has changed"
PYTHON

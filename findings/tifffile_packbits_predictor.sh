#!/usr/bin/env bash
# A TIFF file that tifffile 2026.3.3 writes with `compression="packbits", predictor=True` holds differences of pixels
# and the tag Predictor. tifffile sums them up; rasterio 1.4.4 (GDAL, libtiff) and Pillow 13.0.0 know that tag with LZW
# and Deflate alone, and return the differences as the picture, without an error or a warning. Cure: zlib or LZW with a
# predictor.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tifffile==2026.3.3 numpy==2.4.6 imagecodecs==2026.3.6 pillow==13.0.0 rasterio==1.4.4
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import rasterio
import tifffile
from PIL import Image

picture = np.arange(10, 42, dtype=np.uint8).repeat(16).reshape(32, 16).T.copy()
found = {}
for compression in ("zlib", "lzw", "packbits"):
    tifffile.imwrite("a.tif", picture, compression=compression, predictor=True)
    found[compression, "tifffile"] = tifffile.imread("a.tif")[0, :4].tolist()
    with rasterio.open("a.tif") as file:
        found[compression, "rasterio"] = file.read(1)[0, :4].tolist()
    with Image.open("a.tif") as image:
        found[compression, "Pillow"] = np.asarray(image)[0, :4].tolist()
print(found)
right, differences = [10, 11, 12, 13], [10, 1, 1, 1]
for (compression, reader), pixels in found.items():
    wrong = compression == "packbits" and reader != "tifffile"
    assert pixels == (differences if wrong else right), (compression, reader, "it has changed")
PYTHON

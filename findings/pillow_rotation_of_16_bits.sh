#!/usr/bin/env bash
# Pillow 13.0.0: `rotate` and `transform` of a picture of 16 bits (mode I;16, as depth maps and medical pictures are
# read) with BILINEAR or BICUBIC interpolate its bytes instead of its pixels, without an error: a picture that is 255
# left and 256 right, shifted by half a pixel, is 127 everywhere. NEAREST and `resize` are right, and so is mode F.
# Cure: `image.convert("F")` before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pillow==13.0.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import PIL
from PIL import Image

print("Pillow", PIL.__version__)
pixels = np.full((8, 8), 255, np.uint16)
pixels[:, 4:] = 256
picture = Image.fromarray(pixels)
wrong = {}
for name in ("BILINEAR", "BICUBIC"):
    how = Image.Resampling[name]
    for what, change in {
        "rotate": lambda image: image.rotate(10, how),
        "shift": lambda image: image.transform((6, 6), Image.Transform.AFFINE, (1, 0, 0.5, 0, 1, 1), how),
    }.items():
        inside = slice(2, 5)  # without the corners that a rotation fills
        found = np.asarray(change(picture))[inside, inside]
        right = np.asarray(change(picture.convert("F")))[inside, inside]
        print(name, what, picture.mode, found.tolist(), "as mode F", right.round(1).tolist())
        assert right.min() > 254 and right.max() < 257
        wrong[name, what] = np.abs(found - right).max()
resized = np.asarray(picture.resize((5, 5), Image.Resampling.BILINEAR))
assert resized.min() >= 254 and resized.max() <= 257
assert all(far > 100 for far in wrong.values()), f"it has changed: {wrong}"
PYTHON

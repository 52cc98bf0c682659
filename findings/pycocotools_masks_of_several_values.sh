#!/usr/bin/env bash
# pycocotools 2.0.11: `mask.encode` of a mask with values besides 0 and 1 counts runs of equal values, and `decode` and
# `area` take every second run for foreground: a neighbour with another label is a hole. Of a row of the labels 1, 2, 3
# the middle pixel is lost, without an error. Masks of 0 and 255 are right. Cure: `mask.encode(np.asfortranarray(labels
# == number))`, or `labels > 0`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pycocotools==2.0.11 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from pycocotools import mask

labels = np.asfortranarray([[0, 1, 2, 3, 0], [1, 1, 2, 2, 0]], dtype=np.uint8)
encoded = mask.encode(labels)
decoded, area = mask.decode(encoded), int(mask.area(encoded))
print(labels.tolist(), "->", decoded.tolist(), "area", area)
right = mask.encode(np.asfortranarray(labels > 0))
print("labels > 0 ->", mask.decode(right).tolist(), "area", int(mask.area(right)))
assert int(mask.area(right)) == 7 and (mask.decode(right) == (labels > 0)).all()
assert (decoded == 0)[labels > 0].any() and area == decoded.sum() < 7, "it has changed"
PYTHON

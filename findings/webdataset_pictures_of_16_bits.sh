#!/usr/bin/env bash
# webdataset 1.0.2: `decode("pil")`, "l", "rgb", "torchrgb" and all other kinds of pictures turn a PNG file of 16
# bits, as depth maps and scans are, into 8 bits by clipping: every pixel above 255 is white, without an error or a
# warning, so 300 and 40000 are both 255 (or 1.0). Cure: decode such members in a `map`, by
# `np.asarray(Image.open(io.BytesIO(content)))`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q webdataset==1.0.2 pillow==13.0.0 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import io

import numpy as np
import webdataset
from PIL import Image

print("webdataset", webdataset.__version__, "Pillow", Image.__version__)
pixels = np.array([[0, 200], [300, 40_000]], np.uint16)
content = io.BytesIO()
Image.fromarray(pixels).save(content, "png")
with webdataset.TarWriter("a.tar") as writer:
    writer.write({"__key__": "a", "png": content.getvalue()})
rows = webdataset.WebDataset("a.tar", shardshuffle=False)
assert (np.asarray(Image.open(io.BytesIO(next(iter(rows))["png"]))) == pixels).all()
for kind, white in (("pil", 255), ("l8", 255), ("rgb8", 255), ("l", 1.0), ("rgb", 1.0)):
    picture = np.asarray(next(iter(rows.decode(kind)))["png"])
    found = picture.reshape(4, -1)[:, 0].tolist()
    print(kind, pixels.ravel().tolist(), "->", picture.dtype, found)
    assert found[0] == 0 and found[1] < found[2] == found[3] == white, "it has changed"
PYTHON

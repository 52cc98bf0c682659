#!/usr/bin/env bash
# mosaicml-streaming 0.13.0: the encoding `pil` of MDS stores mode, size and pixels of an image, and not its palette.
# A red image of mode P (as most GIF and many PNG files are) is black when it is read, without an error. Cure:
# `image.convert("RGB")`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps mosaicml-streaming==0.13.0 numpy==2.2.6 pillow==12.0.0 typing_extensions==4.15.0
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import importlib.util
import sysconfig
from pathlib import Path

import numpy as np

# the encodings alone, as the whole package imports PyTorch and torchvision
path = Path(sysconfig.get_path("purelib")) / "streaming/base/format/mds/encodings.py"
spec = importlib.util.spec_from_file_location("encodings_of_mds", path)
mds = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mds)

from PIL import Image

image = Image.new("P", (2, 2))
image.putpalette([255, 0, 0] * 256)
back = mds.mds_decode("pil", mds.mds_encode("pil", image))
before, after = (one.convert("RGB").getpixel((0, 0)) for one in (image, back))
print("mosaicml-streaming 0.13.0:", image.mode, before, "->", back.mode, after)
assert before == (255, 0, 0)
assert after == (0, 0, 0), "the palette has changed"
EOF

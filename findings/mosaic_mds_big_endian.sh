#!/usr/bin/env bash
# mosaicml-streaming 0.13.0: the encoding `ndarray` of MDS stores the bytes of a big-endian array as they are and the
# name of its dtype without the byte order. `MDSWriter` takes the array, and readers get other numbers, without an
# error. (FITS and NetCDF files give such arrays.) Cure: `array.astype(array.dtype.newbyteorder("="))`.
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

array = np.arange(3, dtype=">i4")
back = mds.mds_decode("ndarray", mds.mds_encode("ndarray", array))
print("mosaicml-streaming 0.13.0:", array.tolist(), "->", back.tolist(), back.dtype)
assert back.tolist() == [0, 16777216, 33554432], "the values have changed"
EOF

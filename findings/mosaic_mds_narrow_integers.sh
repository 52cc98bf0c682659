#!/usr/bin/env bash
# mosaicml-streaming 0.13.0: the integer encodings of MDS refuse a Python integer out of range, and let a NumPy
# integer wrap around: `np.int64(300)` becomes 44 as `uint8`, and 2**40 becomes 0 as `int32`, without an error. So
# whether a label is kept depends on the type that carried it.
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

for encoding, value in {"uint8": 300, "int32": 2**40}.items():
    try:
        mds.mds_encode(encoding, value)
    except OverflowError as error:
        print(encoding, value, "->", error)
    else:
        raise AssertionError("Python integers are not refused any more")
    back = mds.mds_decode(encoding, mds.mds_encode(encoding, np.int64(value)))
    print(encoding, repr(np.int64(value)), "->", repr(back))
    assert int(back) == value % 2 ** (8 * back.dtype.itemsize), "NumPy integers do not wrap any more"
EOF

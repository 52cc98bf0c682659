#!/usr/bin/env bash
# ormsgpack 1.13.1: with `OPT_SERIALIZE_NUMPY` the bytes of big-endian arrays, as come from FITS, NetCDF and IDX
# files, are taken for those of this machine: 1 and 2 of `>i4` become 16777216 and 33554432, and floats other floats,
# without an error. Arrays that are not contiguous are refused. Cure: `array.astype(array.dtype.newbyteorder("="))`
# before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ormsgpack==1.13.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import ormsgpack

print("ormsgpack", ormsgpack.__version__)
for name in ("i2", "i4", "i8", "u4", "f4", "f8"):
    found = {}
    for order in "<>":
        array = np.array([1, 2], order + name)
        found[order] = ormsgpack.unpackb(ormsgpack.packb(array, option=ormsgpack.OPT_SERIALIZE_NUMPY))
        print(array.dtype.str, array.tolist(), "->", found[order])
    assert found["<"] == [1, 2]
    assert found[">"] == np.array([1, 2], "<" + name).byteswap().tolist(), "it has changed"
PYTHON

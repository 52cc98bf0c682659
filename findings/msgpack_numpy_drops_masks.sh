#!/usr/bin/env bash
# msgpack-numpy 0.4.8: a masked array is stored as the numbers below its mask, without an error, so values that were
# marked as missing, such as a fill value of -9999 in measurements, come back as valid numbers in a plain array. Cure:
# store `array.filled(value)` with a value of your choice, or data and mask apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q msgpack-numpy==0.4.8 msgpack==1.2.4 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import msgpack
import msgpack_numpy
import numpy as np

print("msgpack", msgpack.version, "msgpack-numpy 0.4.8")
measured = np.ma.masked_equal([1.5, -9999.0, 2.5], -9999.0)
found = msgpack.unpackb(msgpack.packb(measured, default=msgpack_numpy.encode), object_hook=msgpack_numpy.decode)
print(measured.tolist(), "mean", measured.mean(), "->", type(found).__name__, found.tolist(), "mean", found.mean())
assert measured.tolist() == [1.5, None, 2.5]
assert not np.ma.isMaskedArray(found) and found.tolist() == [1.5, -9999.0, 2.5], "it has changed"
PYTHON

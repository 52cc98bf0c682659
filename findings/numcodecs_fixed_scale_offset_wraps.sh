#!/usr/bin/env bash
# numcodecs 0.16.6: `FixedScaleOffset` casts scaled values to its integer dtype, and those that this cannot hold wrap
# around, without an error: with a scale of 10 in uint8, 30.0 is read as 4.4. A missing value (NaN) is read as 0, after
# a RuntimeWarning of NumPy. The codec is for Zarr's `filters=`, where the writer sees neither result.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numcodecs==0.16.6 numpy==2.4.6
"$folder/venv/bin/python" -W error - <<'PYTHON'
import warnings

import numcodecs
import numpy as np

print("numcodecs", numcodecs.__version__)
codec = numcodecs.FixedScaleOffset(offset=0, scale=10, dtype="f8", astype="u1")
values = np.array([1.0, 30.0])
found = codec.decode(codec.encode(values))
print(values, "->", found)
assert found.tolist() == [1.0, 4.4], "it has changed"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = codec.decode(codec.encode(np.array([np.nan])))
print("nan ->", found, [str(one.message) for one in caught])
assert found.tolist() == [0.0] and caught[0].category is RuntimeWarning, "it has changed"
PYTHON

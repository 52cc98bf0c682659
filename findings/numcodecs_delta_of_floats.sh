#!/usr/bin/env bash
# numcodecs 0.16.6: the filter `Delta`, also in an array of Zarr, loses floats: one NaN or infinity makes all values
# behind it in its chunk NaN, and other floats come back with errors that add up, as differences are rounded. There is
# no error or warning. Integers are exact. Cure: `Delta` for integers alone; `Shuffle` or PCodec for floats.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numcodecs==0.16.6 zarr==3.1.6 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numcodecs
import numpy as np
import zarr

print("numcodecs", numcodecs.__version__, "zarr", zarr.__version__)
values = np.array([1, 2, np.nan, 4, 5, 6, 7, 8], "f4")
array = zarr.create_array(
    "a.zarr", shape=(8,), chunks=(4,), dtype="f4", zarr_format=2, filters=[numcodecs.Delta("f4")], compressors=None
)
array[:] = values
found = zarr.open_array("a.zarr", mode="r")[:]
print(values.tolist(), "->", found.tolist())
numbers = np.random.default_rng(0).standard_normal(10_000).astype("f4")
codec = numcodecs.Delta("f4")
far = np.abs(codec.decode(codec.encode(numbers)) - numbers)
print("errors of 10,000 numbers, the first and the last hundred:", far[:100].max(), far[-100:].max())
integers = np.array([-(2**31), 2**31 - 1, 5], "i4")
codec = numcodecs.Delta("i4")
assert codec.decode(codec.encode(integers)).tolist() == integers.tolist()
assert np.isnan(found[:4]).tolist() == [False, False, True, True], "it has changed"
assert found[4:].tolist() == [5, 6, 7, 8]
assert far[-100:].max() > 2 * far[:100].max() > 0, "it has changed"
PYTHON

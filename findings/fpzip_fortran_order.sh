#!/usr/bin/env bash
# fpzip 1.2.5: `compress` reads the memory of an array in Fortran order, or of a transposed one, as if it were in C
# order, beside the shape of the array, unless `order="F"` says so: other numbers at each place, without an error,
# though NumPy says how an array lies in memory, and slices that are not contiguous are right. Fields of models and
# pictures that were transposed are scrambled. Cure: `np.ascontiguousarray`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fpzip==1.2.5 numpy==2.4.6
"$folder/venv/bin/python" -W error - <<'PYTHON'
from importlib.metadata import version

import fpzip
import numpy as np

print("fpzip", version("fpzip"))


def stored(array):
    return fpzip.decompress(fpzip.compress(array)).reshape(array.shape)


field = np.arange(6.0).reshape(2, 3)
turned = stored(field.T)
print(field.T.tolist(), "->", turned.tolist())
assert turned.tolist() == [[0, 1], [2, 3], [4, 5]], "it has changed"
assert stored(np.asfortranarray(field)).tolist() == [[0, 3, 1], [4, 2, 5]], "it has changed"
assert (stored(field[:, ::2]) == field[:, ::2]).all()
assert (stored(np.ascontiguousarray(field.T)) == field.T).all()
PYTHON

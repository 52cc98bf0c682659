#!/usr/bin/env bash
# pyfive 1.3.0: a boolean dataset that h5py has written is read as int8, without an error. A mask that is used to choose
# then chooses the elements 1 and 0 instead of those that are true: `a[mask]` has as many elements as `mask`, and
# `~mask` is -2 and -1. h5py reads the same file as bool. Cure: `.astype(bool)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyfive==1.3.0 h5py==3.16.0 numpy==2.4.6
cd "$folder"
venv/bin/python -W error - <<'PYTHON'
from importlib.metadata import version

import h5py
import numpy as np
import pyfive

print("pyfive", version("pyfive"), "h5py", h5py.__version__)
with h5py.File("a.h5", "w") as file:
    file["mask"] = np.array([True, False, True])
values = np.array([10, 20, 30])
with h5py.File("a.h5") as by_h5py, pyfive.File("a.h5") as by_pyfive:
    right, found = by_h5py["mask"][:], by_pyfive["mask"][:]
print("h5py", right.dtype, values[right], "pyfive", found.dtype, values[found])
assert right.dtype == bool and values[right].tolist() == [10, 30]
assert found.dtype == np.int8 and values[found].tolist() == [20, 10, 20], "it has changed"
PYTHON

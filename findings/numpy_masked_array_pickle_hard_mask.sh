#!/usr/bin/env bash
# NumPy: a pickled masked array comes back without its hard mask, so that a write unmasks what was protected.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import pickle
import sys

import numpy as np

array = np.ma.array([1, 2], mask=[False, True], hard_mask=True)
again = pickle.loads(pickle.dumps(array))
array[1] = again[1] = 5
print("numpy", np.__version__, "before:", array, "after pickle:", again, "hardmask:", again.hardmask)
sys.exit(again.hardmask or str(again) != "[1 5]")
# seen: before: [1 --] after pickle: [1 5] hardmask: False
PYTHON

#!/usr/bin/env bash
# ml_dtypes: of the float8 dtypes float8_e5m2 alone has the kind 'f' of NumPy's floats, the others and bfloat16 have 'V'.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ml_dtypes==0.6.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import ml_dtypes
import numpy as np

names = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
kinds = {name: np.dtype(getattr(ml_dtypes, name)).kind for name in names}
print("ml_dtypes", ml_dtypes.__version__, kinds)
sys.exit(kinds != {**dict.fromkeys(names, "V"), "float8_e5m2": "f"})
# seen: float8_e5m2 is of kind f, all others of kind V
PYTHON

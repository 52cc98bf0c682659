#!/usr/bin/env bash
# JAX on the CPU: device_put(array, may_alias=False) shares the memory of an aligned NumPy array all the same.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q jax==0.10.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import jax
import numpy as np

room = np.zeros(4 * 65536 + 64, np.uint8)
begin = -room.ctypes.data % 64
array = room[begin : begin + 4 * 65536].view(np.float32)
made = jax.block_until_ready(jax.device_put(array, jax.devices("cpu")[0], may_alias=False))
array[:] = 7
print("jax", jax.__version__, "may_alias=False, then the NumPy array is changed:", float(made[0]))
sys.exit(float(made[0]) != 7.0)
# seen: jax 0.10.2 may_alias=False, then the NumPy array is changed: 7.0
PYTHON

#!/usr/bin/env bash
# h5py 3.14.0 with ml_dtypes 0.5.3: an array of bfloat16, float8_e4m3fn or int4 is stored without an error, and read back
# as void bytes (V2, V1) without any mark of what it was; float8_e5m2 is refused. Cure: store `array.view(np.uint16)`, or
# read with `array.view(ml_dtypes.bfloat16)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q h5py==3.14.0 ml_dtypes==0.5.3 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import h5py
import ml_dtypes
import numpy as np

print("h5py", h5py.__version__, "ml_dtypes", ml_dtypes.__version__)
for name in ("bfloat16", "float8_e4m3fn", "int4"):
    stored = np.array([1, 2], getattr(ml_dtypes, name))
    with h5py.File("a.h5", "w") as file:
        file["x"] = stored
    with h5py.File("a.h5") as file:
        back = file["x"][:]
    print(name, "->", back.dtype, back.tolist())
    assert back.dtype.kind == "V", "the dtype is kept now"
    assert back.view(stored.dtype).tolist() == stored.tolist()
try:
    with h5py.File("b.h5", "w") as file:
        file["x"] = np.array([1, 2], ml_dtypes.float8_e5m2)
except TypeError as error:
    print("float8_e5m2:", error)
else:
    raise SystemExit("float8_e5m2 is stored now")
EOF

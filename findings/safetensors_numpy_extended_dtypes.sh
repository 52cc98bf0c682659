#!/usr/bin/env bash
# safetensors 0.8.0: `safetensors.numpy.save` stores arrays of ml_dtypes' bfloat16 and float8, as "BF16" and so on, and
# does not read them all: `load` of these bytes is a KeyError, and `load_file` returns bfloat16, but raises an
# AttributeError for float8. `safetensors.torch` reads both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q safetensors==0.8.0 ml_dtypes==0.5.3 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import ml_dtypes
import numpy as np
import safetensors
from safetensors.numpy import load, load_file, save

print("safetensors", safetensors.__version__)
for name in ("bfloat16", "float8_e4m3fn"):
    data = save({"x": np.array([1, 2], getattr(ml_dtypes, name))})
    open("a.safetensors", "wb").write(data)
    try:
        found = load_file("a.safetensors")["x"]
        print(name, "load_file:", found.dtype, found.tolist())
    except Exception as error:
        print(name, "load_file:", repr(error))
    try:
        load(data)
    except KeyError as error:
        print(name, "load: KeyError", error)
    else:
        raise SystemExit("it can be loaded now")
EOF

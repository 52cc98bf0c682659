#!/usr/bin/env bash
# datasets 5.2.0 with JAX 0.10.2: with the format "jax" a column of int64 becomes int32 and its values wrap around:
# 2**40 + 1 is 1, without an error. JAX itself raises an OverflowError for that number. Cure:
# `jax.config.update("jax_enable_x64", True)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q datasets==5.2.0 numpy==2.4.6 jax==0.10.2
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import datasets
import numpy as np

print("datasets", datasets.__version__)

import jax
import jax.numpy as jnp

ds = datasets.Dataset.from_dict({"id": [2**40 + 1]})
found = ds.with_format("jax")[0]["id"]
print("jax", jax.__version__, 2**40 + 1, "->", int(found), found.dtype)
assert int(found) == 1, "it has changed"
try:
    jnp.asarray(2**40 + 1)
except OverflowError as error:
    print("jax alone:", error)
else:
    raise AssertionError("JAX takes it now")
EOF

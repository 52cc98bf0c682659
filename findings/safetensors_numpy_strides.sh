#!/usr/bin/env bash
# safetensors 0.8.0: `safetensors.numpy.save` stores an array that is not contiguous (in Fortran order, transposed,
# every second element) as its bytes lie in memory, beside the shape of the array. Reading gives other numbers,
# without an error. `safetensors.torch.save` refuses such tensors. Cure: `np.ascontiguousarray`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q safetensors==0.8.0 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import numpy as np
import safetensors
from safetensors.numpy import load, save

print("safetensors", safetensors.__version__)
arrays = {
    "Fortran order": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "transposed": np.arange(6).reshape(2, 3).T,
    "every second": np.arange(10)[::2],
}
for name, array in arrays.items():
    back = load(save({"a": array}))["a"]
    print(name, array.tolist(), "->", back.tolist())
    assert back.shape == array.shape
    assert back.tolist() != array.tolist(), "the values are right now"
EOF

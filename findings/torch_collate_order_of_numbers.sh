#!/usr/bin/env bash
# PyTorch 2.13: the dtype that `default_collate` gives Python numbers depends on the first of them. [0.5, 16777217] is
# float64, [16777217, 0.5] is float32, and the identifier is rounded, without a warning. So what a batch contains
# depends on the shuffling. Cure: return NumPy scalars or tensors.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import torch
from torch.utils.data import default_collate

print("torch", torch.__version__)
one, other = default_collate([0.5, 16_777_217]), default_collate([16_777_217, 0.5])
print(one.dtype, one.tolist(), "->", other.dtype, other.tolist())
assert one.dtype == torch.float64 and one[1] == 16_777_217
assert other.dtype == torch.float32 and other[0] == 16_777_216, "it has changed"
EOF

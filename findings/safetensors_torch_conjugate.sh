#!/usr/bin/env bash
# safetensors 0.8.0 with PyTorch: `safetensors.torch.save` drops the conjugate and the negative bit of a tensor.
# `x.conj()` is stored as `x`, and `x.conj().imag` as `x.imag`: the sign is lost, without an error. Cure:
# `tensor.resolve_conj().resolve_neg()`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q safetensors==0.8.0 torch==2.13.0 numpy==2.2.6 packaging==25.0
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import safetensors
import torch
from safetensors.torch import load, save

print("safetensors", safetensors.__version__, "torch", torch.__version__)
x = torch.tensor([1 + 2j])
for name, tensor in {"conj()": x.conj(), "conj().imag": x.conj().imag}.items():
    back = load(save({"a": tensor}))["a"]
    print(name, tensor.tolist(), "->", back.tolist())
    assert back.tolist() != tensor.tolist(), "the values are right now"
EOF

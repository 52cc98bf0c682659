#!/usr/bin/env bash
# PyTorch pickles tensors of the newer dtypes (uint16, uint32, uint64, float8, complex32), but cannot unpickle them:
# pickle.loads is an AttributeError, where torch.save and torch.load of the same tensor work.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import io
import pickle
import sys

import torch


def unpickled(tensor):
    try:
        return str(pickle.loads(pickle.dumps(tensor)).dtype)
    except AttributeError:
        return "AttributeError"


def loaded(tensor):
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    return str(torch.load(file).dtype)


print("torch", torch.__version__)
tensors = [torch.zeros(3, dtype=dtype) for dtype in (torch.int16, torch.uint16, torch.uint64, torch.float8_e4m3fn)]
found = [(loaded(tensor), unpickled(tensor)) for tensor in tensors]
print("torch.load, pickle.loads:", found)
sys.exit([name for _, name in found] != ["torch.int16"] + ["AttributeError"] * 3)
# seen: torch.load, pickle.loads: [('torch.int16', 'torch.int16'), ('torch.uint16', 'AttributeError'),
#       ('torch.uint64', 'AttributeError'), ('torch.float8_e4m3fn', 'AttributeError')]
PYTHON

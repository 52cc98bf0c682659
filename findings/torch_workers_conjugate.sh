#!/usr/bin/env bash
# PyTorch 2.13 (2.14.1 too): a worker of a DataLoader returns a tensor that is the lazy conjugate of another, or its
# imaginary part, without the sign: other numbers than with num_workers=0, without a word. Cure: `resolve_conj()` and
# `resolve_neg()` in the dataset.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > program.py <<'EOF'
import torch
from torch.utils.data import DataLoader


class Conjugates(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        found = torch.tensor([1 + 2j]).conj()
        return [found, found.imag]


if __name__ == "__main__":
    print("torch", torch.__version__)
    here, worker = [
        [tensor.tolist() for tensor in next(iter(DataLoader(Conjugates(), batch_size=None, num_workers=workers)))]
        for workers in (0, 1)
    ]
    print("num_workers=0", here, "num_workers=1", worker)
    assert here == [[1 - 2j], [-2.0]]
    assert worker == [[1 + 2j], [2.0]], "it has changed"
EOF
"$folder/venv/bin/python" program.py

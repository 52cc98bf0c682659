#!/usr/bin/env bash
# torchvision 0.29.1: `v2.ToDtype(..., scale=True)` and `convert_image_dtype` wrap white around to black where the
# float dtype has too few digits for the integer one: 1.0 of float16 or bfloat16 is 0 in uint8, and 1.0 of float32 is
# 0 in uint16, without an error. 0.999 of float16 is 255. From float32 to uint8 it is right. `resize` of uint16 with
# BICUBIC wraps around at edges, too: white beside black becomes black. Cure: `image.float()` before, and for uint16
# `image.double()`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torchvision==0.29.1 torch==2.14.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch
import torchvision
from torchvision.transforms import v2

print("torchvision", torchvision.__version__, "torch", torch.__version__)
found = {}
for source in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    for target in (torch.uint8, torch.uint16):
        image = torch.tensor([[[0.0, 0.5, 1.0]]], dtype=source)
        converted = v2.functional.to_dtype(image, target, scale=True)
        assert converted.equal(v2.functional.convert_image_dtype(image, target))
        found[source, target] = converted.flatten().tolist()[-1]
        print(source, "->", target, image.flatten().tolist(), converted.flatten().tolist())
edge = torch.tensor([[[0.0, 0.0, 1.0, 1.0]] * 4], dtype=torch.float64)
rows = {}
for target in (torch.uint8, torch.uint16):
    row = v2.functional.resize(v2.functional.to_dtype(edge, target, scale=True), [8, 8], v2.InterpolationMode.BICUBIC)[0, 0]
    rows[target] = row.tolist()
    print("bicubic", target, rows[target])
assert found[torch.float32, torch.uint8] == 255 and found[torch.float64, torch.uint16] == 65535
assert found[torch.float16, torch.uint8] == found[torch.bfloat16, torch.uint8] == 0, "it has changed"
assert found[torch.float32, torch.uint16] == found[torch.float16, torch.uint16] == 0, "it has changed"
white = {target: row[4:] for target, row in rows.items()}
assert min(white[torch.uint8]) > 150 and min(white[torch.uint16]) < 10_000, "it has changed"
PYTHON

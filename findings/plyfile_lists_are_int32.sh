#!/usr/bin/env bash
# plyfile 1.1.5: a property that is a list (an array of objects) is written as int32 unless `val_types` says otherwise,
# whatever its values are: weights and colours of 0.9 are 0, texture coordinates are all 0 or 1, and 2**40 + 1 of NumPy
# is 1, without an error or a warning. Numbers that are no lists keep their type, or are refused. Cure:
# `PlyElement.describe(faces, "face", val_types={"texcoord": "f8"})`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q plyfile==1.1.5 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from plyfile import PlyData, PlyElement

print("plyfile", version("plyfile"))


def stored(values, **types):
    faces = np.empty(1, [("texcoord", "O")])
    faces[0] = (values,)
    PlyData([PlyElement.describe(faces, "face", **types)]).write("a.ply")
    found = PlyData.read("a.ply")["face"].data["texcoord"][0]
    print(values, types, "->", found, found.dtype)
    return found.tolist()


assert stored(np.array([0.25, 0.9, 1.0], np.float32)) == [0, 0, 1], "it has changed"
assert stored([1.5, -2.7]) == [1, -2], "it has changed"
assert stored(np.array([2**40 + 1, 3])) == [1, 3], "it has changed"
assert stored([0.25, 0.9], val_types={"texcoord": "f8"}) == [0.25, 0.9]
PYTHON

#!/usr/bin/env bash
# pypcd4 1.5.1: `PointCloud.from_points` casts each field to the type named for it, without an error or a warning: an
# intensity of 300.7 in a field of uint8 is 44, and 70,000 in one of int16 is 4,464. Sensors of 12 and 16 bits give such
# values, and the types that point clouds commonly name for intensity and ring are uint8 and uint16.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pypcd4==1.5.1 numpy==2.4.6
cd "$folder"
venv/bin/python -W error - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from pypcd4 import PointCloud

print("pypcd4", version("pypcd4"))
points = np.array([[1.0, 300.7, 70_000.0]])
cloud = PointCloud.from_points(points, ("x", "intensity", "count"), (np.float32, np.uint8, np.int16))
cloud.save("a.pcd")
found = PointCloud.from_path("a.pcd").numpy(("x", "intensity", "count"))
print("given", points[0], "read", found[0])
assert found[0].tolist() == [1.0, 44.0, 4464.0], "it has changed"
PYTHON

#!/usr/bin/env bash
# laspy 2.7.0: `append_points` writes the stored integers of points as they are. Points of a header with other scales
# (or offsets) are then read at other places, without an error: x = 5 m and 6 m, stored in metres, become 0.05 and 0.06
# in a file in centimetres. So do coordinates after `las.header.scales = ...`. Cure: `las.change_scaling(...)` first,
# with the scales and offsets of the file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q laspy==2.7.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import laspy
import numpy as np

print("laspy", laspy.__version__)


def cloud(x, scale):
    header = laspy.LasHeader(point_format=3, version="1.2")
    header.scales = [scale] * 3
    las = laspy.LasData(header)
    las.x, las.y, las.z = np.array(x), np.zeros(len(x)), np.zeros(len(x))
    return las


cloud([1.25, 2.5], 0.01).write("a.las")
later = cloud([5.0, 6.0], 1.0)
assert np.asarray(later.x).tolist() == [5.0, 6.0]
with laspy.open("a.las", mode="a") as file:
    file.append_points(later.points)
found = np.asarray(laspy.read("a.las").x).tolist()
later.change_scaling(scales=[0.01] * 3)
with laspy.open("a.las", mode="a") as file:
    file.append_points(later.points)
cured = np.asarray(laspy.read("a.las").x).tolist()
print(found, cured)
assert found == [1.25, 2.5, 0.05, 0.06], "it has changed"
assert cured[4:] == [5.0, 6.0]

las = cloud([1.25, 2.5], 0.01)
las.header.scales = [1.0] * 3
shown = np.asarray(las.x).tolist()
las.write("b.las")
written = np.asarray(laspy.read("b.las").x).tolist()
print("header.scales = 1:", shown, "written:", written)
assert shown == [1.25, 2.5] and written != shown
PYTHON

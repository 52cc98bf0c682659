#!/usr/bin/env bash
# uproot 5.7.7: `WritableTree.extend` casts what it is given to the type of the branch, without an error or a warning:
# 70,000 in a branch of int16 is read as 4,464, and 1.9 as 1. Arrays with missing values are refused, and
# `extend` of an RNTuple refuses arrays of another dtype.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q uproot==5.7.7 numpy==2.4.6
cd "$folder"
venv/bin/python -W error - <<'PYTHON'
import numpy as np
import uproot

print("uproot", uproot.__version__)
with uproot.recreate("a.root") as file:
    file.mktree("events", {"id": np.dtype(np.int16)})
    file["events"].extend({"id": np.array([1, 2], np.int16)})
    file["events"].extend({"id": np.array([70_000])})
    file["events"].extend({"id": np.array([1.9])})
found = uproot.open("a.root")["events"]["id"].array(library="np")
print("written [1, 2], [70000], [1.9]; read", found)
assert found.tolist() == [1, 2, 4464, 1] and found.dtype == np.int16, "it has changed"
PYTHON

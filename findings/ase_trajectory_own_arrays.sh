#!/usr/bin/env bash
# ase 3.29.0: a trajectory (`.traj`, the own format of ase) and a database of ase drop the arrays that were added to
# the atoms, such as labels of each atom, without an error or a warning. Positions, tags and `info` (in a trajectory)
# are kept. Extended XYZ keeps such arrays. Cure: store labels of atoms as tags, or in extended XYZ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ase==3.29.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ase
import ase.db
import ase.io
import numpy as np

print("ase", ase.__version__)
atoms = ase.Atoms("H2", positions=np.eye(3)[:2], tags=[3, 4], info={"split": "train"})
atoms.set_array("label", np.array([7, 8]))
found = {}
for name in ("a.traj", "a.extxyz", "a.json"):
    ase.io.write(name, atoms)
    found[name] = ase.io.read(name)
with ase.db.connect("a.db") as database:
    database.write(atoms)
found["a.db"] = ase.db.connect("a.db").get_atoms(1)
for name, read in found.items():
    print(name, {key: array.tolist() for key, array in read.arrays.items() if key != "positions"}, read.info)
assert found["a.extxyz"].arrays["label"].tolist() == [7, 8]
assert all(read.get_tags().tolist() == [3, 4] for read in found.values())
assert not any("label" in found[name].arrays for name in ("a.traj", "a.db", "a.json")), "it has changed"
assert found["a.traj"].info == {"split": "train"}
PYTHON

#!/usr/bin/env bash
# ase 3.29.0: extended XYZ has eight digits behind the point for each number of an atom, whatever its size: positions,
# forces, arrays of your own. A force of 4e-9 is stored as 0 and 1.25e-8 as 1e-8, without an error or a warning, while
# numbers of the whole frame keep all their digits. Cure: store small quantities in other units, or the forces in a
# `.traj` file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ase==3.29.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ase
import ase.io
import numpy as np
from ase.calculators.singlepoint import SinglePointCalculator

print("ase", ase.__version__)
forces = np.array([[4e-9, 1.25e-8, 1.0]])
atoms = ase.Atoms("H", positions=[[1 / 3, 0, 0]], info={"total": 4e-9})
atoms.calc = SinglePointCalculator(atoms, energy=1 / 3, forces=forces)
found = {}
for name in ("a.extxyz", "a.traj"):
    ase.io.write(name, atoms)
    read = ase.io.read(name)
    found[name] = read.get_forces().tolist()
    print(name, found[name], read.positions.tolist(), read.get_potential_energy(), read.info)
    assert read.info == atoms.info and read.get_potential_energy() == 1 / 3
assert found["a.traj"] == forces.tolist()
assert found["a.extxyz"] == [[0.0, 1e-8, 1.0]], "it has changed"
PYTHON

#!/usr/bin/env bash
# ase 3.29.0: an empty text in `Atoms.info` is written to extended XYZ as `name=`, and the reader takes what follows
# for its value: the next entry, such as the energy that a model learns, is gone, and the empty text holds it, without
# an error. A text that looks like a number or a flag comes back as one: "007" as 7, "T" as True. Cure: leave empty
# texts out, and begin names with a letter that no number has.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ase==3.29.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ase
import ase.io

print("ase", ase.__version__)
info = {"comment": "", "dft_energy": -3.5, "name": "007", "group": "T", "source": "qm9"}
ase.io.write("a.extxyz", ase.Atoms("H", info=info))
print(open("a.extxyz").read())
found = ase.io.read("a.extxyz").info
print(info, "->", found)
assert "dft_energy" not in found and found["comment"] == "dft_energy=-3.5", "it has changed"
assert found["name"] == 7 and found["group"] is True, "it has changed"
assert found["source"] == "qm9"
PYTHON

#!/usr/bin/env bash
# astropy 8.0.2: a column of int8 in a `Table` that is written as FITS is stored as logical values: all numbers but 0
# come back as True, so the classes -1, 0, 1, 2 are True, False, True, True, without an error or a warning. Other
# integers are kept, and fitsio 1.4.2 stores int8 right. Cure: `.astype("int16")` before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q astropy==8.0.2 fitsio==1.4.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import astropy
import fitsio
import numpy as np
from astropy.io import fits
from astropy.table import Table

print("astropy", astropy.__version__, "fitsio", fitsio.__version__)
found = {}
for name in ("int8", "uint8", "int16", "int64"):
    labels = np.array([1, 0, 2, 100], name)
    if name != "uint8":
        labels[0] = -1
    Table({"label": labels}).write(f"{name}.fits")
    column = Table.read(f"{name}.fits")["label"]
    stored = fits.getheader(f"{name}.fits", 1)["TFORM1"]
    print(name, labels.tolist(), "stored as", stored, "->", column.dtype, column.tolist())
    assert fitsio.read(f"{name}.fits")["label"].tolist() == column.tolist()
    found[name] = column.tolist() == labels.tolist()
rows = np.zeros(4, [("label", "int8")])
rows["label"] = [-1, 0, 2, 100]
fitsio.write("other.fits", rows)
print("written by fitsio", Table.read("other.fits")["label"].tolist())
assert Table.read("other.fits")["label"].tolist() == [-1, 0, 2, 100]
assert Table.read("int8.fits")["label"].tolist() == [True, False, True, True], "it has changed"
assert found == {"int8": False, "uint8": True, "int16": True, "int64": True}, "it has changed"
PYTHON

#!/usr/bin/env bash
# PyTables 3.11.1: `append` to an array of int16 stores 70000 as 4464 and 2.9 as 2, without an error or a warning, and
# so does a list. A table refuses 300 in a column of uint8 where rows are appended, and stores 44 where the same
# numbers come as columns. Texts that are too long are cut, also in rows. Cure: compare `array.min()` and `max()` with
# `np.iinfo(atom.dtype)` first, or make columns of 64 bits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tables==3.11.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
import numpy as np
import tables

print("PyTables", tables.__version__)
with tables.open_file("a.h5", "w") as file:
    array = file.create_earray("/", "labels", tables.Int16Atom(), (0,))
    for part in (np.array([70000, -1]), [70000], np.array([2.9, -2.9])):
        array.append(part)
    print("int16:", array[:])
    assert array[:].tolist() == [4464, -1, 4464, 2, -2], "it has changed"
    table = file.create_table("/", "t", {"a": tables.UInt8Col(pos=0), "s": tables.StringCol(3, pos=1)})
    table.append([np.array([300, -1]), np.array(["abcdef", "x"])])
    table.append([(2.9, "uvwxyz")])
    print("columns of uint8 and 3 characters:", table[:].tolist())
    assert table[:].tolist() == [(44, b"abc"), (255, b"x"), (2, b"uvw")], "it has changed"
    try:
        table.append([(300, "a")])
    except ValueError:
        print("as a row: refused")
    else:
        raise AssertionError("it has changed")
PYTHON

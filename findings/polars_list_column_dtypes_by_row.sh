#!/usr/bin/env bash
# polars: lists of integers in one column become arrays of float64 or int64, row by row, as a row has a null or not.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q polars==2.1.0 numpy==2.4.6 pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import numpy as np
import polars as pl

column = pl.Series([[2**53 + 1, None], [2**53 + 1, 2]])
rows = column.to_numpy()
print("polars", pl.__version__, column.dtype, [(row.dtype, int(row[0])) for row in rows])
sys.exit([str(row.dtype) for row in rows] != ["float64", "int64"] or int(rows[0][0]) == 2**53 + 1)
# seen: float64 9007199254740992 for the row with a null, int64 9007199254740993 for the other
PYTHON

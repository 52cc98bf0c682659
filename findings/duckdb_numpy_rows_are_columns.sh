#!/usr/bin/env bash
# DuckDB 2.0.1: a NumPy array of two dimensions is read with its rows as columns: of shape (2, 3) it is a table of
# three rows and two columns, the transpose of what pandas, Polars and PyArrow make of it. A square one tells nothing by
# its shape. Cure: `pandas.DataFrame(array)`, or array.T. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1 numpy==2.4.6 pandas==3.1.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import duckdb
import numpy as np
import pandas as pd

rows = np.array([[1, 2], [3, 4]])
frame = pd.DataFrame(rows)
found = duckdb.sql("select * from rows").fetchall(), duckdb.sql("select * from frame").fetchall()
print("duckdb", duckdb.__version__, "the array:", found[0], "the same as a data frame:", found[1])
sys.exit(found != ([(1, 3), (2, 4)], [(1, 2), (3, 4)]))
PYTHON

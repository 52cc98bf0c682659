#!/usr/bin/env bash
# DuckDB 2.0.1: NaN of a NumPy array or a pandas column is NULL in SQL, and that of the same numbers in Polars or
# PyArrow is NaN. Aggregates leave out NULL and keep NaN: the same query over the same numbers gives another mean, maximum
# and count, by what the numbers came in. Cure: isnan(x) and x IS NULL both, or one kind of table everywhere.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1 numpy==2.4.6 pandas==3.1.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

columns = {"x": np.array([1.0, np.nan, 3.0])}
frames = {"pandas": pd.DataFrame(columns), "polars": pl.DataFrame(columns), "pyarrow": pa.table(columns)}
tables = {"numpy": columns, **frames}
found = {}
for name, numbers in tables.items():
    found[name] = duckdb.sql("select count(x), avg(x), max(x) from numbers").fetchall()[0]
print("duckdb", duckdb.__version__, found)
sys.exit([one[0] for one in found.values()] != [2, 2, 3, 3] or found["numpy"][1:] != (2.0, 3.0))
PYTHON

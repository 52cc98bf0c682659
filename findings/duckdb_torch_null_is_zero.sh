#!/usr/bin/env bash
# DuckDB 2.0.1: `torch()`, which returns the columns of a result as tensors of PyTorch, gives 0 or False where a value
# is NULL, for integers, floats and booleans alike, without an error or a warning, so a missing label is class 0.
# `fetchnumpy()` masks these values and `df()` marks them. Cure: `WHERE label IS NOT NULL`, or `coalesce` with a
# number of your choice.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1 torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import duckdb
import torch

print("duckdb", duckdb.__version__, "torch", torch.__version__)
values = "(7, 1.5::float, true), (null, null, null), (9, 2.5::float, false)"
rows = duckdb.sql(f"from (values {values}) row(label, weight, flag)")
found = {name: column.tolist() for name, column in rows.torch().items()}
print("torch()", found)
masked = {name: column.tolist() for name, column in rows.fetchnumpy().items()}
print("fetchnumpy()", masked)
assert masked["label"] == [7, None, 9] and masked["flag"] == [True, None, False]
assert found == {"label": [7, 0, 9], "weight": [1.5, 0.0, 2.5], "flag": [True, False, False]}, "it has changed"
PYTHON

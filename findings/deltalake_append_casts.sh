#!/usr/bin/env bash
# deltalake 1.6.6: an append to a table whose column is int64 casts what it gets: 1.7 is stored as 1, the text "7" as 7
# and True as 1, without an error. A text that is no number is refused. Cure: compare the schemas first, `table.schema
# == ...`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q deltalake==1.6.6 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

print("deltalake", version("deltalake"))
write_deltalake("table", pa.table({"x": [100]}))
for value in (1.7, "7", True):
    write_deltalake("table", pa.table({"x": [value]}), mode="append")
found = sorted(DeltaTable("table").to_pyarrow_table()["x"].to_pylist())
try:
    write_deltalake("table", pa.table({"x": ["seven"]}), mode="append")
    error = None
except Exception as raised:
    error = type(raised).__name__
print(found, error)
assert found == [1, 1, 7, 100] and error, "it has changed"
PYTHON

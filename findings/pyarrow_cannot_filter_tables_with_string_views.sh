#!/usr/bin/env bash
# A Parquet file that pyarrow wrote from a table with a string_view column cannot be read with filters, though the filter
# is on another column: read_table(filters=) raises ArrowNotImplementedError, as do Table.filter and Table.take. Without
# filters the file is read. Slices of the table and concat_tables work.
# Seen with pyarrow 26.0.1. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import pyarrow as pa
import pyarrow.parquet as pq

print("pyarrow", pa.__version__)
table, file = pa.table({"id": [1, 2], "text": pa.array(["x", "y"], pa.string_view())}), io.BytesIO()
pq.write_table(table, file)
print("without filters:", pq.read_table(file).to_pylist())
failed = 0
for name, read in {
    "read_table(filters=)": lambda: pq.read_table(file, filters=[("id", "==", 1)]),
    "Table.filter": lambda: table.filter(pa.array([True, False])),
    "Table.take": lambda: table.take([0]),
}.items():
    try:
        print(f"{name}: {read().to_pylist()}")
    except pa.ArrowNotImplementedError as error:
        failed += 1
        print(f"{name}: ArrowNotImplementedError: {error}")
print("slices:", pa.concat_tables([table.slice(1, 1)]).to_pylist())
raise SystemExit(failed != 3)
PYTHON

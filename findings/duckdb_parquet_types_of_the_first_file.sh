#!/usr/bin/env bash
# DuckDB 2.0.1: `read_parquet` of several files takes the types of columns from the first file, and casts what others
# hold: where the first has integers and a second floats, 2.7 is 3 and 0.4 is 0, without an error or a warning, and a
# column that only the second has is dropped. With the files in the other order all are floats. pyarrow refuses the
# same files. Cure: `union_by_name = true`, which takes the widest type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

print("duckdb", duckdb.__version__, "pyarrow", pa.__version__)
pq.write_table(pa.table({"score": [1, 2]}), "a.parquet")
pq.write_table(pa.table({"score": [2.7, 0.4]}), "b.parquet")


def read(*files, more=""):
    found = [row[0] for row in duckdb.sql(f"from read_parquet({list(files)}{more})").fetchall()]
    print(list(files), more, "->", found)
    return found


first, other = read("a.parquet", "b.parquet"), read("b.parquet", "a.parquet")
union = read("a.parquet", "b.parquet", more=", union_by_name = true")
try:
    pyarrow.dataset.dataset(["a.parquet", "b.parquet"]).to_table()
except pa.ArrowInvalid as error:
    print("pyarrow:", error)
else:
    raise AssertionError("pyarrow reads them, too")
assert other == [2.7, 0.4, 1, 2] and union == [1, 2, 2.7, 0.4]
assert first == [1, 2, 3, 0], "it has changed"
PYTHON

#!/usr/bin/env bash
# fastparquet 2026.9.0: lists of strings that pyarrow 26.0.1 has written without dictionary encoding are read as None,
# and so are lists of lists with it: all values are missing, without an error. Lists of numbers, and lists of strings
# with dictionaries, are read. pyarrow reads all of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fastparquet==2026.9.0 pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import fastparquet
import pyarrow as pa
import pyarrow.parquet as pq

print("fastparquet", fastparquet.__version__)
columns = {
    "strings": pa.array([["a", "b"], ["c"], []]),
    "numbers": pa.array([[1, 2], [3], []]),
    "nested": pa.array([[[1], [2]], [[3]], []]),
}
found = {}
for name, column in columns.items():
    for dictionary in (True, False):
        pq.write_table(pa.table({"x": column}), "a.parquet", use_dictionary=dictionary, store_schema=False)
        assert pq.read_table("a.parquet").column("x").to_pylist() == column.to_pylist()
        rows = fastparquet.ParquetFile("a.parquet").to_pandas().iloc[:, 0].tolist()
        found[name, dictionary] = rows
        print(name, "with" if dictionary else "without", "a dictionary:", rows)
gone = [None] * 3
assert found["strings", True] == [["a", "b"], ["c"], []] and found["numbers", False] == [[1, 2], [3], []]
assert found["strings", False] == found["nested", True] == gone, "it has changed"
PYTHON

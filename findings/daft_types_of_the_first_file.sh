#!/usr/bin/env bash
# daft 0.7.26: of several files of JSON Lines or Parquet, `read_json` and `read_parquet` take the types from the first
# and change the values of the others to them, without an error or a warning: 2.7 in a later file is 2 where the first
# has integers, a text is None, and of Parquet 2**40 is None where the first file has int32. Keys that only later
# files have are dropped. Cure: `schema=` with the widest types, or read each file by itself.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q daft==0.7.26 pyarrow==25.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json

import daft
import pyarrow as pa
import pyarrow.parquet as pq

print("daft", daft.__version__, "pyarrow", pa.__version__)
for name, row in {"a": {"x": 1}, "b": {"x": 2.7}, "c": {"x": "text"}, "d": {"x": 3, "y": 4}}.items():
    with open(f"{name}.jsonl", "w") as file:
        file.write(json.dumps(row) + "\n")
lines = daft.read_json([f"{name}.jsonl" for name in "abcd"]).to_pylist()
print("JSON Lines", lines)
for name, column in {"a": pa.array([1], pa.int32()), "b": pa.array([2.7]), "c": pa.array([2**40])}.items():
    pq.write_table(pa.table({"x": column}), f"{name}.parquet")
rows = daft.read_parquet([f"{name}.parquet" for name in "abc"]).to_pylist()
print("Parquet", rows)
assert daft.read_json("b.jsonl").to_pylist() == daft.read_parquet("b.parquet").to_pylist() == [{"x": 2.7}]
assert lines == [{"x": 1}, {"x": 2}, {"x": None}, {"x": 3}], "it has changed"
assert rows == [{"x": 1}, {"x": 2}, {"x": None}], "it has changed"
PYTHON

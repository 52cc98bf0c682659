#!/usr/bin/env bash
# daft 0.7.26: `read_csv` of several files takes the names of columns from the first file and the values of the others
# by their place, though each file has its own header: where a second file has the columns in another order, its
# values stand under the wrong names, and columns that only it has are dropped, without an error or a warning. DuckDB
# 2.0.1 and pyarrow go by the names. Cure: read each file by itself, and `concat`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q daft==0.7.26
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import daft

print("daft", daft.__version__)
texts = {"a": "age,weight\n30,70\n", "b": "weight,age\n80,40\n", "c": "age,weight,height\n50,90,180\n"}
for name, text in texts.items():
    with open(f"{name}.csv", "w") as file:
        file.write(text)
found = daft.read_csv(["a.csv", "b.csv", "c.csv"]).to_pylist()
print(found)
alone = daft.read_csv("b.csv").to_pylist()
print("the second file by itself", alone)
assert alone == [{"weight": 80, "age": 40}]
assert found[1] == {"age": 80, "weight": 40} and found[2] == {"age": 50, "weight": 90}, "it has changed"
PYTHON

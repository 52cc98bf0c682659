#!/usr/bin/env bash
# pyarrow 26.0.1: `pyarrow.json.read_json` takes a column of strings for timestamps if each value of the first block
# looks like a date, so texts such as "2020-01-01" are no strings any more, and what was written cannot be had again
# ("2020-01-01" and "2020-01-01 00:00:00" are equal). Hugging Face's `load_dataset("json")` reads with it. Cure:
# `ParseOptions(explicit_schema=...)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import pyarrow
import pyarrow.json

print("pyarrow", pyarrow.__version__)
texts = ["2020-01-01", "2020-01-01 00:00:00", "2020-01-01T00:00:00"]
with open("rows.jsonl", "w") as file:
    file.writelines(f'{{"version": "{text}"}}\n' for text in texts)
column = pyarrow.json.read_json("rows.jsonl").column("version")
print(texts, "->", column.type, column.to_pylist())
assert pyarrow.types.is_timestamp(column.type), "it has changed"
assert len(set(column.to_pylist())) == 1
EOF

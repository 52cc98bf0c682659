#!/usr/bin/env bash
# polars 2.1.0: `read_ndjson` and `scan_ndjson` infer the columns from the first 100 rows. A key that comes first in a
# later row is dropped without a warning, also one of a nested object, while a later value of another type is an
# error. Cure: `infer_schema_length=None`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q polars==2.1.0
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import json

import polars as pl

print("polars", pl.__version__)
rows = [{"a": {"x": number}} for number in range(100)] + [{"a": {"x": 0, "y": 1}, "b": 2}]
with open("rows.jsonl", "w") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)
last = pl.read_ndjson("rows.jsonl").tail(1).to_dicts()[0]
lazy = pl.scan_ndjson("rows.jsonl").collect().tail(1).to_dicts()[0]
whole = pl.read_ndjson("rows.jsonl", infer_schema_length=None).tail(1).to_dicts()[0]
print(rows[-1], "->", last)
assert last == lazy == {"a": {"x": 0}}, "it has changed"
assert whole == rows[-1]
EOF

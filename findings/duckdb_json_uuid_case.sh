#!/usr/bin/env bash
# DuckDB 2.0.1: `read_json` takes a column of strings that look like UUIDs for UUIDs. Keys in capitals come back as
# `uuid.UUID`, in small letters, and no longer match the names of files or other tables that they came from; times
# such as "12:34:56" become `datetime.time`. Cure: `columns={'id': 'VARCHAR'}`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import duckdb

print("duckdb", duckdb.__version__)
key = "123E4567-E89B-12D3-A456-426614174000"
with open("rows.jsonl", "w") as file:
    file.write(f'{{"id": "{key}"}}\n')
((value, text),) = duckdb.sql("SELECT id, id::VARCHAR FROM read_json('rows.jsonl')").fetchall()
print(key, "->", repr(value), text)
assert text == key.lower(), "it has changed"
EOF

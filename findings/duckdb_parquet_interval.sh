#!/usr/bin/env bash
# DuckDB 2.0.1: an INTERVAL has microseconds, that of Parquet milliseconds. `COPY ... (FORMAT parquet)` cuts the rest
# off without a warning: DuckDB itself reads 1.234 s where 1.234567 s was written, and nothing of 999 us. Cure: write
# `epoch_us(interval)` as a BIGINT.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import duckdb

print("duckdb", duckdb.__version__)
for micros, kept in {1234567: 1234000, 999: 0}.items():
    duckdb.sql(f"COPY (SELECT INTERVAL '{micros} microseconds' AS a) TO 'table.parquet' (FORMAT parquet)")
    ((back,),) = duckdb.sql("SELECT epoch_us(a) FROM 'table.parquet'").fetchall()
    print(micros, "us ->", back, "us")
    assert back == kept, "it has changed"
EOF

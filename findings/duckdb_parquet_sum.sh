#!/usr/bin/env bash
# DuckDB 2.0.1: the sum of a BIGINT column is a HUGEINT, which Parquet does not have, so `COPY ... TO ... (FORMAT
# parquet)` writes DOUBLE. A sum above 2**53 is rounded, without a warning, and a column of whole numbers is read as
# floats. Cure: `sum(x)::BIGINT` or `::DECIMAL(38, 0)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q duckdb==2.0.1 pyarrow==26.0.1 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import duckdb
import pyarrow.parquet as pq

print("duckdb", duckdb.__version__)
query = "SELECT sum(x) AS total FROM (VALUES (9007199254740992::BIGINT), (1::BIGINT)) AS t(x)"
((total,),) = duckdb.sql(query).fetchall()
duckdb.sql(f"COPY ({query}) TO 'table.parquet' (FORMAT parquet)")
table = pq.read_table("table.parquet")
print(total, "->", table.column("total").to_pylist(), table.schema.field("total").type)
assert total == 9007199254740993
assert table.column("total").to_pylist() == [9007199254740992.0], "it has changed"
assert str(table.schema.field("total").type) == "double"
EOF

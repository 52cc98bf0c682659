#!/usr/bin/env bash
# pyarrow 26.0.1 writes lists in tiny data pages with dictionary encoding so that its own reader finds no rows in a row
# group of one row, without an error: of three lists in row groups of two, read_table gives two, and its metadata says
# three. DuckDB and Polars read all three from the same file. With several columns it is an error about unequal lengths;
# without dictionary encoding, or with pages of the usual size, all rows are read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0
cat >"$folder/program.py" <<'PROGRAM'
import sys

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

path = sys.argv[1]
table = pa.table({"numbers": pa.array([[1], [2], [3]], pa.list_(pa.int32()))})
found = {}
for size in (1, 1 << 20):
    for dictionary in (True, False):
        pq.write_table(table, path, row_group_size=2, data_page_size=size, use_dictionary=dictionary)
        counts = [
            pq.read_metadata(path).num_rows,
            pq.read_table(path).num_rows,
            len(duckdb.sql(f"select numbers from '{path}'").fetchall()),
            polars.read_parquet(path).height,
        ]
        found[size, dictionary] = counts
        print(f"pages of {size} bytes, dictionary {dictionary}: metadata, pyarrow, DuckDB, Polars: {counts}")
whole = [3, 3, 3, 3]
assert found == {(1, True): [3, 2, 3, 3], (1, False): whole, (1 << 20, True): whole, (1 << 20, False): whole}
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder/lists.parquet"
# Seen: with pages of 1 byte and a dictionary [3, 2, 3, 3], else [3, 3, 3, 3].

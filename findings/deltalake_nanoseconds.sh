#!/usr/bin/env bash
# deltalake writes Arrow timestamps of nanoseconds as microseconds, and drops what is below without an error: two rows
# of different times are equal when read, though pyarrow refuses the same cast.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q deltalake==1.6.6 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/table" <<'PYTHON'
import sys

import deltalake
import pyarrow as pa

print("deltalake", deltalake.__version__, "pyarrow", pa.__version__)
times = pa.array([1, 999, -1], pa.timestamp("ns"))
deltalake.write_deltalake(sys.argv[1], pa.table({"t": times}))
found = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table()["t"].combine_chunks()
try:
    times.cast(pa.timestamp("us"))
    refused = False
except pa.ArrowInvalid:
    refused = True
print("written (ns):", times.cast(pa.int64()).to_pylist(), "read:", found.type, found.cast(pa.int64()).to_pylist())
print("pyarrow refuses the cast:", refused)
sys.exit(not (refused and str(found.type) == "timestamp[us]" and len(set(found.cast(pa.int64()).to_pylist())) < 3))
# seen: written (ns): [1, 999, -1] read: timestamp[us] [0, 0, 0]
PYTHON

#!/usr/bin/env bash
# awkward.from_arrow makes times of day (time32, time64) times on 1 January 1970, and drops the zone of timestamps:
# a table that goes through it comes back with other types, without a warning, also from the Parquet file that it writes.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q awkward==2.14.0 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/a.parquet" <<'PYTHON'
import sys

import awkward as ak
import pyarrow as pa
import pyarrow.parquet as pq

print("awkward", ak.__version__, "pyarrow", pa.__version__)
table = pa.table(
    {
        "time of day": pa.array([1, 2], pa.time32("ms")),
        "with a zone": pa.array([0, 1], pa.timestamp("us", "America/New_York")),
    }
)
ak.to_parquet(ak.from_arrow(table), sys.argv[1])
before, after = [*map(str, table.schema.types)], [*map(str, pq.read_table(sys.argv[1]).schema.types)]
print("before:", before, "after:", after)
sys.exit(after != ["timestamp[ms]", "timestamp[us]"])
# seen: before: ['time32[ms]', 'timestamp[us, tz=America/New_York]'] after: ['timestamp[ms]', 'timestamp[us]']
PYTHON

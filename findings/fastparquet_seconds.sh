#!/usr/bin/env bash
# fastparquet 2026.9.0 with pandas 3.1.1: a column of datetime64[s] is written as milliseconds, after a division by
# 1000: 2020-01-01 is stored as 1970-01-01 00:26:17.836, without an error when it is written. pyarrow reads that time;
# fastparquet raises "Cannot losslessly cast" when it reads. Columns in milliseconds, microseconds and nanoseconds are
# right. Cure: `.astype("datetime64[ms]")`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fastparquet==2026.9.0 pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import fastparquet
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

print("fastparquet", fastparquet.__version__)
found = {}
for unit in ("s", "ms", "us", "ns"):
    frame = pd.DataFrame({"t": np.array(["2020-01-01"], f"M8[{unit}]")})
    assert str(frame.t.dtype) == f"datetime64[{unit}]"
    fastparquet.write("a.parquet", frame)
    found[unit] = str(pq.read_table("a.parquet").column("t")[0].as_py())
print(found)
try:
    fastparquet.write("a.parquet", pd.DataFrame({"t": np.array(["2020-01-01"], "M8[s]")}))
    print(fastparquet.ParquetFile("a.parquet").to_pandas())
except ValueError as error:
    print("fastparquet:", error)
assert found.pop("s") == "1970-01-01 00:26:17.836000", "it has changed"
assert set(found.values()) == {"2020-01-01 00:00:00"}
PYTHON

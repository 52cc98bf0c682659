#!/usr/bin/env bash
# fastparquet 2026.9.0: `write(append=True)` of a column of floats to a file whose column is int64 cuts the fractions,
# without an error: 1.5 and -0.7 are stored as 1 and 0. Cure: compare the dtypes before you append.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fastparquet==2026.9.0 pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import fastparquet
import pandas as pd
import pyarrow.parquet as pq

print("fastparquet", fastparquet.__version__)
fastparquet.write("a.parquet", pd.DataFrame({"x": [10, 20]}))
fastparquet.write("a.parquet", pd.DataFrame({"x": [1.5, -0.7]}), append=True)
found = fastparquet.ParquetFile("a.parquet").to_pandas().x.tolist()
by_pyarrow = pq.read_table("a.parquet").column("x").to_pylist()
print(found, by_pyarrow)
assert found == by_pyarrow == [10, 20, 1, 0], "it has changed"
PYTHON

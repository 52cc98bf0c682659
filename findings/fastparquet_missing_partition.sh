#!/usr/bin/env bash
# fastparquet 2026.9.0 with pandas 3.1.1: rows whose value of the column in `partition_on` is missing are in no file,
# without an error or a warning: of three rows, two are written. pyarrow keeps all three, in a folder of its own for
# the missing value. Cure: fill the column first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fastparquet==2026.9.0 pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import fastparquet
import pandas as pd
import pyarrow as pa
import pyarrow.dataset

print("fastparquet", fastparquet.__version__)
frame = pd.DataFrame({"x": [0, 1, 2], "split": ["train", None, "test"]})
fastparquet.write("a", frame, file_scheme="hive", partition_on=["split"])
pyarrow.dataset.write_dataset(
    pa.Table.from_pandas(frame), "b", format="parquet", partitioning=["split"], partitioning_flavor="hive"
)
found = sorted(fastparquet.ParquetFile("a").to_pandas().x)
other = sorted(pyarrow.dataset.dataset("b", format="parquet").to_table()["x"].to_pylist())
print("written by fastparquet:", found, "by pyarrow:", other)
assert other == [0, 1, 2]
assert found == [0, 2], "the row is kept, or refused, now"
PYTHON

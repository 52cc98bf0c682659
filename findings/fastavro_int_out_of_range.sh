#!/usr/bin/env bash
# fastavro 1.13.1: the writer puts any number into a field of the type `int`, whose range is 32 bits: 2**31 and 2**40
# are stored as they are, and 1.7 as 1, without an error. fastavro reads the large ones back; Polars 2.1.0 reads the
# same file as -2147483648 and 0, without an error. Cure: the type `long`, or `writer(..., validator=True)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fastavro==1.13.1 polars==2.1.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import io

import fastavro
import polars

schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": [{"name": "x", "type": "int"}]})
rows = [{"x": 5}, {"x": 2**31}, {"x": 2**40}, {"x": 1.7}]
file = io.BytesIO()
fastavro.writer(file, schema, rows)
file.seek(0)
own = [row["x"] for row in fastavro.reader(file)]
file.seek(0)
other = polars.read_avro(file)["x"].to_list()
try:
    fastavro.writer(io.BytesIO(), schema, rows, validator=True)
    error = None
except Exception as raised:
    error = type(raised).__name__
print("fastavro", fastavro.__version__, own, "polars", polars.__version__, other, "with a validator:", error)
assert own == [5, 2**31, 2**40, 1], "it has changed"
assert other == [5, -(2**31), 0, 1], "Polars raises, or reads other numbers, now"
assert error
PYTHON

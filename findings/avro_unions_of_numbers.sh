#!/usr/bin/env bash
# fastavro 1.13.1 and avro 1.12.2: of a union of numbers, such as ["null", "double", "long"], fastavro writes an
# integer as the first that can hold numbers of any kind, avro as the last. So identifiers above 2**53 (above 2**24
# where it is a float) are rounded, and integers come back as floats, without an error: by fastavro where double
# stands before long, by avro where it stands behind. Cure: a union of null and one kind, or `("long", value)` with
# fastavro.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fastavro==1.13.1 avro==1.12.2
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import io
import json

import avro
import fastavro
from avro.datafile import DataFileReader, DataFileWriter
from avro.io import DatumReader, DatumWriter

print("fastavro", fastavro.__version__, "avro", avro.__version__)


def by_fastavro(schema, value):
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(schema), [{"x": value}])
    file.seek(0)
    return next(fastavro.reader(file))["x"]


def by_avro(schema, value):
    file = io.BytesIO()
    writer = DataFileWriter(file, DatumWriter(), avro.schema.parse(json.dumps(schema)))
    writer.append({"x": value})
    writer.flush()
    file.seek(0)
    return next(DataFileReader(file, DatumReader()))["x"]


found = []
for kinds in ("double long", "float long", "long double", "long float"):
    union = ["null", *kinds.split()]
    value = 2**24 + 1 if "float" in union else 2**53 + 1
    schema = {"type": "record", "name": "row", "fields": [{"name": "x", "type": union}]}
    first, last = by_fastavro(schema, value), by_avro(schema, value)
    print(union, value, "by fastavro", first, "by avro", last)
    found.append((int(first) - value, int(last) - value))
schema["fields"][0]["type"] = ["null", "double", "long"]
assert by_fastavro(schema, ("long", 2**53 + 1)) == 2**53 + 1
assert found[:2] == [(-1, 0), (-1, 0)] and found[2:] == [(0, -1), (0, -1)], f"it has changed: {found}"
PYTHON

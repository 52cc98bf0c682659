#!/usr/bin/env bash
# avro 1.12.2 (of Apache): the writer stores the digits of a decimal and not where its point is. With a scale of 2 the
# numbers 1.2 and 5 are stored as 0.12 and 0.05, without an error, where 1.20 and -1.23 are right; more digits than
# the scale are an error. So prices and labels become 10 or 100 times smaller, depending on how each was written down.
# fastavro stores all of them right. Cure: `value.quantize(Decimal("0.01"))` before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q avro==1.12.2 fastavro==1.13.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import io
import json
from decimal import Decimal

import avro
import fastavro
from avro.datafile import DataFileReader, DataFileWriter
from avro.io import DatumReader, DatumWriter

print("avro", avro.__version__, "fastavro", fastavro.__version__)
kinds = {
    "bytes": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "fixed": {"type": "fixed", "size": 4, "name": "f", "logicalType": "decimal", "precision": 9, "scale": 2},
}
values = [Decimal(text) for text in ("1.20", "-1.23", "1.2", "5", "-1.2")]
for kind, decimal in kinds.items():
    schema = {"type": "record", "name": "row", "fields": [{"name": "x", "type": decimal}]}
    stored, other = io.BytesIO(), io.BytesIO()
    writer = DataFileWriter(stored, DatumWriter(), avro.schema.parse(json.dumps(schema)))
    for value in values:
        writer.append({"x": value})
    writer.flush()
    fastavro.writer(other, fastavro.parse_schema(schema), [{"x": value} for value in values])
    found = {}
    for name, file in (("avro", stored), ("fastavro", other)):
        file.seek(0)
        found[name] = [row["x"] for row in fastavro.reader(file)]
        print(kind, "written by", name, [str(value) for value in values], "->", [str(value) for value in found[name]])
    stored.seek(0)
    assert [row["x"] for row in DataFileReader(stored, DatumReader())] == found["avro"]
    assert found["fastavro"] == values
    assert found["avro"] == [Decimal(text) for text in ("1.20", "-1.23", "0.12", "0.05", "-0.12")], "it has changed"
PYTHON

#!/usr/bin/env bash
# pyshp 3.1.6: a number with more digits than its field of a shapefile has loses the last ones, without an error or a
# warning: 1234567 in a field of 5 digits is written as 12345, which may be another feature's identifier, and 0.5 of
# 123456.5 in a field of 6. A missing text (None) is written as the text "None". A text that is too long is cut with a
# warning. Cure: fields of the type N with a size of 19, and empty texts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyshp==3.1.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
import shapefile

print("pyshp", shapefile.__version__)
rows = [[1234567, 123456.5, "a"], [12345, 1.5, None], [-123456, -98765.25, "b"]]
with shapefile.Writer("places", shapeType=shapefile.POINT) as writer:
    writer.field("id", "N", 5, 0)
    writer.field("area", "F", 6, 1)
    writer.field("name", "C", 10)
    for row in rows:
        writer.point(1, 2)
        writer.record(*row)
with shapefile.Reader("places") as reader:
    found = [list(record) for record in reader.records()]
for row, one in zip(rows, found, strict=True):
    print(row, "->", one)
assert found == [[12345, 123456.0, "a"], [12345, 1.5, "None"], [-1234, -98765.0, "b"]], "it has changed"
PYTHON

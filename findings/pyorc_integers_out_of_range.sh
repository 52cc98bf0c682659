#!/usr/bin/env bash
# pyorc 0.12.0: the writer puts any integer into a column of tinyint, smallint or int, whose ranges are 8, 16 and 32
# bits, without an error, and then two readers of one file disagree: 40000 in a smallint is 40000 by pyorc and -25536
# by pyarrow 26.0.1, 2**40 in an int is 0 by pyarrow. In a tinyint 300 is stored as 44. Cure: check the range before,
# or declare bigint.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyorc==0.12.0 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pyarrow
import pyarrow.orc
import pyorc

print("pyorc", pyorc.__version__, "pyarrow", pyarrow.__version__)
found = {}
for kind, value in (("tinyint", 300), ("smallint", 40_000), ("int", 2**40 + 7), ("bigint", 2**40 + 7)):
    with open("a.orc", "wb") as file, pyorc.Writer(file, f"struct<x:{kind}>") as writer:
        writer.write((value,))
    with open("a.orc", "rb") as file:
        by_pyorc = [row[0] for row in pyorc.Reader(file)]
    by_pyarrow = pyarrow.orc.read_table("a.orc")["x"].to_pylist()
    found[kind] = by_pyorc + by_pyarrow
    print(kind, value, "by pyorc", by_pyorc, "by pyarrow", by_pyarrow)
assert found["bigint"] == [2**40 + 7] * 2
assert found["tinyint"] == [44, 44], "it has changed"
assert found["smallint"] == [40_000, 40_000 - 2**16] and found["int"] == [2**40 + 7, 7], "it has changed"
PYTHON

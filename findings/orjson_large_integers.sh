#!/usr/bin/env bash
# orjson 3.13.0: an integer of JSON beyond 64 bits is read as a float, without an error: two different ids become equal.
# `json` and msgspec 0.22.0 give the integer that is written. orjson itself refuses to write such an integer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q orjson==3.13.0 msgspec==0.22.0
"$folder/venv/bin/python" -W error - <<'PYTHON'
import json

import msgspec
import orjson

print("orjson", orjson.__version__)
ids = [2**64, 2**64 + 1, -(2**63) - 1]
text = json.dumps(ids).encode()
found = orjson.loads(text)
print(text.decode(), "->", found)
assert [type(one) for one in found] == [float] * 3 and found[0] == found[1], "it has changed"
assert json.loads(text) == ids and msgspec.json.decode(text) == ids
try:
    orjson.dumps(2**64)
except TypeError as error:
    print("to write it:", error)
else:
    raise AssertionError("it has changed")
PYTHON

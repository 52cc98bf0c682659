#!/usr/bin/env bash
# orjson 3.13.0: with `OPT_SERIALIZE_NUMPY` a missing time (NaT) of nanoseconds, the unit that pandas had for years, is
# written as a date of the year 1677, without an error, in arrays and alone. NaT of seconds is refused, and the
# fractions of a second are cut to microseconds. So a missing time becomes a valid one, and sorts before all others.
# Cure: `np.datetime_as_string`, which writes "NaT", or `None` in place of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q orjson==3.13.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import orjson

print("orjson", orjson.__version__)
times = np.array(["2020-01-01T00:00:00.123456789", "NaT"], "M8[ns]")
found = orjson.dumps(times, option=orjson.OPT_SERIALIZE_NUMPY)
print(times, "->", found.decode())
assert orjson.loads(found) == ["2020-01-01T00:00:00.123456", "1677-09-21T00:12:43.145224"], "it has changed"
alone = orjson.dumps({"t": times[1]}, option=orjson.OPT_SERIALIZE_NUMPY)
print(alone.decode())
assert orjson.loads(alone) == {"t": "1677-09-21T00:12:43.145224"}, "it has changed"
try:
    orjson.dumps(times.astype("M8[s]"), option=orjson.OPT_SERIALIZE_NUMPY)
except TypeError as error:
    print("of seconds:", error)
else:
    raise AssertionError("it has changed")
PYTHON

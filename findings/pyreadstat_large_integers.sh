#!/usr/bin/env bash
# pyreadstat 1.3.7: integers of 64 bits are written as floats of 64 bits into .sav, .dta, .xpt and .por files, without a
# warning, and come back as floats: 2**53 + 1 as 2**53, so that two keys become one. (pandas' to_stata writes the
# same, and warns.) Cure: write keys as text. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyreadstat==1.3.7 pandas==3.1.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
import sys
from importlib.metadata import version

import pandas as pd
import pyreadstat

frame = pd.DataFrame({"key": [2**53, 2**53 + 1]})
found = {}
for form in ("sav", "dta", "xport", "por"):
    getattr(pyreadstat, f"write_{form}")(frame, f"x.{form}")
    found[form] = getattr(pyreadstat, f"read_{form}")(f"x.{form}")[0].iloc[:, 0].tolist()
print("pyreadstat", version("pyreadstat"), found, "of", frame["key"].tolist())
sys.exit(any(keys != [2.0**53, 2.0**53] for keys in found.values()))
PYTHON

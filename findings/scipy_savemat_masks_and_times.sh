#!/usr/bin/env bash
# scipy 1.17.1: `savemat` writes what Matlab's format has no type for as other numbers, without an error or a warning: a
# masked value is the fill value, 999999; a time is the number of its units since 1970 as a double, days and
# nanoseconds alike, so the unit is lost, nanoseconds are rounded, and NaT is -9.2e18. None is refused. Cure:
# `filled(np.nan)`, and `np.datetime_as_string`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q scipy==1.17.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
import numpy as np
import scipy
from scipy.io import loadmat, savemat

print("scipy", scipy.__version__)


def stored(value):
    savemat("a.mat", {"x": value})
    found = loadmat("a.mat")["x"]
    print(value, "->", found, found.dtype)
    return found.ravel().tolist()


assert stored(np.ma.array([1, 2], mask=[True, False])) == [999999, 2], "it has changed"
assert stored(np.array(["2020-01-01", "NaT"], "M8[D]")) == [18262.0, -(2.0**63)], "it has changed"
(nanoseconds,) = stored(np.array(["2020-01-01T00:00:00.123456789"], "M8[ns]"))
assert int(nanoseconds) == 1577836800123456768, "it has changed"
PYTHON

#!/usr/bin/env bash
# NumPy 2.1.0 and 2.1.1 follow NumPy 1's rules of promotion in every thread but the first: an integer that a dtype cannot
# hold wraps around with a DeprecationWarning, where the first thread raises OverflowError, and float32 + 3.0 is float64.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numpy==2.1.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import threading
import warnings

import numpy as np

warnings.simplefilter("ignore", DeprecationWarning)


def look() -> None:
    try:
        whole = str(np.asarray(300, dtype=np.uint8))
    except OverflowError:
        whole = "OverflowError"
    found.append([whole, str((np.float32(3) + 3.0).dtype)])


print("numpy", np.__version__)
found: list[list[str]] = []
look()
thread = threading.Thread(target=look)
thread.start()
thread.join()
print("first thread:", found[0], "another:", found[1])
sys.exit(found != [["OverflowError", "float32"], ["44", "float64"]])
# seen: first thread: ['OverflowError', 'float32'] another: ['44', 'float64']
PYTHON

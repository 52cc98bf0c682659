#!/usr/bin/env bash
# hickle 5.0.3: a list or tuple of numbers is stored as one array of the dtype that NumPy finds for all of them, without
# an error, and comes back as a list of its scalars: an id beside a float loses its last digits, and True beside an
# integer is 1. In a list with a string or None each element comes back as it was.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q hickle==5.0.3 numpy==2.4.6 'setuptools<81'
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import hickle

print("hickle", hickle.__version__)


def again(value):
    hickle.dump(value, "a.hkl", mode="w")
    found = hickle.load("a.hkl")
    print(value, "->", found)
    return found


identifier, share = again([2**60 + 1, 0.5])
assert identifier == 2.0**60 and int(identifier) != 2**60 + 1 and share == 0.5, "it has changed"
first, _ = again([True, 2])
assert first == 1 and "int" in type(first).__name__, "it has changed"
assert again([2**60 + 1, 0.5, None]) == [2**60 + 1, 0.5, None]
PYTHON

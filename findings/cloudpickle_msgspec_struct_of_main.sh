#!/usr/bin/env bash
# cloudpickle sends a msgspec.Struct of the main script by value without its fields: instances cannot be unpickled.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q cloudpickle==3.1.3 msgspec==0.22.0
"$folder/venv/bin/python" - <<'PYTHON'
import os
import subprocess
import sys
import tempfile

import cloudpickle
import msgspec


class Point(msgspec.Struct):
    x: int
    y: str = "a"


print("cloudpickle", cloudpickle.__version__, "msgspec", msgspec.__version__)
with tempfile.NamedTemporaryFile() as file:
    file.write(cloudpickle.dumps(Point))
    file.flush()
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], chr(114) + chr(98))).__struct_fields__)"
    found = subprocess.run([sys.executable, "-c", code, file.name], capture_output=True, text=True).stdout.strip()
print("fields here:", Point.__struct_fields__, "fields of the class in another process:", found)
sys.exit(found != "()")
# seen: fields here: ('x', 'y') fields of the class in another process: ()
PYTHON

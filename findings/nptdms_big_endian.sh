#!/usr/bin/env bash
# npTDMS 1.13.0: a big-endian array of integers, as other instruments' formats give, is written byte by byte into a file
# that says little-endian, without an error: [1, 2] is read as [16777216, 33554432]. Floats of this order are read as
# other numbers, too. Cure: `array.astype(array.dtype.newbyteorder("="))` before it is written.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nptdms==1.13.0 numpy==2.4.6
cd "$folder"
venv/bin/python -W error - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from nptdms import ChannelObject, TdmsFile, TdmsWriter

print("npTDMS", version("nptdms"))


def read_again(array):
    with TdmsWriter("a.tdms") as writer:
        writer.write_segment([ChannelObject("group", "channel", array)])
    return TdmsFile.read("a.tdms")["group"]["channel"][:]


found = read_again(np.array([1, 2], ">i4"))
print("written [1, 2], read", found, found.dtype)
assert found.tolist() == [16777216, 33554432] and found.dtype == np.int32, "it has changed"
found = read_again(np.array([1.0, 2.0], ">f4"))
print("written [1.0, 2.0], read", found)
assert found.tolist() != [1.0, 2.0], "it has changed"
assert read_again(np.array([1, 2], "<i4")).tolist() == [1, 2]
PYTHON

#!/usr/bin/env bash
# pyEDFlib 0.1.42: samples outside of a signal's physical range are written as its limits, and NaN and infinity as its
# minimum, without an error or a warning: a gap in a recording becomes the lowest voltage. Cure: check the range and NaN
# before writing, and mark gaps by annotations. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyEDFlib==0.1.42 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
import sys
from importlib.metadata import version

import numpy as np
import pyedflib

samples = np.array([0.0, 50.0, 1000.0, -1000.0, np.nan, np.inf])
header = {"label": "a", "dimension": "uV", "sample_frequency": len(samples), "prefilter": "", "transducer": ""}
limits = {"physical_min": -100, "physical_max": 100, "digital_min": -32768, "digital_max": 32767}
writer = pyedflib.EdfWriter("x.edf", 1, file_type=pyedflib.FILETYPE_EDFPLUS)
writer.setSignalHeaders([header | limits])
writer.writeSamples([samples])
writer.close()
reader = pyedflib.EdfReader("x.edf")
found = reader.readSignal(0).round(2)
reader.close()
print("pyEDFlib", version("pyEDFlib"), found.tolist(), "of", samples.tolist())
sys.exit(found.tolist() != [0.0, 50.0, 100.0, -100.0, -100.0, -100.0])
PYTHON

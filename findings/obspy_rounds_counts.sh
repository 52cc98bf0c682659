#!/usr/bin/env bash
# obspy 1.5.1: `write(format="SAC")` stores integers as float32, and "AH" likewise, so counts of a digitizer above
# 2**24 are rounded, without an error or a warning, and "WAV" cuts the fractions of floats: a normalized seismogram
# becomes zeros. MiniSEED keeps both. Cure: MiniSEED, or `write(..., format="WAV", rescale=True)` where only the shape
# counts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q obspy==1.5.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import obspy

print("obspy", obspy.__version__)
counts = np.array([2**24 + 1, -5, 7, 2**24 + 3], np.int32)
normalized = np.array([0.25, -0.5, 0.999, 0.0], np.float32)
found = {}
for name in ("MSEED", "SAC", "AH", "WAV"):
    for samples in (counts, normalized):
        obspy.Stream([obspy.Trace(samples.copy())]).write("a.x", format=name)
        found[name, samples.dtype.kind] = read = obspy.read("a.x", format=name)[0].data
        print(name, samples.tolist(), "->", read.dtype, read.tolist())
assert (found["MSEED", "i"] == counts).all() and (found["MSEED", "f"] == normalized).all()
assert (found["WAV", "i"] == counts).all() and not found["WAV", "f"].any(), "it has changed"
for name in ("SAC", "AH"):
    assert found[name, "i"].astype("int64")[0] == 2**24, "it has changed"
PYTHON

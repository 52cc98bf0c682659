#!/usr/bin/env bash
# astropy 8.0.2: `CompImageHDU(image, quantize_level=0)`, without quantization, cuts the fractions of floats if the
# compression is RICE_1, the default, or HCOMPRESS_1: a picture of values between 0 and 1 is stored as zeros, without
# an error or a warning, and fitsio reads the same zeros. GZIP_1 and GZIP_2 keep the floats. Cure:
# `compression_type="GZIP_2"` for an exact copy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q astropy==8.0.2 fitsio==1.4.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import astropy
import fitsio
import numpy as np
from astropy.io import fits

print("astropy", astropy.__version__, "fitsio", fitsio.__version__)
image = np.linspace(-1.9, 1.9, 256, dtype="float32").reshape(16, 16)
found = {}
for name in ("RICE_1", "HCOMPRESS_1", "GZIP_1", "GZIP_2"):
    fits.CompImageHDU(image, compression_type=name, quantize_level=0).writeto(f"{name}.fits")
    found[name] = fits.getdata(f"{name}.fits")
    print(name, found[name].dtype, np.unique(found[name])[:4].tolist(), "of", np.unique(image)[:4].tolist())
positive = np.linspace(0, 0.99, 256, dtype="float32").reshape(16, 16)
fits.CompImageHDU(positive, quantize_level=0).writeto("positive.fits")
assert not fits.getdata("positive.fits").any() and not fitsio.read("positive.fits").any(), "it has changed"
assert (found["GZIP_1"] == image).all() and (found["GZIP_2"] == image).all()
assert (found["RICE_1"] == np.trunc(image)).all() and (found["HCOMPRESS_1"] == np.trunc(image)).all(), "it has changed"
PYTHON

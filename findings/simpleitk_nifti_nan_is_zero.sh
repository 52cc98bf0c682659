#!/usr/bin/env bash
# SimpleITK 2.5.7: NaN and infinities of a NIfTI file are read as 0, without a warning. It writes them as they are, and
# other formats (MHA, NRRD, TIFF) give them back; nibabel reads them from the same file. So voxels that are marked as
# missing become measurements. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q SimpleITK==2.5.7 nibabel==5.4.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import nibabel
import numpy as np
import SimpleITK as sitk

values = np.array([[1, np.nan, np.inf], [2, -np.inf, 3]], "float32")
found = {}
for ending in ("nii", "nii.gz", "mha", "nrrd"):
    sitk.WriteImage(sitk.GetImageFromArray(values), f"x.{ending}")
    found[ending] = sitk.GetArrayFromImage(sitk.ReadImage(f"x.{ending}")).tolist()
print("SimpleITK", sitk.Version_VersionString(), found)
print("nibabel", nibabel.__version__, nibabel.load("x.nii").get_fdata().T.tolist())
lost = [[1.0, 0.0, 0.0], [2.0, 0.0, 3.0]]
sys.exit([found["nii"], found["nii.gz"]] != [lost, lost] or not np.isnan(found["mha"][0][1]))
PYTHON

#!/usr/bin/env bash
# nibabel 5.4.2: an image with NaN that is saved in an integer dtype, as `header.set_data_dtype` or `save(dtype=)` say,
# reads 0 at these voxels, without an error or a warning, and whole numbers beyond the range of the dtype are scaled:
# 40000 in int16 becomes 40000.459. Labels that fit in the range stay as they are. Cure: save floats, or check the
# range before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nibabel==5.4.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import nibabel
import numpy as np

print("nibabel", nibabel.__version__)


def saved(values, dtype):
    nibabel.save(nibabel.Nifti1Image(np.array([[values]]), np.eye(4)), "a.nii", dtype=dtype)
    return nibabel.load("a.nii").get_fdata().ravel()


holes = saved([1.5, np.nan, 3.0], "i2")
large = saved(np.array([0, 40000, 70000], "i4"), "i2")
small = saved(np.array([0, 3, 30000], "i4"), "i2")
print(holes, large, small)
assert holes[1] == 0, "NaN is kept or refused now"
assert large.tolist() != [0, 40000, 70000] and np.allclose(large, [0, 40000, 70000], atol=1)
assert small.tolist() == [0, 3, 30000]
PYTHON

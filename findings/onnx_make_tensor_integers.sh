#!/usr/bin/env bash
# onnx 1.23.2: `helper.make_tensor` lets integers of 4 bits wrap around, without an error: 9 in INT4 is -7, and 17 in
# UINT4 is 1, so weights that were quantized with a scale a little too small change their sign. Numbers beyond the
# range of INT8 are an OverflowError. Fractions are cut for all integer types: 2.7 in INT64 is 2. Cure: round, and clip
# to the range, before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 numpy==2.4.6 ml_dtypes==0.6.0
"$folder/venv/bin/python" - <<'PYTHON'
import onnx
from onnx import TensorProto, helper, numpy_helper

print("onnx", onnx.__version__)


def stored(kind, values):
    tensor = helper.make_tensor("weights", kind, [len(values)], values)
    found = [int(one) for one in numpy_helper.to_array(tensor)]
    print(TensorProto.DataType.Name(kind), values, "->", found)
    return found


assert stored(TensorProto.INT4, [9, -9, 7]) == [-7, 7, 7], "it has changed"
assert stored(TensorProto.UINT4, [17, -1, 15]) == [1, 15, 15], "it has changed"
assert stored(TensorProto.INT64, [2.7, -0.5, 1]) == [2, 0, 1], "it has changed"
try:
    stored(TensorProto.INT8, [300])
except OverflowError as error:
    print("INT8 [300]:", error)
else:
    raise AssertionError("it has changed")
PYTHON

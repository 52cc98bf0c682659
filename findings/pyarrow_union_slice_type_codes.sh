#!/bin/bash
# pyarrow: UnionArray.type_codes and .offsets of a slice are those of the beginning of the whole array.
# Whoever decodes a union by its type codes gets values of the wrong children.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyarrow==26.0.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import pyarrow as pa

print("pyarrow", pa.__version__)
whole = pa.UnionArray.from_sparse(pa.array([0, 1, 1], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])
part = whole[1:]
codes, values = part.type_codes.to_pylist(), part.to_pylist()
print("type codes of the whole:", whole.type_codes.to_pylist())
print("values of the slice [1:]:", values, "(both of the child 1)")
print("type codes of the slice:", codes, "(expected [1, 1])")
sys.exit(0 if codes == [0, 1] and values == ["b", "c"] else 1)
PYTHON
# Seen:
# pyarrow 26.0.1
# type codes of the whole: [0, 1, 1]
# values of the slice [1:]: ['b', 'c'] (both of the child 1)
# type codes of the slice: [0, 1] (expected [1, 1])

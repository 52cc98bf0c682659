#!/usr/bin/env bash
# The package tfrecord 1.14.6 (TFRecord files without TensorFlow): a feature of one byte string comes back as it was,
# a feature of several as a NumPy array of dtype S, which drops the zero bytes at the end of each. Encoded numbers and
# images in such a feature are cut, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tfrecord==1.14.6 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import importlib.metadata

import tfrecord

print("tfrecord", importlib.metadata.version("tfrecord"))
for value in (b"ab\0", [b"ab\0", b"\0\0"]):
    writer = tfrecord.TFRecordWriter("file")
    writer.write({"a": (value, "byte")})
    writer.close()
    (row,) = tfrecord.tfrecord_loader("file", None)
    back = row["a"] if isinstance(row["a"], bytes) else row["a"].tolist()
    print(value, "->", back)
    assert back == (value if isinstance(value, bytes) else [b"ab", b""]), "it has changed"
EOF

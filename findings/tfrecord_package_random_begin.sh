#!/usr/bin/env bash
# The package tfrecord 1.14.6 (TFRecord files without TensorFlow): with an index, which its README recommends, a file
# is read from a record that NumPy draws at random, to the end and then from the beginning, each time from another
# one, though nothing asks for a shuffle. Labels or predictions that are kept beside the file by number belong to
# other records. Without an index, or with a shard, the order is that of the file. Cure: `shard=(0, 1)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "protobuf<3.21" tfrecord==1.14.6 crc32c numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import tfrecord
from tfrecord.reader import tfrecord_loader
from tfrecord.tools.tfrecord2idx import create_index

print("tfrecord 1.14.6")
writer = tfrecord.TFRecordWriter("a.tfrecord")
for number in range(10):
    writer.write({"number": (number, "int")})
writer.close()
create_index("a.tfrecord", "a.index")


def read(index, shard=None):
    rows = tfrecord_loader("a.tfrecord", index, {"number": "int"}, shard)
    found = [int(row["number"][0]) for row in rows]
    print("index", index, "shard", shard, found)
    return found


np.random.seed(0)
begun = [read("a.index") for _ in range(4)]
assert read(None) == read("a.index", (0, 1)) == list(range(10))
assert all(sorted(found) == list(range(10)) for found in begun)
assert len({found[0] for found in begun}) > 1, "it has changed"
PYTHON

#!/usr/bin/env bash
# In Arrow IPC files that polars writes, the dictionaries of Categorical and Enum columns stand behind all record batches
# that need them. The format allows it, as the footer lists them; but whoever reads such a file once, from its beginning
# (a pipe, an HTTP reply, a compressed file), cannot decode a single row before the last byte has arrived. Files of
# pyarrow have their dictionaries first.
# Seen with polars 2.1.0. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q polars==2.1.0 pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io
import struct

import polars
import pyarrow as pa


def kinds(content):
    """The kinds of the messages in a file, in turn."""
    names, found, at = {1: "schema", 2: "dictionary", 3: "batch"}, [], 8
    while (at := content.find(b"\xff\xff\xff\xff", at)) >= 0:
        (length,) = struct.unpack_from("<i", content, at + 4)
        if length == 0:
            return found
        data = content[at + 8 : at + 8 + length]
        (root,) = struct.unpack_from("<I", data)
        fields = root - struct.unpack_from("<i", data, root)[0] + 4
        (size,) = struct.unpack_from("<H", data, fields - 4)
        (kind,) = struct.unpack_from("<H", data, fields + 2)
        (body,) = struct.unpack_from("<H", data, fields + 6) if size >= 12 else (0,)
        found.append(names[data[root + kind]])
        at += 8 + length + (struct.unpack_from("<q", data, root + body)[0] if body else 0)
    return found


print("polars", polars.__version__, "pyarrow", pa.__version__)
frame = polars.DataFrame({"a": polars.Series(["u", "v"] * 4, dtype=polars.Categorical)})
file = io.BytesIO()
frame.write_ipc(file, compression="uncompressed", record_batch_size=4)
print("by the footer:", pa.ipc.open_file(file).read_all()["a"].to_pylist())
by_polars = kinds(file.getvalue())
table, file = pa.table({"a": pa.array(["u", "v"] * 4).dictionary_encode()}), io.BytesIO()
with pa.ipc.new_file(file, table.schema) as writer:
    writer.write_table(table, max_chunksize=4)
by_pyarrow = kinds(file.getvalue())
print("polars: ", by_polars)
print("pyarrow:", by_pyarrow)
raise SystemExit(by_polars != ["batch", "batch", "dictionary"] or by_pyarrow != ["schema", "dictionary", "batch", "batch"])
PYTHON

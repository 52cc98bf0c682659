#!/usr/bin/env bash
# An Arrow IPC file is specified as a magic number, the streaming format, and a footer, so that it can be read from its
# beginning. Files that polars' DataFrame.write_ipc writes begin otherwise: behind the magic number stands the bare
# FlatBuffers table of the schema, without the continuation marker and the length that belong before each message.
# Readers that go by the footer (pyarrow.ipc.open_file) do not notice; those that read from the beginning fail.
# Seen with polars 2.1.0. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q polars==2.1.0 pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import polars
import pyarrow as pa

print("polars", polars.__version__, "pyarrow", pa.__version__)
file = io.BytesIO()
polars.DataFrame({"a": [1, 2, 3]}).write_ipc(file, compression="uncompressed")
content = file.getvalue()
print("by the footer:", pa.ipc.open_file(content).read_all().to_pydict())
print("behind the magic number:", content[8:16].hex(" "), "(a message begins with ff ff ff ff)")
reference = io.BytesIO()
with pa.ipc.new_file(reference, pa.schema({"a": pa.int64()})) as writer:
    writer.write_table(pa.table({"a": [1, 2, 3]}))
print("from the beginning, file of pyarrow:", pa.ipc.open_stream(reference.getvalue()[8:]).read_all().to_pydict())
try:
    pa.ipc.open_stream(content[8:])
    failed = False
except (OSError, pa.ArrowInvalid) as error:
    failed = True
    print("from the beginning, file of polars: error:", str(error)[:120])
raise SystemExit(not failed or content[8:12] == b"\xff\xff\xff\xff")
PYTHON

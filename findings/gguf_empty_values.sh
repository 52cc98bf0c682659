#!/usr/bin/env bash
# gguf 0.19.0 (of llama.cpp): `GGUFWriter` leaves out metadata whose value is an empty list or an empty text, without an
# error or a warning, though the format has both: a tokenizer without merges, or a chat template that is empty, is a
# file without that key, which readers take for the default. 0 and False are written. Cure: check the keys with
# `GGUFReader` after writing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q gguf==0.19.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import gguf

print("gguf", version("gguf"))
writer = gguf.GGUFWriter("a.gguf", "llama")
writer.add_array("tokenizer.ggml.merges", [])
writer.add_string("tokenizer.chat_template", "")
writer.add_array("numbers", [0])
writer.add_uint32("zero", 0)
writer.add_bool("flag", False)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
found = {key: field.contents() for key, field in gguf.GGUFReader("a.gguf").fields.items() if key[:4] != "GGUF"}
print(found)
assert found == {"general.architecture": "llama", "numbers": [0], "zero": 0, "flag": False}, "it has changed"
PYTHON

#!/usr/bin/env bash
# datasets 5.2.0: `Dataset.from_list` takes the columns from the first row. A key that comes first in a later row is
# dropped without a word; the same rows in a JSON Lines file keep it (`load_dataset("json")`).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q datasets==5.2.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import datasets
import numpy as np

print("datasets", datasets.__version__)

import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"
rows = [{"a": 1}, {"a": 2, "b": 3}]
with open("rows.jsonl", "w") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)
given = datasets.Dataset.from_list(rows)[1]
read = datasets.load_dataset("json", data_files="rows.jsonl", split="train", cache_dir="cache")[1]
print(rows[1], "-> from_list", given, "json", read)
assert read == rows[1]
assert given == {"a": 2}, "it has changed"
EOF

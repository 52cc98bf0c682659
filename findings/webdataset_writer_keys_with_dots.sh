#!/usr/bin/env bash
# webdataset 1.0.2: the key of a sample ends at the first dot of a file name, and `TarWriter` takes keys with dots.
# Two samples "take.1" and "take.2" are read as one sample "take" with fields "1.txt" and "2.txt"; nothing fails, and
# the dataset has one sample less. Cure: no dots in keys behind the last slash.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q webdataset==1.0.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import importlib.metadata

import webdataset

print("webdataset", importlib.metadata.version("webdataset"))
samples = [{"__key__": "take.1", "txt": "one"}, {"__key__": "take.2", "txt": "two"}]
with webdataset.TarWriter("takes.tar") as writer:
    for sample in samples:
        writer.write(sample)
found = [
    {name: value for name, value in sample.items() if name not in ("__url__", "__local_path__")}
    for sample in webdataset.WebDataset("takes.tar", shardshuffle=False).decode()
]
print(samples, "->", found)
assert found == [{"__key__": "take", "1.txt": "one", "2.txt": "two"}], "it has changed"
EOF

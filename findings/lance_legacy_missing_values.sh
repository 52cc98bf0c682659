#!/usr/bin/env bash
# pylance 14.0.2: `write_dataset(data_storage_version="legacy")`, the version that old datasets have and an append to
# them goes on with, stores no validity: missing integers, floats, booleans, times and lists are read as 0, False, 1970
# and [], and a missing entry of a dictionary as the first one, without an error. An empty string is read as None. A
# filter `x is not null` gives them too. Versions 2.0 and later keep all of these.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pylance==14.0.2 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import lance
import pyarrow as pa

print("pylance", lance.__version__)
columns = {
    "integer": pa.array([7, None]),
    "float": pa.array([1.5, None]),
    "flag": pa.array([True, None]),
    "list": pa.array([[1, None], None]),
    "category": pa.array(["a", None]).dictionary_encode(),
    "text": pa.array(["", None]),
}
found = {}
for version in ("legacy", "2.0", "2.1"):
    lance.write_dataset(pa.table(columns), f"{version}.lance", data_storage_version=version)
    dataset = lance.dataset(f"{version}.lance")
    # the append names no version: the dataset's own goes on
    lance.write_dataset(pa.table(columns), f"{version}.lance", mode="append")
    found[version] = lance.dataset(f"{version}.lance").to_table().to_pydict()
    print(version, found[version], dataset.count_rows(filter="integer is not null"))
whole = {name: column.to_pylist() * 2 for name, column in columns.items()}
assert found["2.0"] == found["2.1"] == whole
assert found["legacy"] == {
    "integer": [7, 0] * 2,
    "float": [1.5, 0.0] * 2,
    "flag": [True, False] * 2,
    "list": [[1, 0], []] * 2,
    "category": ["a", "a"] * 2,
    "text": [None, None] * 2,
}, "it has changed"
PYTHON

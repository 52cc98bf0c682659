#!/usr/bin/env bash
# daft 0.7.26: `read_json` of lines in which one field holds a text in some and a list in others, as the `content` of
# chat messages, keeps the texts and reads each list as None, also within objects, without an error or a warning.
# Objects beside texts are None too, and where the field holds numbers and lists, the numbers are. Numbers beside
# texts become texts. Cure: one kind for each field, such as `json.dumps` of lists.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q daft==0.7.26
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json

import daft

print("daft", daft.__version__)


def read(*values):
    with open("a.jsonl", "w") as file:
        file.writelines(json.dumps({"content": value}) + "\n" for value in values)
    found = [row["content"] for row in daft.read_json("a.jsonl").to_pylist()]
    print(list(values), "->", found)
    return found


parts = [{"type": "text", "text": "What is this?"}]
texts = read("Hello", parts, "Bye")
nested = read({"of": "Hello"}, {"of": ["a"]})
objects = read("Hello", {"text": "b"})
numbers = read([1, 2], 5)
assert read(["a"], None, ["b"]) == [["a"], None, ["b"]]
assert texts == ["Hello", None, "Bye"], "it has changed"
assert nested == [{"of": "Hello"}, {"of": None}], "it has changed"
assert objects == ["Hello", None] and numbers == [[1, 2], None], "it has changed"
PYTHON

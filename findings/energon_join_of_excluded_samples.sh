#!/usr/bin/env bash
# megatron-energon 7.4.1: `energon prepare` of a metadataset that joins names its join index by a hash in which the
# excluded samples stand in the order of a set of strings, which Python changes from process to process. If several
# samples are excluded, the reader mostly does not find the index: "Join index ... does not exist, did you prepare the
# metadataset?". Cure: one PYTHONHASHSEED for all processes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q megatron-energon==7.4.1
cd "$folder"
cat > write.py <<'PY'
import io
import tarfile

for name in ("a", "b"):
    with tarfile.open(f"{name}/0.tar", "w") as archive:
        for number in range(20):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
PY
cat > joiner.py <<'PY'
def joined(*parts):
    return parts
PY
mkdir a b
"$folder/venv/bin/python" write.py
for name in a b; do
    venv/bin/energon prepare "$name" --non-interactive --num-workers 1 --split-ratio 1,0,0 --sample-type CrudeWebdataset
    sed -i 's|exclude: \[\]|exclude: ["0.tar/{0..9}"]|' "$name/.nv-meta/split.yaml"
done > prepared.txt
cat > join.yaml <<'YAML'
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    join: [{path: a}, {path: b}]
    joiner: {__module__: joiner, __function__: joined}
YAML
for seed in 1 2; do
    PYTHONPATH=. PYTHONHASHSEED=$seed venv/bin/energon prepare join.yaml --non-interactive --num-workers 1 >> prepared.txt
    ls join.yaml.cache
done > names.txt
echo "megatron-energon 7.4.1: two processes name one join index:"
sort -u names.txt
[ "$(sort -u names.txt | wc -l)" -eq 2 ]  # else the behaviour has changed

#!/usr/bin/env bash
# megatron-energon 7.4.1: a join with `nonmatch: none` is prepared ("filled with None"), and its reader raises
# "ValueError: No valid files found in sample" at the first sample without a match. With `nonmatch: skip` it reads.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q megatron-energon==7.4.1
cd "$folder"
mkdir a b
cat > joiner.py <<'PY'
from megatron.energon import Sample, edataclass


@edataclass
class Pair(Sample):
    one: object
    other: object

    @classmethod
    def from_joined(cls, one, other):
        return cls(__key__=one["__key__"], __restore_key__=(), one=one, other=other)
PY
cat > write.py <<'PY'
import io
import tarfile

for name, count in (("a", 4), ("b", 2)):
    with tarfile.open(f"{name}/0.tar", "w") as archive:
        for number in range(count):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
PY
cat > read.py <<'PY'
from megatron.energon import DefaultTaskEncoder, WorkerConfig, get_loader, get_val_dataset


class First(DefaultTaskEncoder):
    def batch(self, samples):
        return samples[0]


config = WorkerConfig(rank=0, world_size=1, num_workers=0)
ds = get_val_dataset("join.yaml", split_part="train", worker_config=config, batch_size=1, task_encoder=First())
found = []
try:
    for sample in get_loader(ds):
        found.append((sample.__key__, sample.other is not None))
    error = None
except ValueError as raised:
    error = str(raised)
print("megatron-energon 7.4.1:", found, error)
assert found == [("0", True), ("1", True)]
assert error and error.startswith("No valid files found in sample"), "the behaviour has changed"
PY
"$folder/venv/bin/python" write.py
for name in a b; do
    venv/bin/energon prepare "$name" --non-interactive --num-workers 1 --split-ratio 1,0,0 --sample-type CrudeWebdataset
done > prepared.txt
cat > join.yaml <<'YAML'
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    join: [{path: a}, {path: b, nonmatch: none}]
    joiner: {__module__: joiner, __class__: Pair}
YAML
export PYTHONPATH=. PYTHONHASHSEED=0
venv/bin/energon prepare join.yaml --non-interactive --num-workers 1 >> prepared.txt
venv/bin/python -W ignore read.py 2> errors.txt

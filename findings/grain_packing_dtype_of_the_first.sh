#!/usr/bin/env bash
# grain 0.2.18: `FirstFitPackIterDataset` and `ConcatThenSplitIterDataset` make rows of the dtype that the first sequence
# has, and copy later ones into them, without an error: tokens of int64 become other tokens in rows of int32, and weights
# of 0.5 become 0 behind a sequence whose weights are integers. What comes depends on the order. Cure: one dtype, in a
# map before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q grain==0.2.18 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import grain
import numpy as np
from grain.experimental import ConcatThenSplitIterDataset, FirstFitPackIterDataset

tokens = [np.array([1, 2], np.int32), np.array([2**40 + 3, 4], np.int64)]
weights = [np.array([1, 1]), np.array([0.5, 0.5])]


def rows(pack, sequences, **options):
    source = grain.MapDataset.source([{"x": sequence} for sequence in sequences]).to_iter_dataset()
    return [row["x"].tolist() for row in pack(source, length_struct={"x": 4}, **options)]


found = {}
for name, pack, options in (
    ("first fit", FirstFitPackIterDataset, {"num_packing_bins": 1}),
    ("concat then split", ConcatThenSplitIterDataset, {}),
):
    found[name] = rows(pack, tokens, **options), rows(pack, weights, **options)
    print(name, *found[name])
    assert rows(pack, weights[::-1], **options) == [[0.5, 0.5, 1.0, 1.0]]
assert all(one == ([[1, 2, 3, 4]], [[1, 1, 0, 0]]) for one in found.values()), "it has changed"
PYTHON

#!/usr/bin/env bash
# ray 2.60.0: a batch of integers of which one is missing reaches functions of `map_batches` and loops over
# `iter_batches` and `iter_torch_batches` as float64. So a function that changes nothing rounds identifiers above
# 2**53 and makes NaN of what is missing, in such batches alone: the same identifier is another number in the next
# block. There is no error or warning. Cure: `batch_format="pyarrow"`, or "pandas" for `map_batches`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "ray[data]==2.60.0" pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import logging

import ray

ray.init(num_cpus=1, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
logging.getLogger("ray").setLevel(logging.ERROR)
ray.data.DataContext.get_current().enable_progress_bars = False
print("ray", ray.__version__)
number = 2**53 + 1
rows = ray.data.from_items([{"id": value} for value in (None, number, number, 5)], override_num_blocks=2)
found = {}
for name in ("default", "numpy", "pandas", "pyarrow"):
    taken = rows.map_batches(lambda batch: batch, batch_format=name).take_all()
    found[name] = [row["id"] for row in taken]
    print(name, found[name])
loop = [batch["id"].tolist() for batch in rows.iter_batches(batch_size=None)]
print("iter_batches", loop)
assert found["pyarrow"] == found["pandas"] == [None, number, number, 5]
assert loop[0][1] == 2.0**53 and loop[1] == [number, 5], "it has changed"
for name in ("default", "numpy"):
    missing, first, second, _ = found[name]
    assert missing != missing and first == 2.0**53, "it has changed"
PYTHON

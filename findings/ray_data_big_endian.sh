#!/usr/bin/env bash
# ray 2.60.0: Ray Data stores the bytes of big-endian arrays, as come from FITS, NetCDF and IDX files, beside a dtype
# without the byte order, so 1 and 2 of `>i4` come back as 16777216 and 33554432, and floats as other floats, without
# an error: from `from_items`, `from_numpy` and from what a function returns to `map_batches`; with `map` they are
# right. Cure: `array.astype(array.dtype.newbyteorder("="))` before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "ray[data]==2.60.0" pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import logging

import numpy as np
import ray

ray.init(num_cpus=1, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
logging.getLogger("ray").setLevel(logging.ERROR)
ray.data.DataContext.get_current().enable_progress_bars = False
print("ray", ray.__version__)
array = np.array([[1, 2], [3, 4]], ">i4")
ways = {
    "from_items": lambda: ray.data.from_items([{"data": row} for row in array]),
    "from_numpy": lambda: ray.data.from_numpy(array),
    "map": lambda: ray.data.range(2, override_num_blocks=1).map(lambda row: {"data": array[row["id"]]}),
    "map_batches": lambda: ray.data.range(2, override_num_blocks=1).map_batches(lambda batch: {"data": array[batch["id"]]}),
}
found = {}
for name, make in ways.items():
    rows = make().take_all()
    found[name] = [row["data"].tolist() for row in rows]
    print(name, array.tolist(), "->", rows[0]["data"].dtype, found[name])
assert found.pop("map") == array.tolist()
assert all(rows == array.byteswap().tolist() for rows in found.values()), "it has changed"
PYTHON

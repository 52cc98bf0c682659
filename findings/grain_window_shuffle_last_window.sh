#!/usr/bin/env bash
# grain 0.2.18: `WindowShuffleMapDataset` shuffles within windows of `window_size` elements. The last window, if the
# length is no multiple of that, is shuffled as if it were whole, and what falls behind the end comes from the next
# epoch: some elements come twice, and as many never come, without an error. Cure: `WindowShuffleIterDataset`, which
# gives each element once, or a window that divides the length.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q grain==0.2.18 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import grain
from grain.experimental import WindowShuffleIterDataset, WindowShuffleMapDataset

lost = {}
for length, window in ((8, 4), (10, 4), (5, 100)):
    numbers = grain.MapDataset.range(length)
    found = [int(number) for number in WindowShuffleMapDataset(numbers, window_size=window, seed=1)]
    lost[length] = sorted(set(range(length)) - set(found))
    print(f"{length} elements, windows of {window}: {found}, lost {lost[length]}")
    once = WindowShuffleIterDataset(numbers.to_iter_dataset(), window_size=window, seed=1)
    assert sorted(map(int, once)) == list(range(length))
assert lost[8] == []
assert lost[10] and lost[5], "it has changed"
PYTHON

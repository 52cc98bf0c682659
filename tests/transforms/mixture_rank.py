"""A rank of a run over a mixture, which may be killed at any time: `python mixture_rank.py FOLDER RANKS RANK`.

Each line of its input is an order in JSON, which it answers with a line: read so many elements, change the weights, or
save a checkpoint in a folder. It begins where the newest complete checkpoint in FOLDER is: one with a file `done`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import asyncdata as ad
from asyncdata.checkpoint import load_shares, save_share

__all__ = ("SIZES", "mixture", "newest")

SIZES = {"web": 260, "code": 140, "books": 90}


def mixture(ranks: int, rank: int) -> ad.Dataset[Any]:
    """Elements of three datasets, each with its name, which are shared out to ranks."""
    shares = {name: ad.Dataset.range(size).shuffle(seed=1).shard(ranks, rank) for name, size in SIZES.items()}
    parts = {name: share.map(lambda number, name=name: [name, int(number)]) for name, share in shares.items()}
    return ad.Dataset.sample_from_datasets(parts, {"web": 0.6, "code": 0.3, "books": 0.1}, seed=2)


def newest(folder: Path) -> Path | None:
    """Return the folder of the newest complete checkpoint."""
    complete = [path.parent for path in folder.glob("checkpoint-*/done")]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def main(folder: Path, ranks: int, rank: int) -> None:
    """Obey until the input ends."""
    place = newest(folder)
    state = None if place is None else load_shares(place)
    with mixture(ranks, rank).iterate(state=state) as elements:
        for line in sys.stdin:
            order, what = json.loads(line)
            answer: Any = None
            if order == "read":
                answer = [one for _, one in zip(range(what), elements, strict=False)]
            elif order == "weights":
                elements.set_weights(what)
            else:
                now = elements.state_dict()
                save_share(what, now, checkpoint=what)
                answer = now["position"]["given"]
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

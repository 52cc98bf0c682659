"""Trains on what a channel holds, saves its state after each batch, and trims; goes on where one was killed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import asyncdata as ad
from asyncdata.web import trim


def main(folder: str, path: str) -> None:
    saved = json.loads(Path(path).read_text()) if Path(path).exists() else {"trained": [], "data": None}
    ds = ad.Dataset.from_channel(folder, decode=int).map(abs, num_parallel_calls=2).shuffle(20, seed=1).batch(4)
    with ds.iterate(state=saved["data"]) as batches:
        for batch in batches:
            saved["trained"] += batch.tolist()
            saved["data"] = batches.state_dict()
            Path(f"{path}.new").write_text(json.dumps(saved))
            os.rename(f"{path}.new", path)
            trim(folder, saved)
            print(len(saved["trained"]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

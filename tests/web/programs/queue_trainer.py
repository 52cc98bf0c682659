"""Trains on the good messages of a queue, saves its state after each batch, and goes on where one was killed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import asyncdata as ad


def number_of(message: Any) -> int:
    number = int(message if isinstance(message, bytes) else message.get("n") or message["value"])
    if number % 7 == 3:
        raise ValueError(number)
    return number


def main(source: str, path: str, count: str) -> None:
    saved = json.loads(Path(path).read_text()) if Path(path).exists() else {"trained": [], "data": None}
    method, *arguments, how = json.loads(source)
    ds = getattr(ad.Dataset, method)(*arguments, **how).map(number_of, num_parallel_calls=2).ignore_errors()
    with ds.shuffle(20, seed=1).batch(4).iterate(state=saved["data"]) as batches:
        for batch in batches:
            saved["trained"] += batch.tolist()
            saved["data"] = batches.state_dict()
            Path(f"{path}.new").write_text(json.dumps(saved))
            os.rename(f"{path}.new", path)
            print(len(saved["trained"]), flush=True)
            if len(saved["trained"]) >= int(count):
                return


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Work that is to be killed: resumed.py train|save FOLDER.

`train` writes down each element of a pipeline over the folder's shards, saves its state now and then, and goes on from
there when it is started again. `save` saves states of very different sizes, again and again, for ever.

Its lines are long: where the pipe for them is small, it goes on as they are read.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import asyncdata as ad
from asyncdata.checkpoint import load, save

EVERY = 7
"""How many elements lie between two saves."""

SAVED = f"{'saved':<999}"
"""What it says after each of them."""


def pipeline(folder: Path) -> ad.Dataset:
    """Read, shuffle and number records: everything that remembers something, and a shuffle without a seed."""
    files = ad.Dataset.list_files(str(folder / "*.tfrecord"))
    records = files.interleave(ad.TFRecordDataset, cycle_length=3, num_parallel_calls=2).shuffle(20)
    return records.map(int, num_parallel_calls=4).batch(3).prefetch(4).unbatch()


def train(folder: Path) -> None:
    """Go back to the last state, as a trainer goes back to its last checkpoint, and on from there."""
    path, log = folder / "state.json", folder / "log"
    state = load(path) if path.exists() else None
    lines = log.read_text().splitlines(keepends=True)[: state["delivered"]] if state else []
    log.write_text("".join(lines))
    with open(log, "a", buffering=1) as file, pipeline(folder).iterate(state=state) as elements:
        for number, element in enumerate(elements, 1):
            file.write(f"{element}\n")
            if number % EVERY == 0:
                save(path, elements.state_dict())
                print(SAVED, flush=True)
    print("done", flush=True)


def save_for_ever(path: Path) -> None:
    for number in itertools.count():
        save(path, {"version": 1, "number": number, "bulk": [0] * (number % 5 * 100_000)})
        print(SAVED, flush=True)


if __name__ == "__main__":
    what, where = sys.argv[1:]
    if what == "train":
        train(Path(where))
    else:
        save_for_ever(Path(where, "state.json"))

"""Read a file of a library's format with one byte changed, at each 97th place: flipped.py KIND FILE FIRST.

For each place a line of JSON: the place, the names of the errors, and whether another row than those of the whole file
came.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import asyncdata as ad

EVERY, MOST = 97, 500


def opened(kind: str, path: Path) -> ad.Dataset[Any]:
    if kind == "lance":
        return ad.LanceDataset(path.parents[1])
    import h5py

    return ad.Dataset.from_source(h5py.File(path)["rows"])


def outcomes(kind: str, path: Path) -> tuple[list[str], list[str]]:
    """Return rows as text, and the names of errors."""
    rows, errors = list[str](), list[str]()
    try:
        with opened(kind, path).iterate() as elements:
            while len(rows) + len(errors) < MOST:
                try:
                    rows.append(repr(next(elements)))
                except StopIteration:
                    return rows, errors
                except Exception as error:
                    errors.append(type(error).__name__)
    except Exception as error:
        return rows, [*errors, f"opened: {type(error).__name__}"]
    return rows, ["endless"]


def main(kind: str, name: str, first: str) -> None:
    path = Path(name)
    content = path.read_bytes()
    whole = {*outcomes(kind, path)[0]}
    for place in range(int(first), len(content), EVERY):
        sys.stdout.write(f"{place}\n")
        sys.stdout.flush()
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        rows, errors = outcomes(kind, path)
        path.write_bytes(content)
        sys.stdout.write(json.dumps([sorted({*errors}), not {*rows} <= whole]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

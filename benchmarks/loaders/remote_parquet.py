"""Parquet on a server: asyncdata against pyarrow's own S3 reading, of the same columns into arrays.

    python benchmarks/loaders/remote_parquet.py [--quick] [--json FILE]

It needs `pip install -e '.[parquet,remote]'`. The server is nginx on this machine, as in benchmarks/loaders/remote.py:
once as fast as it can, and once with 100 ms to the first byte and 10 MB/s a connection. Both ask it as an S3 store
without keys. The table has 8 columns of numbers, one of 64 float32, and four between these that nobody asks for, in
eight files of four row groups of 50,000 rows; batches are of 1024 rows. Both have their defaults: pyarrow's scanner
reads four files at once and decodes them in as many threads as there are cores. They run by turns, each time in a
process of its own that has read a small file before.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, fresh, installed, parse_arguments
from remote import nginx

__all__ = ("main",)

WIDTH, BATCH, GROUP, FILES = 64, 1024, 50_000, 8
NUMBERS = [f"x{place}" for place in range(8)]


def write(folder: Path, groups: int) -> None:
    """Write the files."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for place, name in enumerate(NUMBERS):
        columns[name] = random.normal(size=GROUP)
        if place % 2:
            columns[f"left{place}"] = random.normal(size=GROUP)
    columns["wide"] = pa.FixedSizeListArray.from_arrays(random.normal(size=GROUP * WIDTH).astype(np.float32), WIDTH)
    table = pa.table(columns)
    folder.mkdir(parents=True)
    pq.write_table(table[:BATCH], folder / "small.parquet")
    for number in range(FILES):
        with pq.ParquetWriter(folder / f"{number:02}.parquet", table.schema) as file:
            for _ in range(groups):
                file.write_table(table)


def names_of(begin: str, small: bool) -> list[str]:
    """Return where the files are, or the small one."""
    return [f"{begin}data/small.parquet"] if small else [f"{begin}data/{number:02}.parquet" for number in range(FILES)]


def by_asyncdata(base: str, small: bool) -> Iterator[int]:
    """Yield how many rows each batch has."""
    options = {"endpoint": base, "region": "us-east-1", "skip_signature": True}
    names = names_of("s3://", small)
    ds = ad.ParquetDataset(names, [*NUMBERS, "wide"], storage_options=options)
    for batch in ds.batch(BATCH):
        yield len(batch["wide"])


def by_pyarrow(base: str, small: bool) -> Iterator[int]:
    """Yield how many rows each batch has."""
    store = pa.fs.S3FileSystem(
        endpoint_override=base.removeprefix("http://"), scheme="http", anonymous=True, region="us-east-1"
    )
    table = pa.dataset.dataset(names_of("", small), filesystem=store, format="parquet")
    scanner = table.scanner(columns=[*NUMBERS, "wide"], batch_size=BATCH)
    for batch in scanner.to_batches():
        for name in NUMBERS:
            batch.column(name).to_numpy()
        yield len(batch.column("wide").flatten().to_numpy().reshape(-1, WIDTH))


WAYS: dict[str, Callable[[str, bool], Iterator[int]]] = {"asyncdata": by_asyncdata, "pyarrow": by_pyarrow}


def read(way: str, base: str) -> None:
    """Read all; print the seconds, those of the processor, and how many rows there were."""
    sum(WAYS[way](base, True))
    begin, busy = time.perf_counter(), time.process_time()
    rows = sum(WAYS[way](base, False))
    print(json.dumps([time.perf_counter() - begin, time.process_time() - busy, rows]))


def main() -> None:
    """Measure both servers."""
    if sys.argv[1:2] == ["--read"]:
        read(*sys.argv[2:])
        return
    arguments = parse_arguments(__doc__ or "")
    installed(("pyarrow", "obstore"))
    report = Report("Parquet on a server, the same columns into arrays")
    groups = 1 if arguments.quick else 4
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "nginx")
        os.chmod(scratch, 0o755)
        write(folder / "data" / "data", groups)
        with nginx(folder) as server:
            for title, base in (("no delay", server.fast), ("100 ms, 10 MB/s each", server.slow)):
                runs: dict[str, list[list[float]]] = {way: [] for way in WAYS}
                for _ in range(arguments.rounds(5)):
                    for way, some in runs.items():
                        some.append(fresh(__file__, "--read", way, base))
                assert {int(run[2]) for some in runs.values() for run in some} == {FILES * groups * GROUP}
                for place, what in enumerate(("", ", CPU")):
                    ours, theirs = (statistics.median(run[place] for run in runs[way]) for way in WAYS)
                    report.add(
                        Row(title + what, ours, "s", "pyarrow's S3 reading", theirs, None if place else AtMost(1 / 1.2))
                    )
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

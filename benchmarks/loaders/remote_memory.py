"""Memory while objects are read from a server: one of 4 GB, and sixteen in turn with a budget.

    python benchmarks/loaders/remote_memory.py [--quick] [--json FILE]

The server is nginx on this machine, as in benchmarks/loaders/remote.py. Each run is in a process of its own, whose
largest resident memory is compared with what it had when one record of a small object had been read.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from pathlib import Path

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Below, Report, Row, fresh, parse_arguments
from remote import nginx

__all__ = ("main",)

RECORD = 100_000
FILES = 16


def resident() -> float:
    """The megabytes that this process holds in memory now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def read(base: str, names: list[str], budget: int | None) -> None:
    """Read all records; print the memory before and at most, and how many bytes there were."""
    ad.FixedLengthRecordDataset(f"{base}/small", RECORD).take(1).to_list()
    idle = resident()
    ds = ad.FixedLengthRecordDataset([f"{base}/{name}" for name in names], RECORD, num_parallel_reads=len(names))
    count = sum(map(len, ds.with_options(ad.Options(ram_budget=budget))))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000 * 1.024
    print(json.dumps({"idle": idle, "peak": peak, "bytes": count}))


def main() -> None:
    """Measure both."""
    if sys.argv[1:2] == ["--read"]:
        read(*json.loads(sys.argv[2]))
        return
    arguments = parse_arguments(__doc__ or "")
    report = Report("Objects on a server: resident memory of the reader")
    large = RECORD * (1000 if arguments.quick else 43_000)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "nginx")
        (folder / "data").mkdir(parents=True)
        os.chmod(scratch, 0o755)
        names = [f"{number:02}" for number in range(FILES)]
        for name, size in {"small": RECORD, "large": large, **dict.fromkeys(names, large // FILES)}.items():
            with open(folder / "data" / name, "wb") as file:
                file.truncate(size // RECORD * RECORD)  # zeros, which take no room on the disk
        with nginx(folder) as server:
            cases = {
                f"one object of {large / 1e9:.1f} GB": (["large"], None),
                "sixteen in turn, ram_budget=200 MB": (names, 200_000_000),
            }
            for title, (some, budget) in cases.items():
                found = fresh(__file__, "--read", json.dumps([server.fast, some, budget]))
                report.add(Row(title, found["peak"], "MB", "idle", found["idle"], Below(200)))
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

"""The audit of 1,000,000,000 records, by simulation: the log of one of 100 ranks, written and audited, and 100 of them.

    python benchmarks/loaders/audit_simulated.py [--quick] [--json FILE]

The rank delivers 10,000,000 of the numbers up to 1,000,000,000 in batches of 256, in an order that no one can compute
again. Nothing is read: the recorder gets the numbers as a pipeline would give them. What 100 ranks take is 100 times
that; the audit reads each line once and sorts the hashes, 64 bits for each record.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncdata as ad
from asyncdata.persistence.run_log import RunLog
from asyncdata.recorder.audit import audit
from asyncdata.recorder.log_reader import read_logs
from asyncdata.runtime.tickets import ExplicitTickets
from asyncdata.transforms.batch import BatchTickets
from asyncdata.transforms.global_shuffle import permuted

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, fresh, parse_arguments

__all__ = ("main",)

ALL, BATCH, BLOCK = 10**9, 256, 1 << 13


def write(path: str, records: int) -> float:
    """Write the log of so many records; return the seconds of processor that the recorder took."""
    header = ad.Dataset.range(ALL).batch(BATCH).iterate(epoch=0).state_dict()
    head = {name: header[name] for name in ("version", "plan", "seeds", "shares", "epoch")}
    log, seconds = RunLog(path, [], 0), 0.0
    nowhere: Any = None
    for start in range(0, records, BLOCK):
        numbers = permuted(start, start + BLOCK, ALL, 7)
        tickets = ExplicitTickets(numbers.tolist(), lambda _: None, numbers)
        block = BatchTickets(tickets, range(BATCH, BLOCK + 1, BATCH), nowhere)
        begin = time.process_time()
        log.note(start // BATCH, block, len(block))
        if log.is_long():
            log.write(lambda: head, "more")
        seconds += time.process_time() - begin
    log.write(lambda: head, "end")
    return seconds


def judge(path: str) -> None:
    """Audit the log; print whether it is complete, its records, the seconds and the bytes that it took."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    (found,) = audit(read_logs([path]))
    seconds = time.process_time() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps([found.complete, found.records, seconds, memory]))


def measure(report: Report, records: int) -> None:
    """Fill the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        seconds = write(str(path), records)
        report.add(Row("record a batch", seconds / records * BATCH * 1e3, "ms", "bar", 0.15, AtMost(1)))
        report.add(Row("log of all", path.stat().st_size / records * ALL / 1e9, "GB"))
        complete, found, seconds, memory = fresh(__file__, "audit", path)
        assert complete
        assert found == records
        report.add(Row("audit of a rank", seconds, "s"))
        report.add(Row("audit of all, in one process", seconds / records * ALL / 60, "min"))
        report.add(Row("its memory", memory / records * ALL / 1e9, "GB"))


def main() -> None:
    """Run the benchmark, or a part of it in this process."""
    if sys.argv[1:2] == ["audit"]:
        return judge(sys.argv[2])
    arguments = parse_arguments(__doc__ or "")
    report = Report("Audit of 1,000,000,000 records")
    measure(report, (1 << 19) if arguments.quick else 10_000_000 // BLOCK * BLOCK)
    return report.finish(arguments.json)


if __name__ == "__main__":
    main()

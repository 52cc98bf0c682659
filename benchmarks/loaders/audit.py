"""The audit of a long run: 1,000,000 records in 100 files, read by 4 ranks and then by 3, killed 20 times.

    python benchmarks/loaders/audit.py [--quick] [--json FILE] [--store s3://bucket/folder]

With `--store` the files and the logs are objects there; the server and its keys come from the environment
(`AWS_ENDPOINT_URL` and so on), and each machine that reads keeps a copy of the objects (`cache_dir`).

Each run is a process that has all ranks, saves their states, reads on and kills itself; the next one goes on from the
states. The order of records is that of a parallel map without order, so each is named in the logs. Then another process
reads the logs and says whether each record came once: alone, and compared with what the pipeline gives. All of that is
done once more with the map in order, where logs name an order that can be computed again.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.persistence.run_log_files import contents, paths_of
from asyncdata.recorder.audit import audit
from asyncdata.recorder.expected import ExpectedTickets
from asyncdata.recorder.log_reader import read_logs
from asyncdata.storage.sinks import put_object

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, fresh, parse_arguments

__all__ = ("main",)

BATCH = 256


def same(record: bytes) -> bytes:
    return record


def pipeline(folder: str, place: str, ordered: bool, ranks: int, rank: int) -> Any:
    """Read a share of all records; unless it is `ordered`, in an order that no one can compute again."""
    files = ad.Dataset.list_files(f"{place}/*.tfrecord", shuffle=False)
    kept = None if place == folder else ad.CacheDir(f"{folder}/cache", max_bytes=1 << 30)
    records = ad.TFRecordDataset(files, index=True, cache_dir=kept).shuffle(seed=1).shard(ranks, rank)
    return records.map(same, num_parallel_calls=2, deterministic=ordered).batch(BATCH)


def write(folder: str, place: str, files: int, records: int) -> None:
    """Write files of small records."""
    with ad.TFRecordWriter(first := f"{folder}/first") as writer:
        for number in range(records):
            writer.write(b"record %9d" % number)
    for number in range(files):
        if place == folder:
            shutil.copy(first, f"{folder}/{number:03}.tfrecord")
        else:
            put_object(f"{place}/{number:03}.tfrecord", Path(first).read_bytes())


def train(folder: str, place: str, ordered: bool, ranks: int, steps: int) -> None:
    """Read so many steps on each rank, save the states, read on and be killed; or end with the data."""
    path = Path(folder, f"{log_of(ordered)}-states.json")
    saved: list[Any] = json.loads(path.read_text()) if path.exists() else [None]
    states = saved if len(saved) == ranks else [saved[0] if len(saved) == 1 else merge_states(saved)] * ranks
    options = ad.Options(record=f"{place}/{log_of(ordered)}.jsonl")
    shares = [pipeline(folder, place, ordered, ranks, rank).with_options(options) for rank in range(ranks)]
    runs = [share.iterate(state=state) for share, state in zip(shares, states, strict=True)]
    left = [sum(1 for _ in zip(range(steps), run, strict=False)) for run in runs]
    path.write_text(json.dumps([run.state_dict() for run in runs]))
    if steps in left:
        for run in runs:
            sum(1 for _ in zip(range(random.randrange(5)), run, strict=False))
        os.kill(os.getpid(), signal.SIGKILL)
    for run in runs:
        run.close()


def log_of(ordered: bool) -> str:
    return "ordered" if ordered else "run"


def judge(folder: str, place: str, ordered: bool, against: bool) -> None:
    """Audit the logs, and print the result, the seconds and the megabytes."""
    start = time.perf_counter()
    ds = pipeline(folder, place, ordered, 4, 0)
    logs = read_logs(paths_of([f"{place}/{log_of(ordered)}*.jsonl"]))
    (found,) = audit(logs, ExpectedTickets(ds.plan, ds.options()) if against else None)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([found.complete, str(found), found.records, seconds, memory]))


def measure(report: Report, store: str, files: int, records: int, most: int) -> None:
    """Fill the report."""
    with tempfile.TemporaryDirectory() as folder:
        place = store or folder
        write(folder, place, files, records)
        for ordered in (False, True):
            kills = run_with_kills(folder, place, ordered, files * records, most)
            logs = contents(paths_of([f"{place}/{log_of(ordered)}*.jsonl"]))
            size = sum(len(line) for _, lines in logs for line in lines)
            print(f"killed {kills} times, logs of {size:,} bytes")
            add_rows(report, folder, place, ordered, files * records, size)


def run_with_kills(folder: str, place: str, ordered: bool, count: int, most: int) -> int:
    """Read all records in processes of which so many are killed; return how many were."""
    each = count // BATCH // (most + 1)
    for run in range(10 * most):
        ranks, steps = (4, each // 4) if run < most // 2 else (3, each // 3 if run < most else count)
        command = [sys.executable, __file__, "train", folder, place, str(int(ordered)), str(ranks), str(max(1, steps))]
        done = subprocess.run(command, check=False).returncode
        if done != -signal.SIGKILL:
            assert done == 0
            return run
    raise AssertionError("it did not come to an end")


def add_rows(report: Report, folder: str, place: str, ordered: bool, count: int, size: int) -> None:
    """Audit the logs, and add what that takes to the report."""
    order = ", in order" if ordered else ""
    for against in (False, True):
        complete, words, found, seconds, memory = fresh(__file__, "audit", folder, place, int(ordered), int(against))
        print(words)
        assert complete
        assert found == count
        how = f"{order}, compared with the pipeline" if against else order
        report.add(Row(f"audit{how}", seconds, "s", "bar", 60, AtMost(1)))
        report.add(Row(f"its memory{how}", memory, "MB", "bar", 500, AtMost(1)))
    report.add(Row(f"log, for each record{order}", size / count, "B", "bar", 0.05 if ordered else 4, AtMost(1)))


def main() -> None:
    """Run the benchmark, or a part of it in this process."""
    if sys.argv[1:2] == ["train"]:
        return train(sys.argv[2], sys.argv[3], sys.argv[4] == "1", int(sys.argv[5]), int(sys.argv[6]))
    if sys.argv[1:2] == ["audit"]:
        return judge(sys.argv[2], sys.argv[3], sys.argv[4] == "1", sys.argv[5] == "1")
    store = ""
    if "--store" in sys.argv:
        store = sys.argv.pop(sys.argv.index("--store") + 1)
        sys.argv.remove("--store")
    arguments = parse_arguments(__doc__ or "")
    kills = 4 if arguments.quick else 20
    report = Report(f"Audit of a run that was killed {kills} times")
    measure(report, store, *((5, 500) if arguments.quick else (100, 10_000)), kills)
    return report.finish(arguments.json)


if __name__ == "__main__":
    main()

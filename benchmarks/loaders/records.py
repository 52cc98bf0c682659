"""TFRecord files from the page cache: plain iteration, batches of 128, and tf.Example to arrays.

    python benchmarks/loaders/records.py [--quick] [--json FILE]

Both libraries check both CRCs of every record. The files are written to a temporary folder just before they are read,
so they lie in the page cache. Times are per record.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, Report, Row, alternate, parse_arguments, tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness import Arguments, Prepare

__all__ = ("main",)

BATCH = 128
SHARDS = 4
EXAMPLE_BYTES = 10_000


@dataclass(frozen=True)
class Job:
    """The same work in both libraries: what it is called, its bar, and its dataset over some files."""

    name: str
    bar: AtLeast
    ours: Callable[[list[str]], Any]
    theirs: Callable[[Any, list[str]], Any]


def reading_jobs(kilobytes: int, plain: float, batched: float) -> tuple[Job, Job]:
    """Iterate over records of one size, singly and in batches."""
    return (
        Job(
            f"{kilobytes} KB records",
            AtLeast(plain),
            ad.TFRecordDataset,
            lambda tf, files: tf.data.TFRecordDataset(files),
        ),
        Job(
            f"{kilobytes} KB records, batch({BATCH})",
            AtLeast(batched),
            lambda files: ad.TFRecordDataset(files).batch(BATCH),
            lambda tf, files: tf.data.TFRecordDataset(files).batch(BATCH),
        ),
    )


def decoding_job() -> Job:
    """Turn each tf.Example into a dict of its image bytes, three integers and eight floats."""

    def features(api: Any, text: Any) -> dict[str, Any]:
        whole = {name: api.FixedLenFeature((), np.int64) for name in ("label", "height", "width")}
        return {"image": api.FixedLenFeature((), text), "box": api.FixedLenFeature((8,), np.float32), **whole}

    def ours(files: list[str]) -> Any:
        spec = features(ad, bytes)
        return ad.TFRecordDataset(files).map(lambda record: ad.parse_single_example(record, spec))

    def theirs(tf: Any, files: list[str]) -> Any:
        spec = features(tf.io, tf.string)
        return tf.data.TFRecordDataset(files).map(lambda record: tf.io.parse_single_example(record, spec))

    return Job(f"tf.Example of {EXAMPLE_BYTES // 1000} KB to arrays", AtLeast(8), ours, theirs)


def write_shards(folder: Path, name: str, records: Sequence[bytes]) -> list[str]:
    """Write the records into a few files and return their paths."""
    paths = [str(folder / f"{name}-{shard}.tfrecord") for shard in range(SHARDS)]
    for shard, path in enumerate(paths):
        with ad.TFRecordWriter(path) as writer:
            for record in records[shard::SHARDS]:
                writer.write(record)
    return paths


def random_records(size: int, total: int) -> list[bytes]:
    """As many random records of `size` bytes as `total` bytes hold."""
    random = np.random.default_rng(0)
    return [random.bytes(size) for _ in range(total // size)]


def random_examples(count: int) -> list[bytes]:
    """Serialised tf.Example messages with an image's bytes and a few numbers."""
    random = np.random.default_rng(0)
    box = np.arange(8, dtype=np.float32)
    return [
        ad.make_example({"image": random.bytes(EXAMPLE_BYTES), "label": index, "height": 64, "width": 48, "box": box})
        for index in range(count)
    ]


def exhausted(elements: Iterable[Any]) -> Callable[[], Any]:
    """A run in which the consumer gets every element."""

    def run() -> None:
        for _ in elements:
            pass

    return run


def contenders(job: Job, files: list[str]) -> dict[str, Prepare]:
    """The job in asyncdata, in tf.data giving its own tensors, and in tf.data giving NumPy's, as asyncdata does."""
    tf = tensorflow()
    ours: dict[str, Prepare] = {"asyncdata": lambda: exhausted(job.ours(files))}
    if tf is None:
        return ours
    theirs: dict[str, Prepare] = {
        "tf.data": lambda: exhausted(job.theirs(tf, files)),
        "tf.data, numpy": lambda: exhausted(job.theirs(tf, files).as_numpy_iterator()),
    }
    return ours | theirs


def measure(job: Job, files: list[str], count: int, arguments: Arguments, report: Report) -> None:
    """Run a job in both libraries by turns, and add its rows."""
    samples = alternate(contenders(job, files), arguments.rounds(5))
    raw = {name: runs.seconds for name, runs in samples.items()}
    micros = {name: runs.median / count * 1e6 for name, runs in samples.items()}
    ours = micros.pop("asyncdata")
    if not micros:
        report.add(Row(job.name, ours, unit="us", samples=raw))
    for peer, theirs in micros.items():
        report.add(Row(job.name, ours, unit="us", against=peer, reference=theirs, bar=job.bar, samples=raw))


def main() -> None:
    """Write the files, run every job and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("TFRecord from the page cache, per record")
    total = 2_000_000 if arguments.quick else 128_000_000
    with tempfile.TemporaryDirectory() as folder:
        for kilobytes, plain, batched in ((1, 10, 1.2), (10, 10, 2), (100, 3, 2)):
            records = random_records(kilobytes * 1000, total)
            files = write_shards(Path(folder), f"{kilobytes}k", records)
            for job in reading_jobs(kilobytes, plain, batched):
                measure(job, files, len(records), arguments, report)
        examples = random_examples(total // 4 // EXAMPLE_BYTES)
        files = write_shards(Path(folder), "examples", examples)
        measure(decoding_job(), files, len(examples), arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

"""The command `asyncdata demo`: its arguments, its runs, and the table at the end."""

from __future__ import annotations

import glob
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from functools import partial
from pathlib import Path
from typing import Final

from asyncdata.demo.classifier import new_classifier, one_core
from asyncdata.demo.extra import require
from asyncdata.demo.photos import ensure_shards
from asyncdata.demo.pipelines import Job, naive_batches, survey, test_batches, training_batches
from asyncdata.demo.training import Measured, show_resume, train
from asyncdata.storage import cache_folder, without_query

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION: Final = """
Train a small classifier on images from TFRecord shards, with an asyncdata pipeline and with a naive one, and compare
them. Then stop a training and resume it. The classifier uses PyTorch if it is installed, else NumPy. The images are
patches of two photographs, written on first use; the classifier learns which photograph a patch is from.
"""

EXAMPLE: Final = "Example: asyncdata demo --epochs 2 --no-naive"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `demo`."""
    parser.add_argument(
        "--data",
        metavar="PATTERN",
        help="your own shards instead: TFRecord files of tf.Example with the features 'image' (an encoded image) and "
        "'label' (an integer from 0); a fifth of the records is held out to measure accuracy",
    )
    parser.add_argument("--epochs", type=positive, default=5, metavar="N", help="passes over the data (default 5)")
    parser.add_argument("--batch-size", type=positive, default=64, metavar="N", help="images in a step (default 64)")
    parser.add_argument("--no-naive", action="store_true", help="leave out the naive run")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="the folder for the shards of photographs")
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE", help="where to draw what ran when (default: timeline.svg in the cache)"
    )


def positive(text: str) -> int:
    """Return `text` as a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def run(arguments: Namespace) -> int:
    """Find or write the data, train with both pipelines, and print both results."""
    require("PIL.Image")
    job = find_job(arguments)
    print(
        f"{job.train_counts.total():,} images to train on, {job.test_counts.total():,} others to test on, "
        f"{len(job.labels)} labels, classifier in {new_classifier(len(job.labels)).framework} on one core"
    )
    with one_core():
        rows = train_both_ways(job, arguments)
        print_table(rows)
        draw_timeline(rows, arguments.timeline or folder_of(arguments) / "timeline.svg")
        show_resume(job, partial(training_batches, job, arguments.batch_size))
    return 0


def train_both_ways(job: Job, arguments: Namespace) -> dict[str, Measured]:
    """Train with asyncdata, then naively unless `--no-naive`; return the measurements by name."""
    test = test_batches(job)
    rows: dict[str, Measured] = {}
    print("With asyncdata:", flush=True)
    rows["asyncdata"] = train(job, training_batches(job, arguments.batch_size), test, arguments.epochs)
    if not arguments.no_naive:
        print("The same, naively (no parallelism, no prefetch):", flush=True)
        rows["naive"] = train(job, naive_batches(job, arguments.batch_size), test, arguments.epochs)
    return rows


def find_job(arguments: Namespace) -> Job:
    """Return the job for the arguments; write the demonstration's own shards first if needed."""
    if arguments.data is not None:
        print(f"Reading the labels in {without_query(arguments.data)}", flush=True)
        return survey(arguments.data, arguments.data)
    cache = folder_of(arguments)
    print(f"Photographs in {cache} (cut, encoded and written there on first use)", flush=True)
    folder = glob.escape(str(ensure_shards(cache)))
    return survey(f"{folder}/train-*.tfrecord", f"{folder}/test-*.tfrecord")


def folder_of(arguments: Namespace) -> Path:
    """Return the folder for the shards of photographs and the timeline."""
    return arguments.cache or cache_folder()


def draw_timeline(rows: dict[str, Measured], path: Path) -> None:
    """Draw what ran when in the last epoch of each run, the naive one above the other."""
    last, naive = rows["asyncdata"].last, rows["naive"].last if "naive" in rows else None
    assert last is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    last.plot(path, title="asyncdata", above=naive, title_above="naive")
    print(f"What ran when in the last epoch: {path}")


def print_table(rows: dict[str, Measured]) -> None:
    """Print the measurements, one line per run."""
    print(f"\n{'':12}{'images/s':>10}{'waited for data':>18}{'seconds':>10}{'test accuracy':>16}")
    for name, row in rows.items():
        print(f"{name:12}{row.rate:10,.0f}{row.waiting:18.0%}{row.seconds:10.2f}{row.accuracy:16.1%}")
    if "naive" in rows:
        print(f"\nasyncdata trained {rows['asyncdata'].rate / rows['naive'].rate:.2f} times as fast")

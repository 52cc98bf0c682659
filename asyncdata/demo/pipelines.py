"""The demonstration's pipelines: the same training input written well and written naively, and the test input."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import asyncdata as ad
from asyncdata.demo.images import augment, decode_image, window

__all__ = ("Batches", "Job", "naive_batches", "survey", "test_batches", "training_batches")

Example: TypeAlias = "tuple[NDArray[np.uint8], int]"
Batches: TypeAlias = "ad.Dataset[tuple[NDArray[np.uint8], NDArray[np.int64]]]"

FEATURES: Final = {"image": ad.FixedLenFeature((), bytes), "label": ad.FixedLenFeature((), np.int64)}
LABEL: Final = {"label": FEATURES["label"]}
SHUFFLE_BUFFER: Final = 1000
TEST_LIMIT: Final = 2048


@dataclass(frozen=True)
class Job:
    """The records to train on, those held out to measure accuracy, and what was found in them."""

    train: str
    test: str
    train_counts: Counter[int]
    """How many records of each label there are to train on."""
    test_counts: Counter[int]

    @property
    def labels(self) -> list[int]:
        """Every label, in order: the classifier's class i is the i-th of them."""
        return sorted(self.train_counts | self.test_counts)

    @property
    def chance(self) -> float:
        """The accuracy of always answering with the most frequent label."""
        return max(self.test_counts.values()) / self.test_counts.total()

    def trains_on(self, record: bytes) -> bool:
        """Whether `record` is one to train on: where one set of files serves both ends, a fifth is held out."""
        return self.train != self.test or zlib.crc32(record) % 5 > 0

    def tests_on(self, record: bytes) -> bool:
        """Whether `record` is one to measure accuracy on."""
        return self.train != self.test or zlib.crc32(record) % 5 == 0


def training_batches(job: Job, batch_size: int) -> Batches:
    """Read, shuffle, decode, augment and batch the training records, all at once and during the training."""
    return (
        ad.Dataset.list_files(job.train, seed=0)
        .interleave(ad.TFRecordDataset, cycle_length=4, num_parallel_calls=ad.AUTOTUNE)
        .filter(job.trains_on)
        .shuffle(SHUFFLE_BUFFER, seed=0)
        .map(training_example, num_parallel_calls=ad.AUTOTUNE)
        .batch(batch_size)
        .prefetch(ad.AUTOTUNE)
    )


def naive_batches(job: Job, batch_size: int) -> Batches:
    """Do the same, one thing after the other, and only when training asks for a batch."""
    return (
        ad.Dataset.list_files(job.train, seed=0)
        .interleave(ad.TFRecordDataset, cycle_length=4)
        .filter(job.trains_on)
        .shuffle(SHUFFLE_BUFFER, seed=0)
        .map(training_example)
        .batch(batch_size)
        .with_options(ad.Options(optimize=False, placement="current"))
    )


def test_batches(job: Job) -> Batches:
    """Decode the held-out records once, at most 2048 of them, and keep them in memory."""
    return (
        ad.Dataset.list_files(job.test, shuffle=False)
        .interleave(ad.TFRecordDataset, cycle_length=4, num_parallel_calls=ad.AUTOTUNE)
        .filter(job.tests_on)
        .take(TEST_LIMIT)
        .map(plain_example, num_parallel_calls=ad.AUTOTUNE)
        .batch(256)
        .cache()
    )


def survey(train: str, test: str) -> Job:
    """Read every label once. Refuse, as a `PlanError`, what nothing can be learned from."""
    job = Job(train, test, Counter(), Counter())
    for record, label in labelled_records(train):
        (job.train_counts if job.trains_on(record) else job.test_counts)[label] += 1
    if test != train:
        job.test_counts.update(label for _, label in labelled_records(test))
    if not job.train_counts or not job.test_counts:
        raise ad.PlanError(f"too few records in {train}: some to train on and some to test on are needed")
    if len(job.labels) < 2:
        raise ad.PlanError(f"every record in {train} has the label {job.labels[0]}: at least two labels are needed")
    return job


def labelled_records(pattern: str) -> ad.Dataset[tuple[bytes, int]]:
    """Read the records of the files that match `pattern`, each with its label."""
    return ad.Dataset.list_files(pattern, shuffle=False).interleave(ad.TFRecordDataset, cycle_length=4).map(with_label)


def with_label(record: bytes) -> tuple[bytes, int]:
    label = int(ad.parse_single_example(record, LABEL)["label"])
    if label < 0:
        raise ad.DataLossError(f"a label must be 0 or more, got {label}")
    return record, label


def training_example(record: bytes) -> Example:
    """Parse a record, decode its image and change it a little at random."""
    encoded, label = parse(record)
    return augment(decode_image(encoded), encoded), label


def plain_example(record: bytes) -> Example:
    """Parse a record and decode its image."""
    encoded, label = parse(record)
    return window(decode_image(encoded), 0.5, 0.5), label


def parse(record: bytes) -> tuple[bytes, int]:
    """Return the encoded image and the label in `record`."""
    example: dict[str, Any] = ad.parse_single_example(record, FEATURES)
    return example["image"], int(example["label"])

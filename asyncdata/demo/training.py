"""The training loop, with the measurement of how long it waits; and a training that is stopped and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat
from time import perf_counter
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asyncdata.demo.classifier import Classifier, new_classifier
from asyncdata.demo.pipelines import Batches, Job
from asyncdata.integrations.loader import Loader
from asyncdata.observe.trace import Trace, trace

__all__ = ("Measured", "show_resume", "train")


@dataclass(slots=True)
class Measured:
    """The measurements of one training run, without the time for measuring accuracy."""

    images: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    """How many of the seconds training waited for a batch."""
    accuracy: float = 0.0
    last: Trace | None = None
    """What ran when in the last epoch."""

    @property
    def rate(self) -> float:
        """Images trained on in a second."""
        return self.images / self.seconds

    @property
    def waiting(self) -> float:
        """The share of the time that training waited for data."""
        return self.waited / self.seconds


def train(job: Job, training: Batches, test: Batches, epochs: int) -> Measured:
    """Train a new classifier on `training` for some epochs, printing a line for each."""
    labels = np.array(job.labels)
    classifier = new_classifier(len(labels))
    print(f"  before      test accuracy {accuracy(classifier, test, labels):6.1%}  (chance {job.chance:.1%})")
    total = Measured()
    for epoch in range(1, epochs + 1):
        total.last = trace()
        loss, measured = train_epoch(classifier, training, labels, f"  epoch {epoch}/{epochs}", total.last)
        total.images += measured.images
        total.seconds += measured.seconds
        total.waited += measured.waited
        total.accuracy = accuracy(classifier, test, labels)
        print(
            f"  epoch {epoch}/{epochs}   test accuracy {total.accuracy:6.1%}  loss {loss:.3f}"
            f"  {measured.images:,} images in {measured.seconds:.2f} s, waited {measured.waiting:.0%}",
            flush=True,
        )
    return total


def train_epoch(
    classifier: Classifier, training: Batches, labels: NDArray[np.int64], title: str, record: Trace
) -> tuple[float, Measured]:
    """Train on every batch once, and record what runs when; return the mean loss and what was measured."""
    measured = Measured()
    losses: list[float] = []
    began = perf_counter()
    with record:
        for images, batch_labels in timed(training, measured, title):
            with record.step():
                losses.append(classifier.step(images, np.searchsorted(labels, batch_labels)))
            measured.images += len(images)
    measured.seconds = perf_counter() - began
    return float(np.mean(losses)), measured


def timed(batches: Batches, measured: Measured, title: str) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield every batch with a bar, and add the time that passes until it is there to `measured.waited`."""
    with batches.progress(title) as iterator:
        while True:
            asked = perf_counter()
            batch = next(iterator, None)
            measured.waited += perf_counter() - asked
            if batch is None:
                return
            yield batch


def accuracy(classifier: Classifier, test: Batches, labels: NDArray[np.int64]) -> float:
    """Return the share of the test images that `classifier` gives their own label."""
    correct = seen = 0
    for images, batch_labels in test:
        correct += classifier.correct(images, np.searchsorted(labels, batch_labels))
        seen += len(images)
    return correct / seen


Pictures: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.int64]]"
"""A batch: images and their labels."""

STEPS: Final = 6
"""Steps before the stop, and after it."""


def show_resume(job: Job, pipeline: Callable[[], Batches]) -> None:
    """Train some steps, stop, resume with a new pipeline, and print whether the losses are those of one run."""
    classifier = new_classifier(len(job.labels))
    losses, state = trained(job, classifier, pipeline(), STEPS)
    size = len(json.dumps(state))
    losses += trained(job, classifier, pipeline(), STEPS, state)[0]
    uninterrupted, _ = trained(job, new_classifier(len(job.labels)), pipeline(), 2 * STEPS)
    print(
        f"\nStopped after {STEPS} batches and resumed with a new pipeline, from a state of {size:,} bytes: "
        f"the losses are {'those' if losses == uninterrupted else 'NOT those'} of a run that was not stopped",
        flush=True,
    )


def trained(
    job: Job, classifier: Classifier, batches: Batches, steps: int, state: Mapping[str, Any] | None = None
) -> tuple[list[float], dict[str, Any]]:
    """Train so many steps, from a state on if there is one; return their losses, and the state after them."""
    labels, losses = np.array(job.labels), list[float]()
    with Loader[Pictures](batches) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for images, batch_labels in islice(chain.from_iterable(repeat(loader)), steps):
            losses.append(classifier.step(images, np.searchsorted(labels, batch_labels)))
        return losses, loader.state_dict()

"""A training that is stopped and resumes from the state of its loader, compared with one that is not stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain, islice, repeat
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asyncdata.demo.classifier import Classifier, new_classifier
from asyncdata.demo.pipelines import Batches, Job
from asyncdata.integrations.loader import Loader

__all__ = ("show_resume",)

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

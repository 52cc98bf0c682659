"""What a loader must know about Lightning, which does not inform it: found in the frames of the calling loop.

Lightning reads one batch ahead of a loader without a length, to know which batch is the last, and then saves the
loader's state: the batch that it read ahead would be lost. From a checkpoint at the end of an epoch Lightning continues
with the next epoch, and does not load the loader's state: the loader would begin with its first epoch again.
With `reload_dataloaders_every_n_epochs` Lightning begins an epoch twice, and has read ahead the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

__all__ = (
    "batches_ahead",
    "caller_of",
    "epoch_to_begin",
    "is_within_epoch",
    "reads_ahead",
    "reloaded_epoch",
    "was_last_batch",
)

PACKAGES: Final = ("pytorch_lightning", "lightning")


def batches_ahead(frame: FrameType | None) -> int:
    """Return how many batches the loop that asks for a state holds; 0 if the frame belongs to no loop of Lightning."""
    for caller in callers(frame):
        if hasattr(caller, "_data_fetcher"):
            return len(getattr(getattr(caller, "_data_fetcher"), "batches", ()))  # noqa: B009
    return 0


def reads_ahead(frame: FrameType | None) -> int:
    """Return how many batches the loop that asks for a batch reads ahead; 0 if the frame belongs to no such loop."""
    for caller in callers(frame):
        if hasattr(caller, "prefetch_batches"):
            return caller.prefetch_batches if caller.length is None else 0
    return 0


def epoch_to_begin(frame: FrameType | None) -> int | None:
    """Return the number of the epoch that Lightning's training loop begins in this frame."""
    return next((loop.epoch_progress.current.processed for loop in fit_loops(frame)), None)


def reloaded_epoch(frame: FrameType | None) -> int | None:
    """Return the number of the epoch that Lightning's training loop begins in this frame, if it reloads its loaders."""
    reloading = (loop for loop in fit_loops(frame) if loop.trainer.reload_dataloaders_every_n_epochs)
    return next((loop.epoch_progress.current.processed for loop in reloading), None)


def was_last_batch(frame: FrameType | None) -> bool:
    """Return whether Lightning's training loop in this frame had reached the last batch of an epoch.

    With `limit_train_batches` that is not the loader's last batch.
    """
    return any(loop.epoch_loop.batch_progress.is_last_batch for loop in fit_loops(frame))


def is_within_epoch(frame: FrameType | None) -> bool:
    """Return whether Lightning's training loop in this frame continues within an epoch, from a checkpoint."""
    progress = [loop.epoch_loop.batch_progress for loop in fit_loops(frame) if loop.restarting]
    return any(one.current.completed and not one.is_last_batch for one in progress)


def fit_loops(frame: FrameType | None) -> Iterator[Any]:
    """Yield the training loops of Lightning among the callers."""
    return (caller for caller in callers(frame) if hasattr(caller, "epoch_progress") and hasattr(caller, "epoch_loop"))


def caller_of(frame: FrameType | None) -> FrameType | None:
    """Return the frame that has called this one."""
    return None if frame is None else frame.f_back


def callers(frame: FrameType | None) -> Iterator[Any]:
    """Yield the objects of Lightning whose methods call, outwards from the frame to the first one outside Lightning."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES:
        yield frame.f_locals.get("self")
        frame = frame.f_back

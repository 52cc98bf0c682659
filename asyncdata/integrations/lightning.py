"""What a loader must know of Lightning, which tells it nothing: found in the frames of the loop that calls it.

Lightning reads one batch ahead of a loader without a length, to know which is the last, and saves the loader's state as
it is then: the batch would be lost. From a checkpoint of the end of an epoch it continues with the next epoch, and does
not load the loader's state: the loader would begin with its first epoch again.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

__all__ = ("batches_ahead", "epoch_to_begin", "was_last_batch")

PACKAGES: Final = ("pytorch_lightning", "lightning")


def batches_ahead(frame: FrameType | None) -> int:
    """Return how many batches the loop holds that asks for a state from this frame; 0 if none of Lightning's does."""
    for caller in callers(frame):
        if hasattr(caller, "_data_fetcher"):
            return len(getattr(getattr(caller, "_data_fetcher"), "batches", ()))  # noqa: B009
    return 0


def epoch_to_begin(frame: FrameType | None) -> int | None:
    """Return the number of the epoch for which Lightning's training loop iterates from this frame."""
    for caller in callers(frame):
        if is_fit_loop(caller):
            return caller.epoch_progress.current.processed
    return None


def was_last_batch(frame: FrameType | None) -> bool:
    """Return whether Lightning's training loop, which iterates from this frame, had come to the last batch of an epoch.

    With `limit_train_batches` that is not the last one of the loader.
    """
    return any(caller.epoch_loop.batch_progress.is_last_batch for caller in callers(frame) if is_fit_loop(caller))


def is_fit_loop(caller: Any) -> bool:
    return hasattr(caller, "epoch_progress") and hasattr(caller, "epoch_loop")


def callers(frame: FrameType | None) -> Iterator[Any]:
    """Yield the objects of Lightning whose methods call, from the frame on, up to the first frame that is another's."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PACKAGES:
        yield frame.f_locals.get("self")
        frame = frame.f_back

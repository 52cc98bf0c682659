"""Every error that asyncdata raises itself; a user's exceptions are not wrapped.

AsyncDataError
├── PlanError (ValueError)                an invalid pipeline: wrong arguments, raised where the method is called
├── StructureError (ValueError)           elements whose structures, shapes or dtypes do not fit together
├── DataLossError (ValueError)            a record or file that is corrupt or ends too early
├── ResumeError (ValueError)              a state that does not fit the pipeline or its files
├── StageError (RuntimeError)             a stage broke; the pipeline has ended
├── WorkerCrashed (RuntimeError)          an element killed the worker process that worked on it, twice
├── ClosedError (RuntimeError)            the iterator was closed, or stopped before the end of its data
├── ChannelFull (asyncio.QueueFull)       a channel has no space for the items that are sent
├── ConcurrentUseError (RuntimeError)     two tasks or threads read one iterator at once
├── DeviceNotFoundError (RuntimeError)    a device is asked for that this machine does not have
└── MissingDependencyError (ImportError)  an optional package is needed and not installed
"""

from __future__ import annotations

import errno
import os
from asyncio import QueueFull
from multiprocessing import current_process
from typing import Any

from asyncdata.redaction import redacted

__all__ = (
    "AsyncDataError",
    "ChannelFull",
    "ClosedError",
    "ConcurrentUseError",
    "DataLossError",
    "DeviceNotFoundError",
    "MissingDependencyError",
    "PlanError",
    "ResumeError",
    "StageError",
    "StructureError",
    "WorkerCrashed",
    "annotate",
    "unstarted",
)


class AsyncDataError(Exception):
    """The root of asyncdata's own errors. Their texts have no secrets.

    >>> import asyncdata as ad
    >>> try:
    ...     ad.Dataset.range(9).batch(0)
    ... except ad.AsyncDataError as error:
    ...     print(type(error).__name__, isinstance(error, ValueError))
    PlanError True
    """

    def __init__(self, *args: object, **more: Any) -> None:
        super().__init__(*[redacted(arg) if isinstance(arg, str) else arg for arg in args], **more)


class PlanError(AsyncDataError, ValueError):
    """An invalid pipeline: raised where the method is called, says what was got and how to fix it.

    >>> import asyncdata as ad
    >>> ad.Dataset.range(9).batch(0)
    Traceback (most recent call last):
    asyncdata.errors.PlanError: batch(batch_size=) must be at least 1, got 0
    """


class StructureError(AsyncDataError, ValueError):
    """Elements do not match each other or a declared signature: names the leaf, the element and what was got.

    >>> import asyncdata as ad
    >>> list(ad.Dataset.from_list([{"x": [1, 2]}, {"x": [3]}]).batch(2))
    Traceback (most recent call last):
    asyncdata.errors.StructureError: leaf ['x'] of element 1 of the batch has shape (1,), that of element 0 ...
    ...
    """


class DataLossError(AsyncDataError, ValueError):
    """A record or a file is corrupt or ends too early: names the file and the byte offset.

    >>> import asyncdata as ad, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "cut.tfrecord")
    >>> with ad.TFRecordWriter(path) as writer:
    ...     writer.write(b"a record")
    >>> _ = path.write_bytes(path.read_bytes()[:-1])
    >>> list(ad.TFRecordDataset(path))
    Traceback (most recent call last):
    asyncdata.errors.DataLossError: ...: the record at byte 0 is cut short: the file ends at byte 23...
    ...
    """


class ResumeError(AsyncDataError, ValueError):
    """A state does not fit: another plan, other files, another version. Names the node and what differs.

    >>> import asyncdata as ad
    >>> state = ad.Dataset.range(9).batch(2).iterate().state_dict()
    >>> ad.Dataset.range(8).batch(2).iterate(state=state)
    Traceback (most recent call last):
    asyncdata.errors.ResumeError: the state is of another pipeline: step 1 was range(9) when it was saved, ...
    """


class StageError(AsyncDataError, RuntimeError):
    """A stage broke in a way that no single element explains: the pipeline has ended.

    >>> import asyncdata as ad
    >>> list(ad.Dataset.range(9).filter(bool).assert_cardinality(2))
    Traceback (most recent call last):
    asyncdata.errors.StageError: assert_cardinality(2): there are more elements
    this error ended the pipeline
    """


class WorkerCrashed(AsyncDataError, RuntimeError):  # noqa: N818 - named as in the standard library
    """An element killed the worker process that worked on it, and another one that tried again: names the signal."""


class ClosedError(AsyncDataError, RuntimeError):
    """The iterator was closed, or stopped from elsewhere before the end of its data: says why.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(9).iterate() as numbers:
    ...     _ = next(numbers)
    >>> next(numbers)
    Traceback (most recent call last):
    asyncdata.errors.ClosedError: the iterator was closed; start a new one with iter(dataset)
    """


class ChannelFull(AsyncDataError, QueueFull):  # noqa: N818 - asyncio's QueueFull has no such suffix either
    """The channel is full: says how much it holds. Send the items again later.

    >>> import asyncdata as ad
    >>> channel = ad.Channel(max_items=1)
    >>> channel.send_nowait([1])
    >>> channel.send_nowait([2])
    Traceback (most recent call last):
    asyncdata.errors.ChannelFull: the channel holds 1 of 1 items, ...: send them again later, or await send()
    """


class ConcurrentUseError(AsyncDataError, RuntimeError):
    """Two tasks or threads asked one iterator for an element at the same time.

    >>> import asyncdata as ad, asyncio
    >>> async def main():
    ...     async with ad.Dataset.range(9).iterate() as numbers:
    ...         await asyncio.gather(anext(numbers), anext(numbers))
    >>> asyncio.run(main())
    Traceback (most recent call last):
    asyncdata.errors.ConcurrentUseError: two tasks or threads read one iterator at once; ...
    """


class DeviceNotFoundError(AsyncDataError, RuntimeError):
    """A device is asked for that this machine does not have: says how to continue without it."""


class MissingDependencyError(AsyncDataError, ImportError):
    """An optional package is needed and not installed: names the extra to install."""


def annotate(error: BaseException, note: str) -> None:
    """Add a note, without secrets, to an error unless it has it, even to an immutable one (a frozen dataclass)."""
    note = hidden if (hidden := redacted(note)) != note else note  # a note may be of a class of its own
    try:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
    except (AttributeError, TypeError):  # it is frozen, or its notes are not a list
        if not hasattr(error, "__notes__"):
            BaseException.__setattr__(error, "__notes__", [note])


def unstarted(processes: str, error: Exception) -> StageError:
    """Return the error for processes that could not be started."""
    refusal = StageError(f"{processes} cannot be started: {error!r}")
    refusal.__cause__ = error
    if current_process().daemon:
        annotate(
            refusal,
            "this process is a daemon, as PyTorch's DataLoader workers are, and cannot start processes: give the "
            "DataLoader num_workers=0, as the pipeline has its own workers, or omit options that ask for processes",
        )
    if any(os.strerror(number) in str(error) for number in (errno.EMFILE, errno.ENFILE)):  # an ImportError has no errno
        annotate(refusal, "allow more open files, `ulimit -n`, or use fewer processes")
    if any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EROFS)):
        annotate(refusal, "a lock between processes is a small file of /dev/shm, which must be writable and not full")
    return refusal

"""Sinks: files that are written and seen by others when they are complete, on this machine and in object stores."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from asyncdata.errors import PlanError
from asyncdata.storage.atomic_write import sync_folder
from asyncdata.storage.base import Buffer
from asyncdata.storage.local import LocalStore
from asyncdata.storage.objects import ObjectStore, Writable, in_this_process
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.registry import store_for, without_query
from asyncdata.storage.retries import explained

__all__ = ("Sink", "check_writable", "sink_for")

PART: Final = 8 << 20
"""Bytes of a part of an upload."""

AHEAD: Final = 2
"""How many parts wait to be uploaded; obstore has some more under way."""


class Sink(Protocol):
    """A file that is being written; nobody sees anything of it before it is closed. All methods block."""

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        ...

    def close(self) -> None:
        """Have others see the file, in place of another one of its name."""
        ...

    def abort(self) -> None:
        """Leave nothing of it; more than once, or after `close`, does nothing."""
        ...


def sink_for(url: str, storage: StorageOptions | None) -> Sink:
    """Return the file at a path or URL, to be written; `PlanError` where nothing can be."""
    store, path = store_for(url, None if storage is None else StorageOptions(storage.values))
    if isinstance(store, LocalStore):
        return LocalSink(path)
    if isinstance(store, ObjectStore) and not store.web:
        return ObjectSink(store, path, storage)
    raise not_written_to(url)


def check_writable(url: str, storage: StorageOptions | None) -> None:
    """Raise `PlanError` unless files can be written at a path or URL."""
    store, _ = store_for(url, storage)
    if not isinstance(store, (LocalStore, ObjectStore)) or (isinstance(store, ObjectStore) and store.web):
        raise not_written_to(url)


def not_written_to(url: str) -> PlanError:
    """Return the error for a place that cannot be written to."""
    return PlanError(f"files can be written to this machine, s3://, gs:// and az://, got {without_query(url)!r}")


class LocalSink:
    """A file of this machine: it has another name, hidden from patterns, until it is complete and on the disk."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.partial, "wb", buffering=0)  # noqa: SIM115  it is closed by `close` or `abort`

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        view = memoryview(data)
        while view:
            view = view[self.file.write(view) :]

    def close(self) -> None:
        """Give the file its name, once all of it is on the disk."""
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.partial, self.path)
        sync_folder(self.path.parent)

    def abort(self) -> None:
        """Remove what was written."""
        if not self.file.closed:
            self.file.close()
            with suppress(FileNotFoundError):
                self.partial.unlink()


class LeftError(Exception):
    """Ends an upload that is not to be completed."""


class ObjectSink:
    """An object: parts of it are uploaded by a thread as they come, and it is there when the upload is completed."""

    def __init__(self, store: ObjectStore, path: str, storage: StorageOptions | None) -> None:
        in_this_process()
        self.store = Writable(store.root, storage)
        self.url = store.url(path)
        self.path = path
        self.gathered: list[bytes] = []
        self.size = 0
        self.parts: queue.Queue[bytes | None] = queue.Queue(AHEAD)
        self.failed: Exception | None = None
        self.left = self.ended = False
        self.thread = threading.Thread(target=self.upload, name="asyncdata-upload", daemon=True)
        self.thread.start()

    def write(self, data: Buffer) -> None:
        """Append bytes; raise what the upload failed with."""
        self.gathered.append(bytes(data))
        self.size += len(self.gathered[-1])
        if self.size >= PART:
            self.hand_on()

    def hand_on(self) -> None:
        """Have what was gathered uploaded."""
        if self.failed is not None:
            raise self.failed
        part, self.gathered, self.size = b"".join(self.gathered), [], 0
        self.parts.put(part)

    def close(self) -> None:
        """Complete the upload."""
        if self.gathered:
            self.hand_on()
        self.end()
        if self.failed is not None:
            raise self.failed

    def abort(self) -> None:
        """End the upload without completing it; the store forgets its parts."""
        self.left = True
        self.end()

    def end(self) -> None:
        """Have the thread end, and wait for that."""
        if not self.ended:
            self.ended = True
            self.parts.put(None)
        self.thread.join()

    def content(self) -> Iterator[bytes]:
        """Yield the parts as they come."""
        while (part := self.parts.get()) is not None:
            if part:
                yield part
        if self.left:
            raise LeftError

    def upload(self) -> None:
        """Upload all parts; in the thread."""
        try:
            self.store.put(self.path, self.content())
        except Exception as error:  # noqa: BLE001  obstore's have no common base but this
            if not self.left:
                self.failed = explained(error, self.url)
            while not self.ended or not self.parts.empty():
                if self.parts.get() is None:
                    return

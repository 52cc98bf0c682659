"""Sinks: files on this machine and in object stores that become visible when they are complete."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from asyncdata.errors import PlanError
from asyncdata.storage.atomic_write import sync_folder
from asyncdata.storage.base import Buffer
from asyncdata.storage.local import LocalStore
from asyncdata.storage.objects import ObjectStore, Writable, check_not_forked
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.registry import store_for, without_query
from asyncdata.storage.retries import explained
from asyncdata.system.signal_handlers import start_thread

__all__ = ("Sink", "check_writable", "put_object", "sink_for")

PART: Final = 8 << 20
"""Bytes of a part of an upload."""

AHEAD: Final = 2
"""How many parts wait to be uploaded, besides those that obstore is uploading."""


class Sink(Protocol):
    """A file that is being written; it is not visible before it is closed. All methods block."""

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        ...

    def close(self) -> None:
        """Complete the file and make it visible, in place of an existing one."""
        ...

    def abort(self) -> None:
        """Remove what was written. Idempotent, and without effect after `close`."""
        ...


def sink_for(url: str, storage: StorageOptions | None) -> Sink:
    """Return a sink for the file at a path or URL; `PlanError` if it cannot be written."""
    store, path = store_for(url, None if storage is None else StorageOptions(storage.values))
    if isinstance(store, LocalStore):
        return LocalSink(path)
    if isinstance(store, ObjectStore) and not store.web:
        return ObjectSink(store, path, storage)
    raise not_writable(url)


def put_object(url: str, data: bytes) -> None:
    """Write an object by one request, in place of an existing one; `PlanError` for places that are no object store."""
    store, path = store_for(url)
    if not isinstance(store, ObjectStore) or store.web:
        raise not_writable(url)
    check_not_forked()
    try:
        writable(store.root).put(path, iter([data]))
    except Exception as error:  # noqa: BLE001  obstore's errors have no other common base
        raise explained(error, url) from None


@cache
def writable(root: str) -> Writable:
    """Return a bucket for small objects, whose connections are used again."""
    return Writable(root, None)


def check_writable(url: str, storage: StorageOptions | None) -> None:
    """Raise `PlanError` unless files can be written at a path or URL."""
    store, _ = store_for(url, storage)
    if not isinstance(store, (LocalStore, ObjectStore)) or (isinstance(store, ObjectStore) and store.web):
        raise not_writable(url)


def not_writable(url: str) -> PlanError:
    """Return the error for a place that cannot be written to."""
    return PlanError(f"files can be written to this machine, s3://, gs:// and az://, got {without_query(url)!r}")


class LocalSink:
    """A local file: until it is complete and on the disk it has another name, which patterns do not match."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.partial, "wb", buffering=0)  # noqa: SIM115  it is closed by `close` or `abort`

    def write(self, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            view = view[self.file.write(view) :]

    def close(self) -> None:
        """Flush the file to the disk and rename it to its final name."""
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.partial, self.path)
        sync_folder(self.path.parent)

    def abort(self) -> None:
        if not self.file.closed:
            self.file.close()
            with suppress(FileNotFoundError):
                self.partial.unlink()


class AbortedError(Exception):
    """Ends an upload that is aborted."""


class ObjectSink:
    """An object: a thread uploads its parts as they come, and it becomes visible when the upload is complete."""

    def __init__(self, store: ObjectStore, path: str, storage: StorageOptions | None) -> None:
        check_not_forked()
        self.store = Writable(store.root, storage)
        self.url = store.url(path)
        self.path = path
        self.gathered: list[bytes] = []
        self.size = 0
        self.parts: queue.Queue[bytes | None] = queue.Queue(AHEAD)
        self.rest = iter(self.parts.get, None)
        self.failed: Exception | None = None
        self.aborted = self.ended = False
        self.thread = threading.Thread(target=self.upload, name="asyncdata-upload", daemon=True)
        start_thread(self.thread)

    def write(self, data: Buffer) -> None:
        """Append bytes; raise the error of the upload if it has failed."""
        self.gathered.append(bytes(data))
        self.size += len(self.gathered[-1])
        if self.size >= PART:
            self.enqueue()

    def enqueue(self) -> None:
        """Queue the gathered bytes for upload."""
        if self.failed is not None:
            raise self.failed
        part, self.gathered, self.size = b"".join(self.gathered), [], 0
        self.parts.put(part)

    def close(self) -> None:
        if self.gathered:
            self.enqueue()
        self.end()
        if self.failed is not None:
            raise self.failed

    def abort(self) -> None:
        """End the upload without completing it; the store discards its parts."""
        self.aborted = True
        self.end()

    def end(self) -> None:
        """Stop the thread, and wait for it."""
        if not self.ended:
            self.parts.put(None)
            self.ended = True  # not before: Ctrl-C may come while the queue is full
        self.thread.join()

    def content(self) -> Iterator[bytes]:
        """Yield the parts as they come."""
        yield from filter(None, self.rest)
        if self.aborted:
            raise AbortedError

    def upload(self) -> None:
        """Upload all parts; in the thread."""
        try:
            self.store.put(self.path, self.content())
        except Exception as error:  # noqa: BLE001  obstore's errors have no other common base
            if not self.aborted:
                self.failed = explained(error, self.url)
            deque(self.rest, 0)

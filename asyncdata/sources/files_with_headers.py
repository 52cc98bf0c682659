"""FilesWithHeaders: files whose headers say where their elements are; each header is read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from asyncdata.errors import DataLossError
from asyncdata.sources.numbered_files import NumberedFiles
from asyncdata.storage import AnyPart, StorageOptions, open_file, without_query
from asyncdata.storage.base import Status

__all__ = ("FilesWithHeaders", "KnownFile", "check_unchanged")


@dataclass
class KnownFile:
    """What the header of a file says."""

    status: Status
    records: int = 0
    """How many elements are complete."""
    error: Exception | None = None
    """The error after them, if there is one."""

    @property
    def count(self) -> int:
        """How many elements there are."""
        return self.records + (self.error is not None)


Known = TypeVar("Known", bound=KnownFile)


class FilesWithHeaders(NumberedFiles, Generic[Known]):
    """Files of one format with headers."""

    known_file: type[Known]
    """What is known of a file."""

    def __init__(self, storage: StorageOptions | None = None) -> None:
        self.storage = storage
        self.known: dict[str, Known] = {}

    def of(self, path: str) -> Known:
        """Return what is known of a file."""
        if path not in self.known:
            try:
                with open_file(path, self.storage) as file:
                    self.known[path] = self.inspect(file, path)
            except (OSError, DataLossError) as error:
                self.known[path] = self.known_file(Status(-1, 0), error=error.with_traceback(None))
        return self.known[path]

    def inspect(self, file: AnyPart, path: str) -> Known:
        """Read the header of a file; `DataLossError` if it has no elements."""
        raise NotImplementedError

    def count(self, path: str) -> int:
        return self.of(path).count

    def size(self, path: str) -> int:
        return self.of(path).status.size

    def is_broken(self, path: str) -> bool:
        return self.of(path).error is not None


def check_unchanged(path: str, file: AnyPart, status: Status | None) -> None:
    """Raise unless a file is as it was."""
    if file.status() != status:
        raise DataLossError(f"{without_query(path)}: the file has changed since it was first read")

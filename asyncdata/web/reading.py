"""How far the readers of a durable channel have come, and how stale the items were, in a file for its writer."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, final

from asyncdata.formats.tfrecord import masked_crc
from asyncdata.storage import open_regular, read_regular
from asyncdata.web.folder import ChannelFolder, OffsetFile
from asyncdata.web.lag import Staleness

__all__ = ("NewestVersion", "Reading", "ReadingFile")

FORM: Final = struct.Struct("<QQQQQ")
LEAST_VERSION: Final = -(1 << 63)


class Reading(NamedTuple):
    """How far readers have come."""

    offset: int = 0
    """Up to which the last reader has read."""
    items: int = 0
    """How many items all readers have read together."""
    versioned: int = 0
    """How many of them had a version."""
    behind: int = 0
    """How many versions these were behind the newest one, together."""
    most: int = 0
    """How many one of them was behind at most."""


@final
class NewestVersion:
    """A file with the newest version of a model or policy that the writer was told."""

    def __init__(self, folder: ChannelFolder) -> None:
        self.file = OffsetFile(folder.path / "newest-version")

    def read(self) -> int | None:
        """Return the version, if there is one."""
        found = self.file.read()
        return None if found is None else found + LEAST_VERSION

    def write(self, version: int) -> None:
        """Write another version."""
        self.file.write(version - LEAST_VERSION)


@final
class ReadingFile:
    """The file, which a reader writes behind each block that it gives."""

    def __init__(self, folder: ChannelFolder, number: int = 0) -> None:
        self.folder = folder
        self.number = number
        """How many items were read when the file was last written, as the reader counts them."""
        self.path = folder.path / "reading"
        self.newest = NewestVersion(folder)
        self.known = Reading()
        self.file = -1

    def read(self) -> Reading:
        """Return what it says; nothing if it is not there or damaged."""
        for _ in range(3):  # it may be written at this moment
            try:
                data = read_regular(self.path)
            except FileNotFoundError:
                break
            if len(data) == FORM.size + 4 and masked_crc(data[:-4]).to_bytes(4, "little") == data[-4:]:
                return Reading(*FORM.unpack(data[:-4]))
        return Reading()

    def add(self, offset: int, number: int, versions: Sequence[tuple[int, int]]) -> None:
        """Write that a reader has come to an offset and to an item, and how many had which versions; wake who waits."""
        with suppress(OSError):  # the disk is full
            if self.file < 0:
                self.known = self.read()
                self.file = open_regular(self.path, os.O_WRONLY | os.O_CREAT)
            _, items, versioned, behind, most = self.known
            staleness = Staleness(None, versioned, behind, most)
            if versions:
                staleness.tell(self.newest.read())
            for version, count in versions:
                staleness.add(version, count)
            self.known, self.number = (
                Reading(offset, items + number - self.number, staleness.count, staleness.total, staleness.most),
                number,
            )
            data = FORM.pack(*self.known)
            os.pwrite(self.file, data + masked_crc(data).to_bytes(4, "little"), 0)
            self.folder.wake_producers()

    def close(self) -> None:
        """Close the file."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

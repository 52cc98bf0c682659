"""KeyIndex: finds the rows of a key by its hash, in memory or, if there are many, in a memory-mapped file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from asyncdata.storage import cache_folder

__all__ = ("KeyIndex", "KeyIndexWriter", "key_hash")

PART: Final = 1 << 22
"""How many keys are sorted at once, in 64 MiB; if there are more, the index is in a file."""

ENTRY: Final = np.dtype([("hash", "<u8"), ("row", "<i8")])

PIECE: Final = 1 << 16
"""How many entries are looked at together where all are read in order."""


def key_hash(key: bytes) -> int:
    """Return a hash of a key, of 64 bits, the same on every machine."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


class KeyIndex:
    """The hashes of keys in order, and the row of each."""

    def __init__(self, hashes: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64]) -> None:
        self.hashes = hashes
        self.rows = rows
        digest = blake2b(digest_size=8)
        for start in range(0, len(rows), PART):
            digest.update(hashes[start : start + PART].tobytes())
            digest.update(rows[start : start + PART].tobytes())
        self.digest = f"{len(rows)} {digest.hexdigest()}"
        """Which keys are in which rows, as a state has it."""

    def find(self, hashes: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
        """Return the rows in which there may be keys with these hashes, and for each row which of the hashes it has."""
        wanted = np.array(hashes, np.uint64)
        first = np.searchsorted(self.hashes, wanted, "left")
        counts = np.searchsorted(self.hashes, wanted, "right") - first
        owners = np.repeat(np.arange(len(wanted)), counts)
        before = np.cumsum(counts) - counts
        return self.rows[first[owners] + np.arange(len(owners)) - before[owners]], owners

    def alike(self) -> Iterable[npt.NDArray[np.int64]]:
        """Yield the rows of each hash that several rows have: their keys may be equal."""
        for start in range(0, len(self.hashes), PIECE):
            some = self.hashes[start : start + PIECE + 1]
            same = np.flatnonzero(some[1:] == some[:-1])
            for value in np.unique(some[same]).tolist():
                first, last = (int(np.searchsorted(self.hashes, np.uint64(value), side)) for side in ("left", "right"))
                if first >= start or start == 0:
                    yield self.rows[first:last]


class KeyIndexWriter:
    """Takes the hashes of keys row by row, and sorts them: many of them by parts, each of which fits in memory."""

    def __init__(self, count: int) -> None:
        self.parts = -(-count // PART) or 1
        self.files = [spill_file() for _ in range(self.parts)] if self.parts > 1 else []
        self.held: list[npt.NDArray[Any]] = []
        self.size = self.holding = 0

    def add(self, hashes: Sequence[int]) -> None:
        """Take the hashes of the next rows."""
        entries = np.empty(len(hashes), ENTRY)
        entries["hash"] = hashes
        entries["row"] = np.arange(self.size, self.size + len(hashes))
        self.held.append(entries)
        self.size += len(entries)
        self.holding += len(entries)
        if self.files and self.holding >= PART:
            self.spill()

    def spill(self) -> None:
        """Write what is held to the files of its parts: those of consecutive hashes."""
        entries, self.held, self.holding = np.concatenate(self.held), [], 0
        parts = (entries["hash"] >> np.uint64(32)) * np.uint64(self.parts) >> np.uint64(32)
        for number, file in enumerate(self.files):
            file.write(entries[parts == number].tobytes())

    def finish(self) -> KeyIndex:
        """Return the index."""
        self.held.append(np.empty(0, ENTRY))
        if not self.files:
            return KeyIndex(*in_order(np.concatenate(self.held)))
        self.spill()
        with spill_file() as file:
            file.truncate(ENTRY.itemsize * self.size)
            hashes = np.memmap(file, np.uint64, "r+", 0, self.size)
            rows = np.memmap(file, np.int64, "r+", 8 * self.size, self.size)
        start = 0
        for part in self.files:
            part.seek(0)
            found = in_order(np.frombuffer(part.read(), ENTRY))
            part.close()
            stop = start + len(found[0])
            hashes[start:stop], rows[start:stop] = found
            start = stop
        return KeyIndex(hashes, rows)

    def close(self) -> None:
        """Close the files of the parts."""
        for file in self.files:
            file.close()


def in_order(entries: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the hashes in order, and their rows; those of equal hashes are in order too."""
    order = np.argsort(entries["hash"], kind="stable")
    return entries["hash"][order], entries["row"][order]


def spill_file() -> IO[bytes]:
    """Return a new file without a name, where other indices are stored if that is possible."""
    with suppress(OSError, RuntimeError):
        folder: Path = cache_folder() / "keys"
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)
    return tempfile.TemporaryFile()

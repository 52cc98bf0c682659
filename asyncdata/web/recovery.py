"""Recovery of a durable channel: where its log ends, and which idempotency keys it knows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from asyncdata.errors import DataLossError
from asyncdata.storage import open_regular, read_regular
from asyncdata.web.folder import ChannelFolder
from asyncdata.web.idempotency import digest_of_body, digest_of_key
from asyncdata.web.record import DamagedFrameError, Frame, Kind, Record, frame_of, keys_in

__all__ = ("Recovered", "recover")

KEYS: Final = (Kind.KEYS, Kind.KEYS_ALONE)


@dataclass
class Recovered:
    """Where a log continues: at `end`, in the segment that begins at `segment`, or in a new one if that is -1."""

    end: int = 0
    segment: int = -1
    known: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """The digests of bodies, by those of their keys."""
    ended: bool = False


def recover(folder: ChannelFolder, most_keys: int) -> Recovered:
    """Repair the folder after a writer was killed, and return where the log continues.

    Records that were written completely stay, even if they were not acknowledged: a client that repeats one uses its
    key. Records that were written in part are removed. Damage to acknowledged records stays, and readers report it.
    """
    found, committed = Recovered(), folder.committed.read() or 0
    starts = folder.segments()
    if not starts:
        found.end = committed
    else:
        learn_keys(folder, starts, found)
        find_end(folder, starts[-1], committed, found)
    while len(found.known) > most_keys:
        del found.known[next(iter(found.known))]
    folder.committed.write(found.end)
    folder.wake_all()
    return found


def find_end(folder: ChannelFolder, start: int, committed: int, found: Recovered) -> None:
    """Find where the last segment ends, and cut off what was written in part."""
    data = read_regular(folder.segment(start))
    good = complete_until(data, committed - start)
    if good < committed - start:  # damaged, and perhaps truncated: offsets are never used twice
        found.end = max(committed, start + len(data))
        return
    file = open_regular(folder.segment(start), os.O_WRONLY)
    try:
        if good < len(data):
            os.ftruncate(file, good)
        os.fdatasync(file)
    finally:
        os.close(file)
    found.end, found.segment = start + good, start


def complete_until(data: bytes, committed: int) -> int:
    """Return where the complete frames end; a frame before `committed` may be damaged."""
    at = 0
    try:
        while isinstance(one := frame_of(data, at, "it"), Frame):
            if isinstance(one.record, DataLossError) and one.end > committed:
                break
            at = one.end
    except DamagedFrameError:
        return at
    return at


def learn_keys(folder: ChannelFolder, starts: list[int], found: Recovered) -> None:
    """Find the keys that were stored: the first record of a segment has those before it."""
    records: list[list[KnownRecord]] = []
    for start in reversed(starts):
        records.append(records_of(read_regular(folder.segment(start))))
        if records[-1] and records[-1][0].kind in KEYS:
            break
    for record in (one for segment in reversed(records) for one in segment):
        found.known.update(record.keys)
        found.ended = found.ended or record.kind == Kind.END


class KnownRecord(NamedTuple):
    """What is to be known of a record: the digests of bodies, by those of their keys."""

    kind: Kind
    keys: dict[bytes, bytes]


def records_of(data: bytes) -> list[KnownRecord]:
    """Return the complete records of a segment."""
    found, at = list[KnownRecord](), 0
    try:
        while isinstance(one := frame_of(data, at, "it"), Frame):
            at = one.end
            if isinstance(one.record, Record):
                found.append(KnownRecord(one.record.kind, keys_of(one.record)))
    except DamagedFrameError:
        return found
    return found


def keys_of(record: Record) -> dict[bytes, bytes]:
    """Return the digests of the bodies in a record, by those of their keys."""
    if record.kind in KEYS:
        return dict(keys_in(record))
    key = record.key.decode()
    return {digest_of_key(key): digest_of_body(record.form, record.body)} if key else {}

"""Shards that grow from a durable channel: each written whole, each item in one of them, wherever it is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.formats.tfrecord import frame
from asyncdata.iterator import DatasetIterator
from asyncdata.runtime.optional_packages import require
from asyncdata.storage.atomic_write import write_whole
from asyncdata.web.durable import trim

__all__ = ("FORMATS", "Shards")

FORMATS: Final = ("jsonl", "tfrecord")


class Shards:
    """The shards in a folder, and how far they have come in the channel that lies in it.

    A shard and then the place behind it are written. Whoever is killed in between writes the shard once more.
    """

    def __init__(self, folder: Path, form: str, items: int, seconds: float) -> None:
        self.folder = folder
        self.form = form
        self.items = items
        self.seconds = seconds
        self.spool = folder / ".spool"
        self.progress = folder / ".spool.json"
        folder.mkdir(parents=True, exist_ok=True)
        saved = self.read_progress()
        if saved.get("format", form) != form:
            raise PlanError(f"{folder} has shards of {saved['format']}: give that format, or another folder")
        self.number: int = saved.get("shards", 0)
        self.state: dict[str, Any] | None = saved.get("state")

    def read_progress(self) -> dict[str, Any]:
        """Return what the last shard left."""
        try:
            return json.loads(self.progress.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}

    def batches(self, follow: bool) -> Dataset[Any]:
        """Return the items of each shard: so many, or what came in so many seconds."""
        items = Dataset.from_channel(self.spool, follow=follow).map(partial(encoded, form=self.form))
        return items.batch(self.items, within=self.seconds)

    def write(self, batches: DatasetIterator[Any]) -> None:
        """Write a shard of each batch, and let go of what it was made of."""
        for batch in batches:
            self.state = batches.state_dict()
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            self.write_shard(batch, self.folder / f"{self.number:06}-{stamp}.{self.form}")
            self.number += 1
            saved = {"format": self.form, "shards": self.number, "state": self.state}
            write_whole(self.progress, json.dumps(saved).encode(), durable=True)
            trim(self.spool, self.state)

    def write_shard(self, records: Iterable[bytes], path: Path) -> None:
        """Write a shard in place of one with its number, which somebody wrote who was killed before he could say so."""
        content = b"".join([frame(record) if self.form == "tfrecord" else record + b"\n" for record in records])
        for left in self.folder.glob(f"{self.number:06}-*"):
            left.unlink()
        write_whole(path, content, durable=True)


def encoded(item: Any, form: str) -> bytes:
    """Return an item as a record: what is no bytes as JSON, bytes as they are or, in lines, as a string of base64."""
    if form == "tfrecord" and isinstance(item, bytes):
        return item
    return require("msgspec.json", "asyncdata ingest", "'asyncdata[web]'").encode(item)

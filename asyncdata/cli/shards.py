"""Shards written from a durable channel: each is complete, and each item is in one of them, even after a kill."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.formats.tfrecord import frame
from asyncdata.iterator import DatasetIterator
from asyncdata.runtime.json_text import parse_json
from asyncdata.storage.atomic_write import write_atomically
from asyncdata.storage.sinks import check_writable, sink_for
from asyncdata.system.optional_packages import require
from asyncdata.web.channel_writers import DiskWriter, Payload
from asyncdata.web.decoding import BodyError, format_of
from asyncdata.web.durable import DurableChannel, trim

__all__ = ("FORMATS", "Shards")

FORMATS: Final = ("jsonl", "tfrecord")


class Shards:
    """The shards in a folder or bucket, and the position up to which a channel on this machine is in them.

    First the name of a shard is stored, then the shard is written, and then the position after it is stored. A process
    that was killed in between writes the shard again, under the same name.
    """

    def __init__(self, to: str, form: str, items: int, seconds: float, spool: Path | None = None) -> None:
        check_writable(to, None)
        if spool is None and "://" in to:
            raise PlanError(f"--spool must name a folder of this machine, for items that are not yet in {to}")
        self.to = to.rstrip("/")
        self.form = form
        self.items = items
        self.seconds = seconds
        self.spool = Path(to, ".spool") if spool is None else spool
        self.progress = self.spool.with_name(f"{self.spool.name}.json")
        self.spool.parent.mkdir(parents=True, exist_ok=True)
        saved = self.read_progress()
        if saved.get("format", form) != form:
            raise PlanError(f"{to} has shards of {saved['format']}: give --format {saved['format']}, or another folder")
        self.number: int = saved.get("shards", 0)
        self.state: dict[str, Any] | None = saved.get("state")
        self.name: str | None = saved.get("next")
        """The name of a shard that was begun."""

    def read_progress(self) -> dict[str, Any]:
        try:
            return parse_json(self.progress.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}

    def write_progress(self) -> None:
        """Store which shards there are, and which one is begun."""
        saved = {"format": self.form, "shards": self.number, "state": self.state, "next": self.name}
        write_atomically(self.progress, json.dumps(saved).encode(), durable=True)

    def batches(self, follow: bool) -> Dataset[Any]:
        """Return the items of each shard: at most `items` of them, or those that came in `seconds`."""
        items = Dataset.from_channel(self.spool, follow=follow).map(partial(encoded, form=self.form))
        return items.batch(self.items, within=self.seconds)

    def write(self, batches: DatasetIterator[Any]) -> None:
        """Write a shard from each batch, and then trim the channel."""
        for batch in batches:
            if self.name is None:
                self.name = f"{self.number:06}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.{self.form}"
                self.write_progress()
            self.write_shard(batch, f"{self.to}/{self.name}")
            self.number, self.name, self.state = self.number + 1, None, batches.state_dict()
            self.write_progress()
            trim(self.spool, self.state)

    def writer(self, channel: DurableChannel) -> ShardItemWriter:
        """Return what puts requests into the channel."""
        return ShardItemWriter(channel, self.form)

    def write_shard(self, records: Iterable[bytes], url: str) -> None:
        """Write a shard, which becomes visible when it is complete."""
        sink = sink_for(url, None)
        try:
            sink.write(b"".join([frame(one) if self.form == "tfrecord" else one + b"\n" for one in records]))
            sink.close()
        except BaseException:
            sink.abort()
            raise


@final
class ShardItemWriter:
    """Puts requests into a durable channel, and refuses items that no shard could hold."""

    def __init__(self, channel: DurableChannel, form: str) -> None:
        self.disk = DiskWriter(channel)
        self.form = form

    async def put(self, payload: Payload) -> bool:
        if format_of(payload.content_type) == "msgpack":  # JSON holds what came as JSON
            for item in payload.items:
                self.check(item)
        return await self.disk.put(payload)

    def check(self, item: Any) -> None:
        """Raise if an item cannot be written."""
        try:
            if not isinstance(item, bytes):
                json.dumps(item, allow_nan=False, default=other)
            encoded(item, self.form)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BodyError(400, f"the shards are JSON, which cannot hold an item: {error}") from None


def other(value: object) -> str:
    """Accept the values that msgspec writes into JSON as text."""
    if isinstance(value, (bytes, datetime)):
        return ""
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def encoded(item: Any, form: str) -> bytes:
    """Return an item as a record: bytes as they are (in lines of JSON as base64), anything else as JSON."""
    if form == "tfrecord" and isinstance(item, bytes):
        return item
    return require("msgspec.json", "asyncdata ingest", "'asyncdata[web]'").encode(item)

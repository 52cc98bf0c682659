"""The shards of `asyncdata ingest` go into a bucket, and a shard that was begun is written again by its name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import asyncdata as ad
from asyncdata.cli.shards import Shards
from tests.remote.conftest import OPTIONS, Bucket

pytestmark = pytest.mark.remote

pytest.importorskip("msgspec")


def send(path: Path, count: int) -> None:
    async def body() -> None:
        async with ad.DurableChannel(path) as channel:
            for number in range(count):
                await channel.send(b"%d" % number, content_type="application/json")

    asyncio.run(body())


def test_shards_in_a_bucket(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**OPTIONS, "endpoint_url": bucket.options["endpoint"]}.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    spool = tmp_path / "spool"
    shards = Shards(f"{bucket.url}/shards", "jsonl", 3, 60, spool)
    send(spool, 7)
    shards.name = "000000-20200101-000000.jsonl"
    shards.write_progress()
    bucket.put(f"shards/{shards.name}", b"half of it")
    shards = Shards(f"{bucket.url}/shards", "jsonl", 3, 60, spool)
    with shards.batches(follow=False).iterate() as batches:
        shards.write(batches)
    found = ad.Dataset.list_files(f"{bucket.url}/shards/*", shuffle=False, storage_options=bucket.options)
    assert len(list(found)) == 3
    assert list(ad.JsonLinesDataset(found, storage_options=bucket.options)) == [*range(7)]
    assert {path.name for path in tmp_path.iterdir()} == {"spool", "spool.json"}

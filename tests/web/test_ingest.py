"""What is posted to a real server comes out of the pipeline, and what is refused says why."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web import ingest_app

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402

NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def test_ndjson_into_batches() -> None:
    channel = ad.Channel()
    batches = ad.Dataset.from_channel(channel).batch(64)
    with ThreadPoolExecutor(1) as pool, served(ingest_app(channel)) as url, httpx.Client(base_url=url) as client:
        training = pool.submit(list, batches)
        for start in range(0, 1000, 100):
            reply = client.post("/ingest", content=lines(range(start, start + 100)), headers=NDJSON)
            assert (reply.status_code, reply.json()) == (200, {"accepted": 100})
        client.close()
    assert [x for batch in training.result() for x in batch] == list(range(1000))

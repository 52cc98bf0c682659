"""Whom ingest_app serves: this machine alone, or whom `authenticate` admits."""

from __future__ import annotations

import json
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web.ingest import Ingest, Limits


async def post(ingest: Ingest, client: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    """The status and the reply of a request with one item."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"1\n", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"content-type": "application/octet-stream"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    await ingest({"headers": pairs, "client": client}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


LIMITS = Limits(1 << 20, 1 << 20, 30.0)


@pytest.mark.parametrize(
    ("client", "status"),
    [(("127.0.0.1", 1), 200), (("::1", 1), 200), (None, 200), (("192.0.2.1", 1), 403), (("example", 1), 403)],
)
async def test_without_authentication_only_this_machine_is_served(client: Any, status: int) -> None:
    channel = ad.Channel()
    assert (await post(Ingest(channel, None, LIMITS), client))[0] == status
    assert channel.stats()["items"] == (status == 200)


async def test_whoever_is_authenticated_is_served() -> None:
    ingest = Ingest(ad.Channel(), None, LIMITS, lambda headers: headers.get("authorization") == "Bearer x")
    assert (await post(ingest, ("192.0.2.1", 1), authorization="Bearer x"))[0] == 200
    assert (await post(ingest, ("127.0.0.1", 1)))[0] == 401


async def test_a_length_that_is_no_number_is_a_bad_request() -> None:
    status, reply = await post(Ingest(ad.Channel(), None, LIMITS), None, content_length="many")
    assert (status, "Content-Length" in reply["error"]) == (400, True)

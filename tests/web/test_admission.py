"""Whom ingest_app serves: this machine alone, or whom `authenticate` admits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web.channel_writers import MemoryWriter
from asyncdata.web.http import Ingest, Limits
from asyncdata.web.monitoring import Metrics


async def post(
    ingest: Ingest, client: Any, server: Any = None, more: Sequence[tuple[bytes, bytes]] = (), **headers: str
) -> tuple[int, dict[str, Any]]:
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
    await ingest({"headers": [*pairs, *more], "client": client, "server": server}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def ingest_into(channel: ad.Channel, authenticate: Any = None) -> Ingest:
    return Ingest(MemoryWriter(channel), None, Limits(1 << 20, 1 << 20, 30.0), authenticate)


@pytest.mark.parametrize(
    ("client", "status"),
    [(("127.0.0.1", 1), 200), (("::1", 1), 200), (None, 200), (("192.0.2.1", 1), 403), (("example", 1), 403)],
)
async def test_without_authentication_only_this_machine_is_served(client: Any, status: int) -> None:
    channel = ad.Channel()
    assert (await post(ingest_into(channel), client))[0] == status
    assert channel.stats()["items"] == (status == 200)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200),
        ("http://127.0.0.1", 200),
        ("http://[::1]:80", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
        ("http://[::1", 403),
        ("http://localhost]", 403),
    ],
)
async def test_a_page_of_another_host_is_refused(origin: str, status: int) -> None:
    assert (await post(ingest_into(ad.Channel()), ("127.0.0.1", 1), origin=origin))[0] == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("evil.example:8000", 403),
        ("", 403),
        ("[", 403),
        ("[::1", 403),
        ("127.0.0.1]", 403),
    ],
)
async def test_a_name_of_another_host_that_resolves_to_this_machine_is_refused(host: str, status: int) -> None:
    ingest = ingest_into(ad.Channel())
    assert (await post(ingest, ("127.0.0.1", 1), host=host))[0] == status
    assert (await post(ingest, None, host=host))[0] == 200  # no browser connects to a local socket
    assert await metrics(ingest, ("127.0.0.1", 1), host) == status


async def metrics(ingest: Ingest, client: Any, host: str) -> int:
    """The status of the reply to a request for the metrics."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    page = Metrics(ad.Channel(), ingest, None)
    await page({"headers": [(b"host", host.encode())], "client": client}, nothing, send)
    return sent[0]["status"]


async def nothing() -> Any:
    raise AssertionError


async def test_a_client_without_an_address_is_local_only_at_a_local_socket() -> None:
    ingest = ingest_into(ad.Channel())
    assert (await post(ingest, None, server=("/run/service.sock", None)))[0] == 200
    assert (await post(ingest, None, server=("192.0.2.1", 8000)))[0] == 403


@pytest.mark.parametrize(("second", "status"), [("gzip", 415), ("identity", 400)])
async def test_of_two_headers_of_one_name_none_is_overlooked(second: str, status: int) -> None:
    more = [(b"content-encoding", b"gzip"), (b"content-encoding", second.encode())]
    assert (await post(ingest_into(ad.Channel()), None, more=more))[0] == status
    more = [(b"origin", b"https://evil.example"), (b"origin", b"http://localhost")]
    assert (await post(ingest_into(ad.Channel()), ("127.0.0.1", 1), more=more))[0] == 403


async def test_values_of_one_name_reach_authentication_together() -> None:
    seen: list[Any] = []
    more = [(b"Cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-id", b"1"), (b"X-ID", b"2")]
    await post(ingest_into(ad.Channel(), lambda headers: seen.append(headers) or True), None, more=more)
    assert (seen[0]["cookie"], seen[0]["x-id"]) == ("a=1; b=2", "1, 2")


async def test_whoever_is_authenticated_is_served() -> None:
    ingest = ingest_into(ad.Channel(), lambda headers: headers.get("authorization") == "Bearer x")
    assert (await post(ingest, ("192.0.2.1", 1), authorization="Bearer x"))[0] == 200
    assert (await post(ingest, ("127.0.0.1", 1)))[0] == 401


async def test_authentication_may_be_awaited() -> None:
    async def authenticate(headers: Any) -> bool:
        return headers.get("authorization") == "Bearer x"

    ingest = ingest_into(ad.Channel(), authenticate)
    assert (await post(ingest, ("192.0.2.1", 1), authorization="Bearer x"))[0] == 200
    assert (await post(ingest, ("127.0.0.1", 1)))[0] == 401


@pytest.mark.parametrize(
    "headers", [{"content_length": "many"}, {"content_length": "9" * 5000}, {"idempotency_key": ""}]
)
async def test_a_header_that_makes_no_sense_is_a_bad_request(headers: dict[str, str]) -> None:
    status, reply = await post(ingest_into(ad.Channel()), None, **headers)
    assert (status, next(iter(headers)).replace("_", "-") in reply["error"].lower()) == (400, True)

"""Admissions by HTTP: producers elsewhere are admitted as those of the process are, and each lease is counted once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import virtual_time
from asyncdata.web import ingest_app
from asyncdata.web.admitting import Admit
from asyncdata.web.channel_writers import writer_of
from asyncdata.web.decoding import BodyError
from asyncdata.web.http import Ingest, Limits
from asyncdata.web.leases import Leases

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402

Make = Any
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture(params=["Channel", "DurableChannel"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Make a channel with a limit."""
    if request.param == "Channel":
        return lambda most: ad.Channel(max_lag=most)
    return lambda most: ad.DurableChannel(tmp_path / "spool", max_lag=most)


class Producer:
    """A client that asks, sends and gives up."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def ask(self, version: int = 1, wait: float = 0) -> Any:
        return self.client.post("/admit", params={"version": version, "wait": wait})

    def admitted(self, version: int = 1, wait: float = 0) -> str:
        reply = self.ask(version, wait)
        assert reply.status_code == 200, reply.text
        return reply.json()["admission"]

    def send(self, body: bytes, admission: str, key: str | None = None, **query: int) -> Any:
        headers = {**BYTES, "Admission": admission} | ({} if key is None else {"Idempotency-Key": key})
        return self.client.post("/ingest", content=body, headers=headers, params=query)

    def release(self, admission: str) -> bool:
        return self.client.delete(f"/admit/{admission}").json()["released"]

    def counts(self) -> dict[str, float]:
        return counts_of(self.client)


def counts_of(client: Any) -> dict[str, float]:
    """The numbers in the metrics of a service."""
    lines = [line.split() for line in client.get("/metrics").text.splitlines() if line[0] != "#"]
    return {name.removeprefix("asyncdata_"): float(value) for name, value in lines}


@contextmanager
def producer_for(channel: Any, **how: Any) -> Generator[Producer]:
    with served(ingest_app(channel, **how)) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield Producer(client)


def reading(channel: Any) -> Any:
    return ad.Dataset.from_channel(channel if isinstance(channel, ad.Channel) else channel.path).prefetch(1).iterate()


def test_a_producer_asks_sends_and_is_counted_once(make: Make) -> None:
    channel = make(0)
    with producer_for(channel) as producer, reading(channel) as items:
        reply = producer.ask(7)
        assert reply.json() == {"admission": reply.json()["admission"], "version": 7, "seconds": 60}
        first = reply.json()["admission"]
        refused = producer.ask()
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert producer.send(b"1", first, "a").json() == {"accepted": 1}
        assert producer.send(b"1", first, "a").json() == {"accepted": 1, "duplicate": True}
        assert producer.send(b"2", first).status_code == 409
        assert not producer.release(first)
        assert next(items) == b"1"
        second = producer.admitted(8, wait=30)  # a DurableChannel has to be told by its reader
        assert producer.send(b"1", second, "a").json()["duplicate"]  # ends the second, with which nothing was sent
        third = producer.admitted(9, wait=30)
        counts = producer.counts()
        assert (counts["channel_working"], counts["ingest_admissions_total"]) == (1, 3)
        assert counts["ingest_admissions_expired_total"] == 0
        assert producer.release(third)
        assert not producer.release(third)
        assert producer.counts()["channel_working"] == 0
        assert producer.counts()["channel_max_staleness"] == 0


def test_a_lease_that_is_not_used_ends_and_makes_room_for_one_who_waits(make: Make) -> None:
    with producer_for(make(0), admission_seconds=0.2) as producer:
        first = producer.admitted()
        producer.admitted(wait=30)
        assert producer.send(b"late", first).status_code == 409
        assert producer.send(b"late", first, version=3).status_code == 409
        counts = producer.counts()
        assert counts["ingest_admissions_expired_total"] >= 1
        assert counts["ingest_items_total"] == 0


def test_a_lease_is_renewed_by_each_request_and_expires_once() -> None:
    async def body() -> None:
        channel, leases = ad.Channel(max_lag=1), Leases(10)
        first, second = [leases.give(await channel.admit(version)) for version in (1, 2)]
        with pytest.raises(BodyError), leases.using(first, None):
            await asyncio.sleep(25)  # a slow body
            raise BodyError(408, "")
        assert (leases.expired, channel.stats()["working"]) == (1, 1)  # the second
        await asyncio.sleep(9)
        with leases.using(first, 1) as one, leases.using(first, 1) as other:
            assert one is other
            await asyncio.sleep(11)
            channel.send_nowait([1], admission=one)
        with leases.using(second, None) as gone, pytest.raises(ad.PlanError, match="was used or released"):
            channel.send_nowait([2], admission=gone)
        await asyncio.sleep(100)
        assert (leases.expired, leases.given, leases.held, channel.stats()["working"]) == (1, 2, {}, 0)
        leases.give(await channel.admit(3))
        leases.end_all()
        assert (leases.expired, channel.stats()["working"]) == (1, 0)

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(body())


def test_a_request_that_is_refused_keeps_its_admission(make: Make) -> None:
    with producer_for(make(0), max_body_bytes=9) as producer:
        mine = producer.admitted(5)
        assert producer.send(b"too many bytes", mine).status_code == 413
        assert producer.send(b"x", mine, version=6).status_code == 400
        assert producer.counts()["channel_working"] == 1
        assert producer.send(b"x", mine, version=5).status_code == 200


def test_who_waits_is_admitted_when_another_one_gives_up(make: Make) -> None:
    with producer_for(make(0)) as producer, httpx.Client(base_url=producer.client.base_url, timeout=120) as client:
        first = producer.admitted()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(Producer(client).admitted, 1, 30)
            assert producer.release(first)
            assert producer.release(waiting.result())
        assert producer.counts()["channel_working"] == 0


async def test_one_who_leaves_while_it_waits_holds_up_nobody(make: Make) -> None:
    channel = make(0)
    leaves, told = asyncio.Event(), list[Any]()

    async def receive() -> Any:
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        told.append(message)

    ingest = Ingest(writer_of(channel), None, Limits(1, 1, 1.0))
    scope = {"method": "POST", "query_string": b"version=1&wait=30", "headers": [], "client": ("127.0.0.1", 1)}
    async with channel:
        held = await channel.admit(1)
        leaving = asyncio.ensure_future(Admit(channel, ingest)(scope, receive, send))
        await asyncio.sleep(0)
        behind = asyncio.ensure_future(channel.admit(1).__aenter__())
        await asyncio.sleep(0)
        leaves.set()
        await leaving
        assert told[0]["status"] == 429
        held.release()
        (await behind).release()
        assert (ingest.leases.given, channel.stats()["working"]) == (0, 0)


def check_sixty(produce: Callable[[int], Coroutine[Any, Any, None]], items: Iterator[Any]) -> None:
    """Let six producers send ten items each, named by both numbers, and check that each comes once."""

    async def produce_all() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(produce(number))

    thread = threading.Thread(target=asyncio.run, args=(produce_all(),))
    thread.start()
    found = sorted(next(items).decode() for _ in range(60))
    thread.join()
    assert found == sorted(f"{number} {turn}" for number in range(6) for turn in range(10))


def test_many_producers_who_ask_give_up_and_send_twice_have_exact_books(make: Make) -> None:
    channel = make(4)
    with producer_for(channel) as producer, reading(channel) as items:
        url = producer.client.base_url

        async def produce(number: int) -> None:
            async with httpx.AsyncClient(base_url=url, timeout=120) as client:
                for turn in range(10):
                    reply = await client.post("/admit?version=0&wait=30")
                    if (number + turn) % 5 == 0:
                        await client.delete(f"/admit/{reply.json()['admission']}")
                        reply = await client.post("/admit?version=0&wait=30")
                    told = {**BYTES, "Admission": reply.json()["admission"], "Idempotency-Key": f"{number} {turn}"}
                    for _ in range(2):
                        sent = await client.post("/ingest", content=f"{number} {turn}", headers=told)
                        assert sent.status_code == 200, sent.text

        check_sixty(produce, items)
        counts = producer.counts()
        assert (counts["ingest_admissions_total"], counts["ingest_admissions_expired_total"]) == (72, 0)
        assert (counts["channel_working"], counts["ingest_items_total"], counts["ingest_duplicates_total"]) == (
            0,
            60,
            60,
        )


@pytest.mark.parametrize(("status", "text"), [(401, "who are you?"), (500, "Internal Server Error")])
def test_errors_of_authenticate_are_answered_as_elsewhere(status: int, text: str, make: Make) -> None:
    """Items do not pass the middleware that other requests do."""
    errors = {401: pytest.importorskip("starlette.exceptions").HTTPException(401, text), 500: RuntimeError("no")}

    def authenticate(_: object) -> bool:
        raise errors[status]

    with producer_for(make(0), authenticate=authenticate) as producer:
        for path in ("/ingest", "/admit"):
            reply = producer.client.post(path, headers={"Connection": "close"})
            assert (reply.status_code, reply.text) == (status, text)


def test_what_cannot_be_admitted_says_so(make: Make) -> None:
    channel = make(0)
    with producer_for(channel, authenticate=lambda headers: "x-me" in headers) as producer:
        assert producer.ask().status_code == 401
        producer.client.headers["X-Me"] = "1"
        post = producer.client.post
        for query in ("", "?version=new", "?version=1&wait=-1", "?version=1&wait=31", "?version=1&wait=nan"):
            assert post(f"/admit{query}").status_code == 400
        assert not producer.release("unknown")
        assert producer.send(b"x", "unknown").status_code == 409
        assert producer.counts()["ingest_items_total"] == 0
        channel.close()
        reply = producer.ask()
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
    with producer_for(ad.Channel()) as producer:
        assert producer.ask().status_code == 404
        assert producer.send(b"x", "unknown").status_code == 409

"""Admissions on a WebSocket: a producer asks before it works, and what it holds ends with its connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web import ingest_app
from asyncdata.web.decoding import BodyError
from asyncdata.web.leases import Leases
from asyncdata.web.socket_admission import Asking

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
sync = pytest.importorskip("websockets.sync.client")
websockets = pytest.importorskip("websockets.asyncio.client")
exceptions = pytest.importorskip("websockets.exceptions")
pytest.importorskip("uvicorn")

from tests.web import test_leases  # noqa: E402
from tests.web.serving import served  # noqa: E402
from tests.web.test_leases import check_sixty, reading  # noqa: E402


@pytest.fixture(params=["Channel", "DurableChannel"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Make a channel with a limit."""
    return ad.Channel if request.param == "Channel" else partial(ad.DurableChannel, tmp_path / "spool")


def counts_of(url: str) -> dict[str, float]:
    with httpx.Client(base_url=url, timeout=120) as client:
        return test_leases.counts_of(client)


class Worker:
    """A client on a socket."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    def told(self) -> dict[str, Any]:
        return json.loads(self.socket.recv())

    def ask(self, version: int) -> None:
        self.socket.send(json.dumps({"version": version}))

    def asked(self, version: int) -> dict[str, Any]:
        self.ask(version)
        return self.told()

    def sent(self, data: str | bytes) -> dict[str, Any]:
        self.socket.send(data)
        return self.told()


@contextmanager
def worker_for(url: str, query: str = "?admit=1") -> Generator[Worker]:
    with sync.connect(url.replace("http", "ws") + f"/ingest{query}") as socket:
        yield Worker(socket)


def test_a_producer_is_told_to_wait_until_its_work_will_be_read_in_time(make: Any) -> None:
    channel = make(max_lag=0)
    with served(ingest_app(channel)) as url, worker_for(url) as one, worker_for(url) as other:
        with reading(channel) as items:
            assert one.asked(7) == {"admitted": 7, "seconds": 60}
            other.ask(7)
            assert one.sent(b"one") == {"message": 1, "accepted": 1}
            assert next(items) == b"one"
            assert other.told()["admitted"] == 7
            one.ask(7)
            assert other.sent(b"other") == {"message": 1, "accepted": 1}
            assert next(items) == b"other"
            assert one.told()["admitted"] == 7
            assert counts_of(url)["channel_working"] == 1
            assert one.sent(b"again") == {"message": 2, "accepted": 1}
            assert next(items) == b"again"
        counts = counts_of(url)
        assert (counts["channel_working"], counts["ingest_admissions_total"]) == (0, 3)
        assert counts["channel_max_staleness"] == 0


def test_who_leaves_makes_room_and_who_waits_does_not_hold_up_the_end_of_the_service(make: Any) -> None:
    with served(ingest_app(make(max_lag=0))) as url, worker_for(url) as last:
        with worker_for(url) as one, worker_for(url) as other:
            assert one.asked(1)["admitted"] == 1
            other.ask(1)
        assert last.asked(1)["admitted"] == 1  # both have left, one of them while it waited
        assert counts_of(url)["ingest_admissions_expired_total"] == 0
        with worker_for(url) as waiting:
            waiting.ask(1)
            httpx.get(f"{url}/health")  # the service has received what it asked


def test_a_message_that_is_refused_keeps_its_admission_and_one_that_expires_says_so(make: Any) -> None:
    with served(ingest_app(make(max_lag=0), max_body_bytes=20, admission_seconds=0.2)) as url, worker_for(url) as one:
        assert one.sent('{"version": "new"}')["status"] == 400
        assert one.sent("[7]")["status"] == 400
        one.ask(5)
        assert one.told()["admitted"] == 5
        assert one.sent("{")["status"] == 400
        assert one.sent("x" * 21)["status"] == 413
        assert one.sent("5") == {"message": 3, "accepted": 1}


def test_an_admission_that_expired_is_told() -> None:
    app = ingest_app(ad.Channel(max_lag=0), admission_seconds=0.1)
    with served(app) as url, worker_for(url) as one, worker_for(url) as other:
        assert one.asked(1)["admitted"] == 1
        assert other.asked(2)["admitted"] == 2  # when the first one has expired
        assert one.sent("1")["status"] == 409


async def test_who_does_not_wait_for_the_reply_is_told() -> None:
    channel = ad.Channel(max_lag=0)
    held, asking = await channel.admit(1), Asking(channel, Leases())
    waiting = asyncio.ensure_future(asking.ask(b'{"version": 2}'))
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(BodyError, match="wait for the reply"):
            await asking.ask(b"work")
        held.release()
        assert (await waiting)["admitted"] == 2
    asking.leave()
    assert channel.stats()["working"] == 0


def test_a_key_that_is_known_ends_its_admission(make: Any) -> None:
    with served(ingest_app(make(max_lag=1))) as url:
        with worker_for(url, "?admit=1&key=a") as one:
            one.asked(1)
            assert one.sent("1") == {"message": 1, "accepted": 1}
        with worker_for(url, "?admit=1&key=a") as one:
            one.asked(1)
            assert one.sent("1") == {"message": 1, "accepted": 1, "duplicate": True}
        assert counts_of(url)["channel_working"] == 0


@pytest.mark.parametrize(("query", "status"), [("?admit=2", 400), ("?admit=1&version=3", 400), ("?admit=1", 404)])
def test_what_cannot_be_asked_is_refused_at_once(query: str, status: int) -> None:
    channel = ad.Channel() if status == 404 else ad.Channel(max_lag=1)
    with served(ingest_app(channel)) as url:
        with pytest.raises(exceptions.InvalidStatus) as refused, worker_for(url, query):
            pass
        assert refused.value.response.status_code == status


def test_many_producers_of_unlike_speed_have_exact_books(make: Any) -> None:
    channel = make(max_lag=3)
    with served(ingest_app(channel)) as url, reading(channel) as items:

        async def produce(number: int) -> None:
            done = 0
            while done < 10:
                async with websockets.connect(url.replace("http", "ws") + "/ingest?admit=1") as socket:
                    first = done
                    for turn in range(first, 10):  # now and then it leaves in place of working
                        await socket.send('{"version": 0}')
                        assert json.loads(await socket.recv())["admitted"] == 0
                        if (number + turn) % 5 == 0 and turn != first:
                            break
                        await socket.send(b"%d %d" % (number, turn))
                        assert json.loads(await socket.recv())["accepted"] == 1
                        done = turn + 1

        check_sixty(produce, items)
        counts = counts_of(url)
        assert (counts["channel_working"], counts["ingest_items_total"]) == (0, 60)
        assert counts["ingest_admissions_expired_total"] == 0

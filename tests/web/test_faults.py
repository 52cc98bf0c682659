"""Services and trainers that are killed at work, many clients that do nothing, and requests that nobody thought of."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import asyncdata as ad
from asyncdata.web import ingest_app
from tests.web.killing import PROGRAMS, Service, killed

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

BYTES = {"Content-Type": "application/octet-stream"}


async def deliver(service: Service, numbers: Iterator[int], acknowledged: list[int], every: int, kills: int) -> None:
    """Post numbers by their keys, again where no reply came; kill the service after so many acknowledgements."""
    async with httpx.AsyncClient(base_url=service.url, timeout=120) as client:
        for number in numbers:
            headers = {**BYTES, "Idempotency-Key": str(number)}
            while True:
                try:
                    reply = await client.post("/ingest", content=b"%d" % number, headers=headers)
                except httpx.TransportError:
                    continue
                break
            assert reply.json()["accepted"] == 1, reply.text
            acknowledged.append(number)
            if not len(acknowledged) % every and len(acknowledged) <= every * kills:
                service.kill()
                service.start()


async def load(service: Service, count: int, every: int, kills: int) -> list[int]:
    """Deliver so many numbers by eight clients; return those that were acknowledged."""
    numbers, acknowledged = iter(range(count)), list[int]()
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(deliver(service, numbers, acknowledged, every, kills))
    return acknowledged


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_what_was_acknowledged_is_trained_on_once_whoever_is_killed(kills: int, tmp_path: Path) -> None:
    """The service and the trainer are killed, as many times each, while clients send and send again."""
    folder, saved = tmp_path / "channel", tmp_path / "saved"
    with ad.DurableChannel(folder):
        pass
    service, count = Service(folder), 200 + 100 * kills

    async def body() -> int:
        training = asyncio.create_task(
            asyncio.to_thread(killed, PROGRAMS / "trainer.py", folder, saved, kills=kills, more=1)
        )
        service.start()
        try:
            assert sorted(await load(service, count, 90, kills)) == [*range(count)]
        finally:
            service.stop()
            with ad.DurableChannel(folder) as channel:
                channel.end()
            code = await training
        return code

    assert asyncio.run(body()) == 0
    assert sorted(json.loads(saved.read_text())["trained"]) == [*range(count)]


@pytest.mark.slow
def test_clients_that_do_nothing_take_little_memory(tmp_path: Path) -> None:
    """2,000 WebSockets that are connected and send nothing."""
    sync_client = pytest.importorskip("websockets.sync.client")
    service = Service(tmp_path / "channel")
    service.start()
    address = service.url.replace("http", "ws") + "/ingest"
    with ExitStack() as stack:
        stack.callback(service.stop)
        with sync_client.connect(address) as first:
            first.send("1")
            assert json.loads(first.recv()) == {"message": 1, "accepted": 1}
        before = resident(service.process)
        idle = [stack.enter_context(shaken(service)) for _ in range(2000)]
        with sync_client.connect(address) as last:
            last.send("2")
            assert json.loads(last.recv()) == {"message": 1, "accepted": 1}
        each = (resident(service.process) - before) / len(idle)
    assert each < 60_000, f"{each:.0f} bytes for a WebSocket"


def shaken(service: Service) -> socket.socket:
    """A WebSocket after its handshake: nothing else is needed of a client that does nothing."""
    connection = socket.create_connection(service.socket.getsockname())
    connection.sendall(
        b"GET /ingest HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert connection.recv(4096).startswith(b"HTTP/1.1 101")
    return connection


def resident(process: subprocess.Popen[bytes]) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Channel", "DurableChannel"])
def test_no_request_that_the_description_allows_or_forbids_is_a_server_error(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    channel = ad.Channel() if kind == "Channel" else ad.DurableChannel(tmp_path / "channel")
    with served(ingest_app(channel)) as url:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--max-examples", "50"]
        command += ["--checks", "not_a_server_error", "--generation-deterministic", "--no-color"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    assert "Tested: 5" in done.stdout
    assert channel.closed

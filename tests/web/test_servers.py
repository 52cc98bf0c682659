"""An ingest application keeps its word on each server of ASGI, below other middleware, and behind a proxy."""

from __future__ import annotations

import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.formats.compression import zstd_module
from tests.marks import first_by_default
from tests.ports import reserved_ports
from tests.remote.conftest import accepts, started
from tests.remote.test_nginx import installed

pytestmark = pytest.mark.web

httpx = pytest.importorskip("httpx")

ROOT = Path(__file__).parents[2]
APP = "tests.web.programs.wrapped_service:app"
SERVERS = {
    "granian": ["granian", "--interface", "asgi", APP, "--host", "127.0.0.1", "--port"],
    "uvicorn": ["uvicorn", APP, "--host", "127.0.0.1", "--port"],
    "hypercorn": ["hypercorn", APP, "--graceful-timeout", "60", "--bind"],
}
NDJSON = {"Content-Type": "application/x-ndjson"}
KIND = {"content-type": "application/x-ndjson"}
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
WITH_LENGTH = b"Content-Length: 100\r\n\r\n1\n2\n"
IN_CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n4\r\n1\n2\n\r\n"


class Service:
    """A server in a process of its own."""

    def __init__(self, process: Any, port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def begin(self, rest: bytes, path: bytes = b"/ingest") -> socket.socket:
        """Begin a request on a connection of its own."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        connection.sendall(HEAD % path + rest)
        return connection

    def memory(self) -> int:
        """How many bytes of memory its processes have."""
        pages = [Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in group_of(self.process.pid)]
        return sum(map(int, pages)) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """Have it end, and wait until it accepts no more connections."""
        self.process.send_signal(signal.SIGTERM)
        while accepts(self.port):
            continue


def group_of(leader: int) -> list[str]:
    """The processes that a server has started, and itself."""
    running = [name for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in running if group_id(int(pid)) == leader]


def group_id(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


@contextmanager
def serving(name: str, folder: Path) -> Generator[Service]:
    pytest.importorskip(name)
    *command, option = [sys.executable, "-m", *SERVERS[name]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPOOL": str(folder / "spool")}
    with reserved_ports(1) as (port,):
        process = subprocess.Popen(
            [*command, option, f"127.0.0.1:{port}" if option == "--bind" else str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        with process:
            try:
                assert process.stdout is not None
                assert any(re.search("running on|Started worker", line, re.IGNORECASE) for line in process.stdout)
                while not accepts(port):  # granian says so before it listens
                    assert process.poll() is None
                    time.sleep(0.01)
                yield Service(process, port)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def told(connection: socket.socket) -> bytes:
    """All that a server says until it closes a connection."""
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def status_line(connection: socket.socket) -> bytes:
    """The head of the next reply."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1)
    return head


def check_expectations(service: Service) -> None:
    """A client that asks whether to send its body is told so before it does."""
    with service.begin(b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 4\r\n\r\n") as connection:
        assert status_line(connection).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"3\n4\n")
        assert b'{"accepted": 2}' in told(connection)
    reply = told(service.begin(b"Expect: 100-continue\r\nContent-Length: 100000000\r\n\r\n"))
    assert reply.count(b"HTTP/1.1 413 ") == 1
    assert reply.endswith(b"}")


@pytest.mark.parametrize("name", first_by_default([*SERVERS], 1))
def test_a_server_of_asgi(name: str, tmp_path: Path) -> None:
    with serving(name, tmp_path) as service, httpx.Client(base_url=service.url, timeout=120) as client:
        reply = client.post("/ingest", content=iter([b"1\n", b"2\n"]), headers=NDJSON)
        assert (reply.json(), reply.headers["x-seen"]) == ({"accepted": 2}, "yes")
        check_expectations(service)
        assert b"HTTP/1.1 408 " in told(service.begin(IN_CHUNKS, b"/hurried/ingest"))
        for rest in (WITH_LENGTH, IN_CHUNKS):  # these leave in the middle of their bodies
            service.begin(rest).close()
        service.begin(b"\r\n", b"/admit?version=1&wait=30").close()
        assert client.post("/ingest", content=b"5\n", headers=NDJSON).json() == {"accepted": 1}
        client.close()
        with service.begin(b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n") as connection:
            status_line(connection)
            connection.sendall(b"6\n")
            service.stop()
            connection.sendall(b"7\n")
            assert b" 200 " in status_line(connection)
        assert service.process.wait(120) in (0, -signal.SIGTERM)
        assert "Traceback" not in service.process.stdout.read()
    assert list(ad.Dataset.from_channel(tmp_path / "spool", follow=False)) == [1, 2, 3, 4, 5, 6, 7]


class Streams:
    """A client of HTTP/2, one stream at a time."""

    def __init__(self, service: Service) -> None:
        self.h2 = pytest.importorskip("h2.connection")
        self.config = pytest.importorskip("h2.config").H2Configuration(header_encoding="utf-8")
        self.service = service

    def post(self, body: bytes, code: int | None, **more: str) -> str:
        """Send a body, and reset the stream, or end it and return the status of the reply."""
        h2, pseudo = self.h2.H2Connection(self.config), {":method": "POST", ":path": "/ingest", ":scheme": "http"}
        with socket.create_connection(("127.0.0.1", self.service.port), timeout=120) as connection:
            h2.initiate_connection()
            h2.send_headers(1, [*{**pseudo, ":authority": "localhost", **more}.items()])
            h2.send_data(1, body, end_stream=code is None)
            connection.sendall(h2.data_to_send())
            if code is not None:
                h2.reset_stream(1, code)
                connection.sendall(h2.data_to_send())
                return ""
            while True:
                for event in h2.receive_data(connection.recv(1 << 16)):
                    if headers := getattr(event, "headers", None):
                        return dict(headers)[":status"]


def test_a_body_of_http_2_that_its_client_gives_up_is_not_taken(tmp_path: Path) -> None:
    """granian ends it where it was given up, if the client says that nothing is wrong (0), or that it stopped (8)."""
    with serving("granian", tmp_path) as service:
        streams, length = Streams(service), {"content-length": "9"}
        for code in (0, 8) * 20:
            streams.post(b"12345", code, **length, **KIND)
            streams.post(b"12345", code, **KIND)
        assert streams.post(b"1\n2\n3\n4\n\n", None, **length, **KIND) == "200"
        assert streams.post(b"5", None, **KIND) == "411"
        service.stop()
        service.process.wait(120)
    assert list(ad.Dataset.from_channel(tmp_path / "spool", follow=False)) == [1, 2, 3, 4]


def check_packed_bodies(client: Any) -> None:
    """A body that is too large when it is unpacked is refused while it is unpacked."""
    zeros = bytes(256 << 20)
    packers = {"gzip": gzip.compress, "zstd": zstd_module().compress}
    for encoding, pack in packers.items():
        reply = client.post("/small/ingest", content=pack(zeros), headers={**NDJSON, "Content-Encoding": encoding})
        assert (reply.status_code, reply.json()["accepted"]) == (413, 0)
        reply = client.post("/small/ingest", content=pack(b"1\n"), headers={**NDJSON, "Content-Encoding": encoding})
        assert reply.json() == {"accepted": 1}


def check_many_bodies(service: Service) -> None:
    """Of bodies that are too much together, those that come later are refused for a while."""
    head = b"Connection: close\r\nContent-Length: 700001\r\n\r\n"
    with service.begin(head + b"1" * 600_000, b"/small/ingest") as first:
        while b"receiving_bytes 600000" not in metrics_of(service):
            continue
        reply = told(service.begin(head + b"1" * 600_000, b"/small/ingest"))
        assert b"HTTP/1.1 503 " in reply
        assert b"retry-after: 1" in reply.lower()
        first.sendall(b" " * 100_000 + b"\n")
        assert b" 400 " in status_line(first)  # such a number is too large


def metrics_of(service: Service) -> bytes:
    return httpx.get(f"{service.url}/small/metrics").content


def post_all(client: Any, bodies: list[bytes], refused: threading.Semaphore) -> None:
    """Post bodies in turn, again where the channel is full."""
    for body in bodies:
        while (reply := client.post("/small/ingest", content=body, headers=NDJSON)).status_code != 200:
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
            refused.release()


@pytest.mark.parametrize("name", first_by_default([*SERVERS], 1))
def test_a_server_whose_channel_is_full_takes_no_more_memory_and_loses_nothing(name: str, tmp_path: Path) -> None:
    """It has twelve times what the channel may hold, and bodies that are much larger when they are unpacked."""
    bodies = [b'{"n": %d, "more": "%s"}' % (number, b"x" * 40_000) for number in range(150)]
    refused, found = threading.Semaphore(0), list[Any]()
    with serving(name, tmp_path) as service, httpx.Client(base_url=service.url, timeout=120) as client:
        assert client.post("/small/ingest", content=b"1", headers=NDJSON).json() == {"accepted": 1}
        before = service.memory()
        check_packed_bodies(client)
        check_many_bodies(service)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(post_all, client, bodies, refused)
            for _ in range(3):
                assert refused.acquire(timeout=120)
            assert service.memory() - before < 64 << 20
            with ad.Dataset.from_channel(tmp_path / "spool-small").iterate() as items:
                while len(found) < 3 + len(bodies):
                    found.append(next(items))
                    ad.web.trim(tmp_path / "spool-small", items.state_dict())
            sending.result()
        service.stop()
    assert [item["n"] for item in found[3:]] == [*range(150)]


PROXY = """
{user}
worker_processes 1; daemon off; master_process off; pid nginx.pid; error_log error.log warn;
events {{ worker_connections 64; }}
http {{
  access_log off; client_max_body_size 2m; client_body_buffer_size 8k;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{behind}; proxy_http_version 1.1; }} }}
}}
"""


def test_behind_a_proxy_that_buffers(tmp_path: Path) -> None:
    """It reads a slow body first, and passes it on with its length: the application does not wait for the client."""
    program = installed()
    with serving("uvicorn", tmp_path) as service, reserved_ports(1) as (port,):
        user = "user root;" if os.geteuid() == 0 else ""
        (tmp_path / "nginx.conf").write_text(PROXY.format(user=user, port=port, behind=service.port))
        with started([str(program), "-p", str(tmp_path), "-c", "nginx.conf"], port, accepts):
            proxied = Service(service.process, port)
            body = b"".join(b"%d\n" % number for number in range(50_000))
            with httpx.Client(base_url=proxied.url, timeout=120) as client:
                packed = {**NDJSON, "Content-Encoding": "gzip", "Idempotency-Key": "a"}
                for _ in range(2):
                    reply = client.post("/ingest", content=iter([gzip.compress(body)]), headers=packed)
                    assert reply.json()["accepted"] == 50_000
                reply = client.post(
                    "/ingest", content=body * 4, headers=NDJSON
                )  # the application's limit, and its words
                assert (reply.status_code, reply.json()["accepted"]) == (413, 0)
                reply = client.post("/ingest", content=body * 8, headers=NDJSON)  # the proxy's
                assert (reply.status_code, "json" in reply.headers["Content-Type"]) == (413, False)
            with proxied.begin(b"Content-Length: 4\r\nConnection: close\r\n\r\n1\n", b"/hurried/ingest") as slow:
                with pytest.raises(TimeoutError):
                    slow.settimeout(0.5)  # longer than the application would wait
                    slow.recv(1)
                slow.settimeout(120)
                slow.sendall(b"2\n")
                assert b'{"accepted": 2}' in told(slow)
            proxied.begin(WITH_LENGTH).close()
        service.process.terminate()
        assert "Traceback" not in service.process.stdout.read()
    assert list(ad.Dataset.from_channel(tmp_path / "spool", follow=False)) == [*range(50_000), 1, 2]

"""A web server for tests: what it has may be changed, what it answers may be wrong, and all requests are kept."""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ("Request", "Web", "web")


class Request(NamedTuple):
    method: str
    path: str
    start: int
    stop: int


class Web:
    """Files by path, and what goes wrong with requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.fault: Callable[[int, Request], str | int | None] = lambda number, request: None
        """What is wrong with a request by its number: a status, "cut", "reset", "slow", "trickle"; or nothing."""
        self.slow = threading.Event()
        """What answers that are slow wait for, in their middle."""
        self.gate: threading.Event | None = None
        """What answers wait for."""
        self.ranges = True
        """Whether it gives parts of files."""
        self.chunked = False
        """Whether it sends complete files in chunks, without their length."""
        self.modified = ""
        """The date of all files, if it says one, as Azure does."""
        self.url = ""
        self.lock = threading.Condition()

    def put(self, path: str, content: bytes) -> str:
        self.files[f"/{path}"] = content
        return f"{self.url}/{path}"

    def asked_for(self, path: str, count: int = 1) -> bool:
        """Wait until somebody has asked for a file so often; whether that has happened in time."""

        def asked() -> bool:
            return sum(one.path == f"/{path}" for one in self.requests) >= count

        with self.lock:
            return self.lock.wait_for(asked, 120)

    def of(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        content = self.web.files.get(self.path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "") if self.web.ranges else "")
        size = len(content or b"")
        start, stop = (int(asked[1]), min(int(asked[2] or size - 1) + 1, size)) if asked else (0, size)
        request = Request(self.command, self.path, start, stop)
        with self.web.lock:
            self.web.requests.append(request)
            number = len(self.web.requests)
            self.web.lock.notify_all()
        if self.web.gate is not None:
            self.web.gate.wait(30)
        fault = self.web.fault(number, request)
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        if isinstance(fault, int):
            self.empty(fault)
        elif content is None:
            self.empty(404)
        elif self.web.chunked:
            self.in_chunks(content, fault)
        elif asked and start >= size:
            self.empty(416)
        else:
            self.body(content, start, stop, bool(asked), fault)

    def empty(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if status in {429, 503}:
            self.send_header("Retry-After", "3600")
        self.end_headers()

    def in_chunks(self, content: bytes, fault: str | None) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.command == "HEAD":
            return
        for start in range(0, len(content), 10_000):
            piece = content[start : start + 10_000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if fault == "cut" and start:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if fault == "slow" and start == 50_000:
                self.wfile.flush()
                self.web.slow.wait(30)
        self.wfile.write(b"0\r\n\r\n")

    def body(self, content: bytes, start: int, stop: int, part: bool, fault: str | None) -> None:
        self.send_response(206 if part else 200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        if self.web.modified:
            self.send_header("Last-Modified", self.web.modified)
        if part:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "cut":
            self.wfile.write(content[start : start + (stop - start) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        pieces = {"slow": 2, "trickle": 30}.get(fault or "", 1)
        ends = [start + (stop - start) * piece // pieces for piece in range(pieces + 1)]
        for begin, end in pairwise(ends):
            if begin > start:
                self.web.slow.wait(30 if fault == "slow" else 0.2)
            self.wfile.write(content[begin:end])


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Say nothing: clients leave in the middle of answers on purpose."""


@contextmanager
def web() -> Iterator[Web]:
    """Run the server."""
    served = Web()
    handler = type("Bound", (Handler,), {"web": served})
    with Server(("127.0.0.1", 0), handler) as server:
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield served
        finally:
            served.slow.set()
            if served.gate is not None:
                served.gate.set()
            server.shutdown()
            thread.join()

"""A real server for an application, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

__all__ = ("served",)


class Server(uvicorn.Server):  # type: ignore[misc]
    """Says when it serves."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.there = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.there.set()


@contextmanager
def served(app: Any, **how: Any) -> Iterator[str]:
    """Serve an application on a free port of this machine, and shut it down gracefully."""
    server = Server(uvicorn.Config(app, port=0, log_level="error", ws="websockets-sansio", **how))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.there.wait(120)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()

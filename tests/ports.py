"""Ports for servers that are told theirs when they start."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ("reserved_ports",)


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Give ports of this machine that nobody else is given until the block is left, also while no server listens.

    A socket has each of them, and does not listen. A server may take such a port all the same, if it sets
    `SO_REUSEADDR`, as nearly all do.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in sockets]

"""The command `asyncdata ingest`: a server that writes what is posted to it into shards."""

from __future__ import annotations

import hmac
import os
import signal
from argparse import ArgumentTypeError
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncdata.cli.shards import FORMATS, Shards
from asyncdata.errors import PlanError
from asyncdata.runtime.optional_packages import require
from asyncdata.web.consumer import Consumer
from asyncdata.web.durable import DurableChannel
from asyncdata.web.http import Ingest, Limits
from asyncdata.web.ingest import application

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from asyncdata.web.admission import Authenticate

__all__ = ("add_parser",)

DESCRIPTION = """
Receive items by HTTP and WebSocket (POST /ingest: JSON, NDJSON, MessagePack, bytes), and write them into shards, in a
folder or in s3://, gs:// or az://. Each acknowledged item is in exactly one shard, or in the spool until that shard is
written, also if the server is killed. Only clients on this machine are served, unless the environment variable
ASYNCDATA_TOKEN has a token; then clients send "Authorization: Bearer TOKEN".
"""


def add_parser(commands: Any) -> None:
    """Add `ingest` to the subparsers of a command line."""
    parser: ArgumentParser = commands.add_parser(
        "ingest", help="write what is posted into shards", description=DESCRIPTION
    )
    parser.add_argument("--to", required=True, metavar="DIR|URL", help="where the shards are written")
    parser.add_argument(
        "--spool",
        type=Path,
        metavar="DIR",
        help="a folder of this machine for items that are in no shard yet (default DIR/.spool; needed for a URL)",
    )
    parser.add_argument("--format", choices=FORMATS, default="jsonl", help="the format of the shards (default jsonl)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to serve at (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="the port to serve at (default 8000; 0: any)")
    parser.add_argument(
        "--shard-items", type=above_zero, default=10_000, metavar="N", help="most items in a shard (default 10000)"
    )
    parser.add_argument(
        "--shard-seconds", type=above_zero, default=60, metavar="S", help="how long a shard waits (default 60)"
    )
    parser.set_defaults(run=run)


def above_zero(text: str) -> int:
    """Return `text` as a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def run(arguments: Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; then write the remaining items."""
    token = os.environ.get("ASYNCDATA_TOKEN")
    if token is None and arguments.host not in ("127.0.0.1", "::1", "localhost"):
        raise PlanError(
            f"--host {arguments.host} serves clients on other machines: set ASYNCDATA_TOKEN to the token that they send"
        )
    uvicorn = require("uvicorn", "asyncdata ingest", "'asyncdata[web]'")
    shards = Shards(arguments.to, arguments.format, arguments.shard_items, arguments.shard_seconds, arguments.spool)
    channel = DurableChannel(shards.spool)
    consumer = Consumer(shards.batches(follow=True), shards.write, state=shards.state)
    limits = Limits(body_bytes=16 << 20, item_bytes=16 << 20, body_seconds=30.0)
    ingest = Ingest(shards.writer(channel), None, limits, None if token is None else bearer(token))
    app = application(channel, ingest, consumer)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the remaining items are written then too
    try:
        uvicorn.run(app, host=arguments.host, port=arguments.port, ws="websockets-sansio")
    finally:
        channel.close()
    with shards.batches(follow=False).iterate(state=shards.state) as rest:
        shards.write(rest)
    print(f"{shards.number} shards in {arguments.to}")
    return 0


def bearer(token: str) -> Authenticate:
    """Return a function that admits clients that send the token."""
    expected = f"Bearer {token}".encode()

    def admits(headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get("authorization", "").encode(), expected)

    return admits

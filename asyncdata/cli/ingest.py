"""The command `asyncdata ingest`: a server that writes what is posted to it into shards."""

from __future__ import annotations

import hmac
import os
import signal
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from typing import Final

from asyncdata.cli.arguments import local
from asyncdata.cli.shards import FORMATS, Shards
from asyncdata.errors import PlanError
from asyncdata.redaction import redacted
from asyncdata.system.loopback import is_loopback
from asyncdata.system.optional_packages import require
from asyncdata.web.admission import Authenticate
from asyncdata.web.consumer import Consumer
from asyncdata.web.durable import DurableChannel
from asyncdata.web.http import Ingest, Limits
from asyncdata.web.ingest import application

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION = """
Receive items by HTTP and WebSocket (POST /ingest: JSON, NDJSON, MessagePack, bytes), and write them into shards, in a
folder or in s3://, gs:// or az://. Each acknowledged item is in exactly one shard, or in the spool until that shard is
written, also if the server is killed. Only clients on this machine are served, unless the environment variable
ASYNCDATA_TOKEN has a token; then clients send "Authorization: Bearer TOKEN".
"""

EXAMPLE: Final = """
Example: asyncdata ingest --to shards, and then curl -H 'content-type: application/json' -d '{"x": 1}'
http://127.0.0.1:8000/ingest
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `ingest`."""
    parser.add_argument("--to", required=True, metavar="DIR|URL", help="where the shards are written")
    parser.add_argument(
        "--spool",
        type=local,
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


def above_zero(text: str) -> int:
    """Return `text` as a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def run(arguments: Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; then write the remaining items."""
    token = os.environ.get("ASYNCDATA_TOKEN")
    if token is not None:
        check_token(token)
    elif not is_loopback(arguments.host):
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
    print(f"{shards.number:,} shard{'s' * (shards.number != 1)} in {redacted(arguments.to)}")
    return 0


def check_token(token: str) -> None:
    """Raise for an empty token, which would admit everybody, and for one that no header can have."""
    if not token.strip():
        raise PlanError("ASYNCDATA_TOKEN is empty: set it to the token that clients send, or unset it")
    if token != token.strip() or not token.isprintable():
        raise PlanError(
            "ASYNCDATA_TOKEN begins or ends with a space, or has a character that cannot be printed, so no client "
            "could send it"
        )


def bearer(token: str) -> Authenticate:
    """Return a function that admits clients that send the token, in UTF-8 or, as some do, in Latin-1."""
    encodings = ("utf-8", "latin-1") if all(letter <= "\xff" for letter in token) else ("utf-8",)
    expected = [token.encode(encoding) for encoding in encodings]

    def admits(headers: Mapping[str, str]) -> bool:
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        known = [hmac.compare_digest(sent.encode("latin-1"), token) for token in expected]
        return scheme.lower() == "bearer" and any(known)

    return admits

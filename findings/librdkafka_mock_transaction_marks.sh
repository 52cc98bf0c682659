#!/usr/bin/env bash
# confluent-kafka 2.16.1: the mock cluster of librdkafka (`test.mock.num.brokers`) writes the mark behind a transaction
# with a checksum of 0, so clients that check them (`check.crcs` of librdkafka, aiokafka by default) read no further. It
# tells consumers of no aborted transaction either: with `isolation.level=read_committed` aborted records come.
# Exits non-zero if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q confluent-kafka==2.16.1
cat >"$folder/look.py" <<'PYTHON'
from importlib.metadata import version

from confluent_kafka import Consumer, Producer, TopicPartition


def read(servers, check):
    """Return the values of some messages, or the text of the error in the place of one."""
    settings = {"group.id": f"{check}", "isolation.level": "read_committed", "check.crcs": check, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = [consumer.poll(30) for _ in range(2)]
    consumer.close()
    return [message.error().str() if message.error() else message.value() for message in found]


cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
(broker,) = cluster.list_topics(timeout=30).brokers.values()
servers = f"{broker.host}:{broker.port}"
producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 0})
producer.init_transactions(30)
for value, end in ((b"committed", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
    producer.begin_transaction()
    producer.produce("t", value, partition=0)
    producer.flush(30)
    end(30)
checked, unchecked = read(servers, True), read(servers, False)
print(f"confluent-kafka {version('confluent-kafka')}: checked {checked}, not checked {unchecked}")
assert checked[0] == b"committed" and "failed CRC32C check (original 0x0" in checked[1], "it checks differently now"
assert unchecked == [b"committed", b"aborted"], "it leaves out aborted records now"
PYTHON
"$folder/venv/bin/python" "$folder/look.py"

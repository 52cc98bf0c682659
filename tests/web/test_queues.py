"""Queues on real servers: Redis Streams and NATS JetStream, read in order, and on from any state."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from asyncdata.web.nats_stream import NatsReader
from asyncdata.web.queue_reader import FIRST_MESSAGES, MessagesRemovedError
from asyncdata.web.redis_stream import RedisReader
from tests.reference import failed
from tests.running import WAYS, taken
from tests.web.gates import Gate
from tests.web.queue_servers import Server, nats_server, redis_server

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

nats = pytest.importorskip("nats")
redis = pytest.importorskip("redis")


class Queue(Protocol):
    """A queue on a server, filled and trimmed by its own client."""

    server: Server

    def send(self, numbers: Any) -> None: ...

    def keep(self, count: int) -> None:
        """Remove all but the last messages."""

    def read(self, group: str | None = None, **how: Any) -> ad.Dataset[int]:
        """The numbers that were sent."""


class RedisQueue:
    def __init__(self, server: Server) -> None:
        self.server = server

    def client(self) -> Any:
        return redis.Redis(port=self.server.port)

    def send(self, numbers: Any) -> None:
        with self.client() as client, client.pipeline() as pipe:
            for number in numbers:
                pipe.xadd("numbers", {"n": number})
            pipe.execute()

    def keep(self, count: int) -> None:
        with self.client() as client:
            client.xtrim("numbers", count, approximate=False)

    def read(self, group: str | None = None, **how: Any) -> ad.Dataset[int]:
        url = f"redis://127.0.0.1:{how.pop('port', self.server.port)}"
        ds = ad.Dataset.from_redis_stream(url, "numbers", group=group, **{"follow": False, **how})
        return ds.map(lambda entry: int(entry["n"]))


class NatsQueue:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.made = False

    def run(self, work: Any) -> None:
        async def body() -> None:
            connection = await nats.connect(f"nats://127.0.0.1:{self.server.port}")
            try:
                await work(connection.jetstream())
            finally:
                await connection.close()

        asyncio.run(body())

    def make(self, **config: Any) -> None:
        self.run(lambda stream: stream.add_stream(name="numbers", subjects=["numbers.*"], **config))
        self.made = True

    def publish(self, subject: str, numbers: Any, **headers: str) -> None:
        async def work(stream: Any) -> None:
            for number in numbers:
                await stream.publish(f"numbers.{subject}", b"%d" % number, headers=headers or None)

        self.run(work)

    def make_consumer(self, name: str, **config: Any) -> None:
        """Make a durable consumer, as `nats consumer add` does; the client does not know all settings."""
        body = {"stream_name": "numbers", "config": {"durable_name": name, "ack_policy": "explicit", **config}}

        async def work() -> None:
            async with await nats.connect(f"nats://127.0.0.1:{self.server.port}") as connection:
                subject = f"$JS.API.CONSUMER.DURABLE.CREATE.numbers.{name}"
                reply = await connection.request(subject, json.dumps(body).encode())
                assert "error" not in json.loads(reply.data), reply.data

        asyncio.run(work())

    def send(self, numbers: Any) -> None:
        if not self.made:
            self.make()

        async def work(stream: Any) -> None:
            for number in numbers:
                await stream.publish(f"numbers.{number % 2}", b"%d" % number)

        self.run(work)

    def keep(self, count: int) -> None:
        self.run(lambda stream: stream.purge_stream("numbers", keep=count))

    def read(self, group: str | None = None, **how: Any) -> ad.Dataset[int]:
        url = f"nats://127.0.0.1:{self.server.port}"
        return ad.Dataset.from_nats(url, "numbers", durable=group, **{"follow": False, **how}).map(int)


@pytest.fixture
def nats_queue(tmp_path: Path) -> Iterator[NatsQueue]:
    with nats_server(tmp_path) as server:
        yield NatsQueue(server)


@pytest.fixture(params=["redis", "nats"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    if request.param == "redis":
        with redis_server(tmp_path) as server:
            yield RedisQueue(server)
    else:
        with nats_server(tmp_path) as server:
            yield NatsQueue(server)


def test_it_gives_all_in_order_and_goes_on_anywhere(queue: Queue) -> None:
    queue.send(range(2100))  # more than are read at once
    for read in WAYS:
        assert read(queue.read()) == [*range(2100)]
    with queue.read().iterate() as numbers:
        found = [next(numbers) for _ in range(1050)]
        state = json.loads(json.dumps(numbers.state_dict()))
    queue.keep(1100)  # of what was given together, and the state is in the midst of, all
    assert found + list(queue.read().iterate(state=state)) == [*range(2100)]
    queue.keep(100)
    with queue.read().iterate(state=state) as numbers:
        with pytest.raises(ad.DataLossError, match="removed before"):
            next(numbers)
        assert list(numbers) == [*range(2000, 2100)]
    queue.keep(30)
    check_resumes(queue.read)
    check_resumes(lambda: queue.read().map(abs, num_parallel_calls=2).shuffle(9, seed=1).batch(4))


def test_a_run_from_the_end_gives_what_came_since(queue: Queue) -> None:
    found: list[int] = []
    state = None
    for start in (5, 5, 12):
        queue.send(range(len(found), start))
        with queue.read().shuffle(3, seed=1).iterate(state=state) as items:
            found += items
        assert sorted(found) == list(range(start))
        state = json.loads(json.dumps(items.state_dict()))


def test_it_waits_for_more_and_leaves_nothing(queue: Queue) -> None:
    queue.send(range(3))
    with queue.read(follow=True).iterate() as numbers:
        assert [next(numbers) for _ in range(3)] == [0, 1, 2]
        for number in range(3, 6):
            queue.send([number])
            assert next(numbers) == number


def test_what_was_there_before_is_left_out(queue: Queue) -> None:
    queue.send([-1])
    assert list(queue.read(start="new")) == []
    enough = threading.Event()

    def send() -> None:
        for number in count():
            queue.send([number])
            if enough.is_set():
                queue.send([number + 1])
                return

    sender = threading.Thread(target=send)
    sender.start()
    with queue.read(start="new", follow=True).prefetch(1).iterate() as numbers:
        found = [next(numbers) for _ in range(3)]
        state = numbers.state_dict()
    enough.set()
    sender.join()
    assert found == [*range(found[0], found[0] + 3)]
    rest = list(queue.read(start="new").prefetch(1).iterate(state=state))
    assert rest == [*range(found[-1] + 1, rest[-1] + 1)]


def test_a_server_that_is_killed_is_read_on_when_it_comes_again(queue: Queue) -> None:
    queue.send(range(10))
    with queue.read(follow=True).iterate() as numbers:
        found = [next(numbers) for _ in range(10)]
        queue.server.kill()
        queue.server.start()
        queue.send(range(10, 20))
        found += [next(numbers) for _ in range(10)]
        state = numbers.state_dict()
    assert found == [*range(20)]
    assert list(queue.read().iterate(state=state)) == []


def test_a_server_that_is_not_there_is_an_error_at_once(queue: Queue) -> None:
    queue.send([1])
    with queue.read().iterate() as numbers:
        next(numbers)
        state = numbers.state_dict()
    queue.server.kill()
    with pytest.raises(ConnectionError, match=r"from_(redis_stream|nats)\(numbers\)"):
        list(queue.read(follow=True))
    with pytest.raises(ad.ResumeError):
        list(queue.read().iterate(state=state))


def test_it_is_given_up_when_the_server_stays_away(queue: Queue) -> None:
    queue.send([1])
    with queue.read(follow=True, give_up_seconds=0.1).iterate() as numbers:
        assert next(numbers) == 1
        queue.server.kill()
        with pytest.raises(ConnectionError):
            next(numbers)
        with pytest.raises(StopIteration):
            next(numbers)


def test_a_password_that_is_no_longer_valid_is_an_error_at_once(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server, pytest.importorskip("redis").Redis(port=server.port) as client:
        client.config_set("requirepass", "first")
        client.execute_command("AUTH", "first")
        client.xadd("numbers", {"n": "1"})
        url = f"redis://:first@127.0.0.1:{server.port}"
        with ad.Dataset.from_redis_stream(url, "numbers", give_up_seconds=1e6).iterate() as entries:
            assert next(entries) == {"n": b"1"}
            client.config_set("requirepass", "second")
            client.client_kill_filter(skipme=True)
            with pytest.raises(ConnectionError, match="AuthenticationError"):
                next(entries)


def test_a_password_that_a_server_of_nats_no_longer_takes_is_an_error_at_once(nats_queue: NatsQueue) -> None:
    nats_queue.send([1])
    server = nats_queue.server
    url = f"nats://me:first@127.0.0.1:{server.port}"
    with ad.Dataset.from_nats(url, "numbers", give_up_seconds=1e6).iterate() as numbers:
        assert next(numbers) == b"1"
        server.kill()
        server.command += ["--user", "me", "--pass", "second"]
        server.start()
        with pytest.raises(nats.errors.Error, match="Authorization Violation"):
            next(numbers)


def test_a_group_is_given_each_message_once(queue: Queue) -> None:
    queue.send(range(1500))
    with queue.read("trainers").prefetch(1).iterate() as numbers:
        assert next(numbers) == 0
        with pytest.raises(ad.ResumeError, match="acknowledged"):
            numbers.state_dict()
    rest = list(queue.read("trainers"))
    assert rest == [*range(FIRST_MESSAGES, 1500)]  # those read with the first are lost, as they were acknowledged
    queue.send([1500])
    assert list(queue.read("trainers")) == [1500]
    assert list(queue.read("others")) == [*range(1501)]


def test_a_group_of_two_shares_the_messages(queue: Queue) -> None:
    queue.send(range(3000))
    how: dict[str, Any] = {"consumer": "a"} if isinstance(queue, RedisQueue) else {}
    other: dict[str, Any] = {"consumer": "b"} if isinstance(queue, RedisQueue) else {}
    with queue.read("trainers", **how).iterate() as one, queue.read("trainers", **other).iterate() as two:
        found = [next(one), next(two), *one, *two]
    assert sorted(found) == [*range(3000)]


def test_what_redis_sent_and_nobody_acknowledged_comes_first(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        queue = RedisQueue(server)
        queue.send(range(5))
        with queue.client() as client:
            client.xgroup_create("numbers", "trainers", "0")
            assert client.xreadgroup("trainers", "asyncdata", {"numbers": ">"}, count=3)
            client.xdel("numbers", client.xrange("numbers", count=1)[0][0])
        with queue.read("trainers").iterate() as numbers:
            with pytest.raises(ad.DataLossError, match="1 entries that consumer 'asyncdata' .* had received"):
                next(numbers)
            assert list(numbers) == [1, 2, 3, 4]


@pytest.mark.parametrize("reached", [True, False])
def test_entries_of_redis_whose_acknowledgement_is_lost_are_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    """On its way to the server, or the reply on its way back."""
    client, calls = import_module("redis.asyncio").Redis, count()
    acknowledge = client.xack

    async def xack(self: Any, *arguments: Any) -> Any:
        number = next(calls)
        if reached or number != 1:
            await acknowledge(self, *arguments)
        if number == 1:
            await self.connection_pool.disconnect()
            raise redis.exceptions.ConnectionError

    monkeypatch.setattr(client, "xack", xack)
    with redis_server(tmp_path) as server:
        queue = RedisQueue(server)
        queue.send(range(100))
        assert list(queue.read("trainers")) == [*range(100)]
        assert next(calls) > 2
        with queue.client() as other:
            assert other.xpending("numbers", "trainers")["pending"] == 0


@pytest.mark.parametrize("restart", [True, False])
def test_a_group_of_redis_that_forgot_what_it_gave_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    monkeypatch.setattr("asyncdata.web.redis_stream.WAIT_SECONDS", 0.5)
    with redis_server(tmp_path) as server:
        queue = RedisQueue(server)
        queue.send(range(5))
        with queue.read("trainers", follow=True).iterate() as numbers:
            assert taken(numbers, 5) == [*range(5)]
            if restart:
                server.kill()
                server.command[server.command.index("yes")] = "no"  # nothing is read from the disk
                server.start()
                queue.send(range(5))
            else:
                with queue.client() as client:
                    client.xgroup_setid("numbers", "trainers", "0")
                queue.send([5])
            with pytest.raises(ad.DataLossError, match="group 'trainers' was deleted or put back"):
                next(numbers)


@pytest.mark.parametrize("what", ["group", "stream"])
@pytest.mark.parametrize("counts", [False, True])
def test_a_group_of_redis_that_is_deleted_while_it_is_waited_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, counts: bool
) -> None:
    monkeypatch.setattr("asyncdata.web.redis_stream.WAIT_SECONDS", 0.5)
    with redis_server(tmp_path, counts) as server:
        queue = RedisQueue(server)
        queue.send(range(5))
        with queue.read("trainers", follow=True).iterate() as numbers, queue.client() as client:
            assert taken(numbers, 5) == [*range(5)]
            with client.monitor() as seen:
                assert next(told for told in seen.listen() if "BLOCK" in told["command"])
            client.xgroup_destroy("numbers", "trainers") if what == "group" else client.delete("numbers")
            with pytest.raises(ad.DataLossError, match="group 'trainers' was deleted or put back"):
                next(numbers)


@pytest.mark.parametrize("group", [None, "trainers"])
def test_entries_of_redis_whose_reply_is_lost_are_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    connection = import_module("redis.asyncio.connection").AbstractConnection
    read, calls = connection.read_response, count()

    async def read_response(self: Any, *arguments: Any, **more: Any) -> Any:
        reply = await read(self, *arguments, **more)
        if b"numbers" in str(reply).encode() and next(calls) == 2:
            await self.disconnect()
            raise redis.exceptions.ConnectionError
        return reply

    monkeypatch.setattr(connection, "read_response", read_response)
    with redis_server(tmp_path) as server:
        queue = RedisQueue(server)
        queue.send(range(100))
        assert list(queue.read(group)) == [*range(100)]
        assert next(calls) > 2


@pytest.mark.parametrize("group", [None, "trainers"])
@pytest.mark.parametrize("more", [0, 3, 20])
def test_a_replica_of_redis_without_the_last_entries_is_an_error_when_it_takes_over(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, group: str | None, more: int
) -> None:
    """Behind one address, as a service with failover is: entries were acknowledged, and read, that it never got."""
    monkeypatch.setattr("asyncdata.web.redis_stream.WAIT_SECONDS", 0.5)
    with (
        redis_server(tmp_path_factory.mktemp("first"), counts=True) as server,
        redis_server(tmp_path_factory.mktemp("second"), counts=True) as other,
        Gate.before(server.port) as gate,
    ):
        queue, replica = RedisQueue(server), RedisQueue(other)
        with queue.client() as first, replica.client() as second:
            first.config_set("repl-diskless-sync-delay", 0)
            queue.send(range(20))
            second.replicaof("127.0.0.1", server.port)
            assert first.wait(1, 0) == 1
            second.replicaof("NO", "ONE")
        queue.send(range(20, 23))
        with queue.read(group, port=gate.port, follow=True).iterate() as numbers:
            assert taken(numbers, 23) == [*range(23)]
            state = None if group else numbers.state_dict()
            gate.target = other.port
            gate.break_off()
            replica.send(range(100, 100 + more))
            assert taken(numbers) == [failed(ad.DataLossError())]
        if state is not None:
            with pytest.raises(ad.DataLossError, match="deleted"):
                list(replica.read().iterate(state=state))


def test_a_read_of_entries_that_were_all_trimmed_does_not_end_it(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        queue = RedisQueue(server)
        queue.send(range(5))
        with queue.client() as client:
            client.xgroup_create("numbers", "trainers", "0")
            assert client.xreadgroup("trainers", "asyncdata", {"numbers": ">"}, count=3)
        queue.keep(2)
        with queue.read("trainers").iterate() as numbers:
            with pytest.raises(ad.DataLossError, match="3 entries"):
                next(numbers)
            assert list(numbers) == [3, 4]
        assert list(queue.read("trainers")) == []


@pytest.mark.parametrize("group", [None, "trainers"])
def test_repeated_names_of_fields_are_an_error_in_the_place_of_the_entry(tmp_path: Path, group: str | None) -> None:
    with redis_server(tmp_path) as server:
        with RedisQueue(server).client() as client:
            client.xadd("numbers", {"n": 1})
            client.execute_command("XADD", "numbers", "*", "n", "2", "m", "3", "n", "4")
            client.xadd("numbers", {"n": 5, "m": 6})
        ds = ad.Dataset.from_redis_stream(f"redis://127.0.0.1:{server.port}", "numbers", group=group, follow=False)
        with ds.iterate() as entries:
            assert next(entries) == {"n": b"1"}
            with pytest.raises(ValueError, match="several fields of one name"):
                next(entries)
            assert next(entries) == {"n": b"5", "m": b"6"}
        assert len(list(ds.ignore_errors())) == (2 if group is None else 0)


def test_what_is_removed_before_it_is_read_is_an_error(queue: Queue) -> None:
    queue.send(range(1500))
    with queue.read().prefetch(1).iterate() as numbers:
        assert next(numbers) == 0
        queue.keep(100)
        found = []
        with pytest.raises(ad.DataLossError, match="removed before"):
            while True:
                found.append(next(numbers))
    assert found == [*range(1, FIRST_MESSAGES)]


def test_a_subject_of_nats(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        queue = NatsQueue(server)
        queue.send(range(40))
        assert list(queue.read(subject="numbers.1")) == [*range(1, 40, 2)]
        check_resumes(lambda: queue.read(subject="numbers.1"))


REMOVALS: dict[str, tuple[dict[str, Any], Any]] = {
    "rollup": ({"allow_rollup_hdrs": True}, lambda queue: queue.publish("0", [1501], **{"Nats-Rollup": "sub"})),
    "limit": ({"max_msgs_per_subject": 1500}, lambda queue: queue.publish("0", range(1501, 2701))),
    "purge": ({}, lambda queue: queue.run(lambda stream: stream.purge_stream("numbers", subject="numbers.0"))),
}


@pytest.mark.parametrize("subject", [None, "numbers.0"])
@pytest.mark.parametrize("way", REMOVALS)
def test_messages_of_nats_that_are_removed_behind_one_that_stays_are_counted(
    nats_queue: NatsQueue, monkeypatch: pytest.MonkeyPatch, way: str, subject: str | None
) -> None:
    monkeypatch.setattr("asyncdata.web.nats_stream.WAIT_SECONDS", 0.5)
    config, remove = REMOVALS[way]
    nats_queue.make(**config)
    nats_queue.publish("kept", [0])
    nats_queue.publish("0", range(1, 1501))
    with nats_queue.read(subject=subject).prefetch(1).iterate() as numbers:
        first = next(numbers)
        remove(nats_queue)
        found = taken(numbers)
    lost = [item for item in found if not isinstance(item, int)]
    there = [item for item in found if isinstance(item, int)]
    assert lost == [failed(MessagesRemovedError())]
    last = {"rollup": [1501], "limit": [*range(1201, 2701)], "purge": []}[way]
    assert [first, *there] == [*range(first, first + FIRST_MESSAGES), *last]


@pytest.mark.parametrize("subject", [None, "numbers.0"])
def test_the_error_says_how_many_messages_of_nats_were_removed(nats_queue: NatsQueue, subject: str | None) -> None:
    nats_queue.make(allow_rollup_hdrs=True)
    nats_queue.publish("kept", [0])
    nats_queue.publish("0", range(1, 1501))
    with nats_queue.read(subject=subject).prefetch(1).iterate() as numbers:
        next(numbers)
        nats_queue.publish("0", [1501], **{"Nats-Rollup": "sub"})
        removed = 1500 - FIRST_MESSAGES + (subject is None)
        with pytest.raises(ad.DataLossError, match=f": {removed} messages were removed before they were read"):
            list(numbers)


@pytest.mark.parametrize("subject", [None, "numbers.1"])
def test_messages_of_nats_that_a_limit_removed_before_reading_began_are_not_missed(
    nats_queue: NatsQueue, subject: str | None
) -> None:
    nats_queue.make(max_msgs_per_subject=2)
    nats_queue.send(range(30))
    expected = [28, 29, 26, 27] if subject is None else [27, 29]
    assert sorted(nats_queue.read(subject=subject)) == sorted(expected)
    check_resumes(lambda: nats_queue.read(subject=subject))
    nats_queue.send([30, 31])
    assert sorted(nats_queue.read(subject=subject)) == ([28, 29, 30, 31] if subject is None else [29, 31])


def test_a_subject_of_nats_of_which_nothing_comes_for_long_loses_nothing(
    nats_queue: NatsQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the others of the stream are removed by its limits."""
    monkeypatch.setattr("asyncdata.web.nats_stream.WAIT_SECONDS", 0.2)
    nats_queue.make(max_msgs=10)
    nats_queue.publish("rare", [0])
    waited, ends = threading.Semaphore(0), NatsReader.check_end

    def check_end(self: NatsReader, state: Any) -> None:
        ends(self, state)
        waited.release()

    monkeypatch.setattr(NatsReader, "check_end", check_end)
    with nats_queue.read(subject="numbers.rare", follow=True).iterate() as numbers:
        assert next(numbers) == 0
        for number in range(1, 4):
            nats_queue.publish("often", range(8))
            for _ in range(2):
                assert waited.acquire(timeout=60)
            nats_queue.publish("often", range(8))
            for _ in range(2):
                assert waited.acquire(timeout=60)
            nats_queue.publish("rare", [number])
            assert next(numbers) == number


@pytest.mark.parametrize(
    "limits",
    [{"max_batch": 10}, {"max_expires": 10**9}, {"max_ack_pending": 7}, {"max_batch": 3, "max_expires": 10**8}],
)
@pytest.mark.parametrize("follow", [False, True])
def test_a_durable_consumer_of_nats_is_asked_for_what_it_allows(
    nats_queue: NatsQueue, limits: dict[str, int], follow: bool
) -> None:
    nats_queue.send(range(35))
    nats_queue.make_consumer("trainers", **limits)
    if not follow:
        assert list(nats_queue.read("trainers")) == [*range(35)]
    with nats_queue.read("trainers", follow=True).iterate() as numbers:
        assert not follow or taken(numbers, 35) == [*range(35)]
        nats_queue.send([35])
        assert next(numbers) == 35


def test_a_durable_consumer_of_nats_that_is_made_anew_is_an_error(
    nats_queue: NatsQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncdata.web.nats_stream.WAIT_SECONDS", 0.2)
    nats_queue.send(range(5))
    for again in (False, True):
        with nats_queue.read(f"trainers{again}", follow=True).iterate() as numbers:
            assert taken(numbers, 5) == [*range(5)]
            nats_queue.run(lambda stream, again=again: stream.delete_consumer("numbers", f"trainers{again}"))
            if again:
                nats_queue.make_consumer(f"trainers{again}")
            with pytest.raises(ad.DataLossError, match=r"consumer 'trainers.*' was deleted"):
                next(numbers)


def test_a_server_of_nats_that_forgets_acknowledgements_repeats_nothing(nats_queue: NatsQueue) -> None:
    """It stores them some time after it has got them."""
    nats_queue.send(range(300))
    with nats_queue.read("trainers", follow=True).iterate() as numbers:
        found = taken(numbers, 150)
        nats_queue.server.kill()
        nats_queue.server.start()
        nats_queue.send([300])
        assert found + taken(numbers, 151) == [*range(301)]


def test_what_a_reader_of_nats_that_died_had_comes_again_before_the_end(
    nats_queue: NatsQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def receive(stream: Any) -> None:
        subscription = await stream.pull_subscribe_bind(consumer="trainers", stream="numbers")
        assert len(await subscription.fetch(10)) == 10

    monkeypatch.setattr("asyncdata.web.nats_stream.WAIT_SECONDS", 0.2)
    nats_queue.send(range(30))
    nats_queue.make_consumer("trainers", ack_wait=10**9)
    nats_queue.run(receive)
    assert list(nats_queue.read("trainers")) == [*range(10, 30), *range(10)]


def test_what_a_durable_consumer_of_nats_gives_up_does_not_come_and_is_not_waited_for(
    nats_queue: NatsQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit of deliveries is one, and the reader that got ten messages died."""

    async def receive(stream: Any) -> None:
        subscription = await stream.pull_subscribe_bind(consumer="trainers", stream="numbers")
        assert len(await subscription.fetch(10)) == 10

    monkeypatch.setattr("asyncdata.web.nats_stream.WAIT_SECONDS", 0.2)
    nats_queue.send(range(30))
    nats_queue.make_consumer("trainers", ack_wait=10**9, max_deliver=1)
    nats_queue.run(receive)
    requested, requests = NatsReader.requested, count()

    async def counted(self: NatsReader) -> list[Any]:
        next(requests)
        return await requested(self)

    monkeypatch.setattr(NatsReader, "requested", counted)
    assert list(nats_queue.read("trainers")) == [*range(10, 30)]
    assert next(requests) < 20  # it waits for `ack_wait`, a second, in requests of 0.2 s


@pytest.mark.parametrize("group", [None, "trainers"])
@pytest.mark.parametrize("again", [False, True])
def test_a_stream_of_nats_in_memory_that_is_gone_after_a_restart_is_an_error(
    nats_queue: NatsQueue, monkeypatch: pytest.MonkeyPatch, group: str | None, again: bool
) -> None:
    """Also if it was made again, and has more messages than were read."""
    monkeypatch.setattr("asyncdata.web.nats_stream.WAIT_SECONDS", 0.2)
    nats_queue.make(storage="memory")
    nats_queue.send(range(5))
    with nats_queue.read(group, follow=True).iterate() as numbers:
        assert taken(numbers, 5) == [*range(5)]
        state = None if group else numbers.state_dict()
        nats_queue.server.kill()
        nats_queue.server.start()
        if again:
            nats_queue.make(storage="memory")
            nats_queue.send(range(100, 110))
        assert taken(numbers) == [failed(ad.DataLossError())]
    if state is not None:
        with pytest.raises((ad.DataLossError, ad.ResumeError), match="deleted, and perhaps made anew"):
            list(nats_queue.read().iterate(state=state))


def test_a_push_consumer_of_nats_is_refused(nats_queue: NatsQueue) -> None:
    nats_queue.send(range(5))
    nats_queue.make_consumer("trainers", deliver_subject="inbox")
    with pytest.raises(ad.PlanError, match=r"push consumer, .* 'inbox'.* name of a pull consumer"):
        list(nats_queue.read("trainers"))


def test_a_durable_consumer_of_another_subject_is_refused(nats_queue: NatsQueue) -> None:
    nats_queue.send(range(6))
    nats_queue.make_consumer("trainers", filter_subject="numbers.0")
    nats_queue.make_consumer("all")
    with pytest.raises(ad.PlanError, match=r"selects numbers.0, and subject= is 'numbers.1'"):
        list(nats_queue.read("trainers", subject="numbers.1"))
    with pytest.raises(ad.PlanError, match="selects all subjects"):
        list(nats_queue.read("all", subject="numbers.1"))
    assert list(nats_queue.read("trainers", subject="numbers.0")) == [0, 2, 4]
    nats_queue.send([6])
    assert list(nats_queue.read("trainers")) == [6]


def test_a_stream_of_nats_that_is_not_there_is_an_error(nats_queue: NatsQueue) -> None:
    for follow in (False, True):
        with pytest.raises(ad.PlanError, match="no such stream"):
            list(nats_queue.read(follow=follow))


def test_a_consumer_that_nats_removes_while_nobody_reads_is_made_again(tmp_path: Path) -> None:
    """As a server does after five seconds without a request."""

    async def remove(stream: Any) -> None:
        for consumer in await stream.consumers_info("numbers"):
            await stream.delete_consumer("numbers", consumer.name)

    with nats_server(tmp_path) as server:
        queue = NatsQueue(server)
        queue.send(range(2500))
        for follow in (False, True):
            with queue.read(follow=follow).prefetch(1).iterate() as numbers:
                found = [next(numbers)]
                queue.run(remove)
                found += [next(numbers) for _ in range(2499)]
            assert found == [*range(2500)]


def test_a_server_of_nats_that_is_slow_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers the first request when that is no longer waited for; its messages come later."""
    monkeypatch.setattr("asyncdata.web.nats_stream.WAIT_SECONDS", 0.1)
    subscription = nats.js.JetStreamContext.PullSubscription
    fetch, given_up = subscription.fetch, list[str]()

    async def slowed(self: Any, *arguments: Any) -> Any:
        if given_up:
            return await fetch(self, *arguments)
        server.process.send_signal(signal.SIGSTOP)
        os.waitpid(server.process.pid, os.WUNTRACED)
        try:
            return await fetch(self, *arguments)
        except nats.errors.TimeoutError:
            given_up.append("the first")
            raise
        finally:
            server.process.send_signal(signal.SIGCONT)

    monkeypatch.setattr(subscription, "fetch", slowed)
    with nats_server(tmp_path) as server:
        queue = NatsQueue(server)
        queue.send(range(30))
        assert list(queue.read()) == [*range(30)]
    assert given_up


def test_states_without_what_is_known_are_read(queue: Queue) -> None:
    """As they were before readers counted what was removed."""
    queue.send(range(30))
    with queue.read().iterate() as numbers:
        assert taken(numbers, 10) == [*range(10)]
        state = numbers.state_dict()
    del state["checksum"], state["position"]["state"]["known"], state["position"]["state"]["made"]
    assert list(queue.read().iterate(state=state)) == [*range(10, 30)]
    queue.keep(5)
    with pytest.raises((ad.ResumeError, ad.DataLossError), match="removed"):
        list(queue.read().iterate(state=state))


def test_messages_that_a_step_holds_are_read_again_or_missed(queue: Queue) -> None:
    queue.send(range(30))
    with queue.read().shuffle(9, seed=1).iterate() as numbers:
        found = taken(numbers, 10)
        state = numbers.state_dict()
    assert sorted([*found, *queue.read().shuffle(9, seed=1).iterate(state=state)]) == [*range(30)]
    with queue.read(follow=True).shuffle(9, seed=1).iterate(state=state) as numbers:
        assert len({*found, *taken(numbers, 11)}) == 21
    queue.keep(25)
    with pytest.raises(ad.ResumeError):
        list(queue.read().shuffle(9, seed=1).iterate(state=state))


def test_a_state_is_of_one_queue(queue: Queue) -> None:
    queue.send(range(3))
    with queue.read().iterate() as numbers:
        next(numbers)
        state = numbers.state_dict()
    with pytest.raises(ad.ResumeError):
        list(queue.read("trainers").iterate(state=state))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://x", "s"), "URL that begins with"),
        (("redis://x", ""), r"\(stream=\) must be a name"),
    ],
)
def test_wrong_arguments_of_redis(arguments: tuple[str, str], message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ad.Dataset.from_redis_stream(*arguments)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ad.PlanError, match="'oldest' or 'new'"):
        ad.Dataset.from_nats("nats://x", "s", start="first")  # type: ignore[arg-type]
    for how in ({"stream": "a.b"}, {"durable": "a.b"}, {"durable": "all *"}, {"subject": "a..b"}, {"subject": "a b"}):
        with pytest.raises(ad.PlanError, match=rf"from_nats\({next(iter(how))}=\) must be"):
            ad.Dataset.from_nats("nats://x", **{"stream": "s", **how})
    with redis_server(tmp_path) as server, pytest.raises(ad.PlanError, match="no such stream"):
        list(RedisQueue(server).read())


def test_a_client_that_writes_to_a_connection_that_was_just_closed_connects_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop raises a RuntimeError then, which no client makes a ConnectionError."""
    queue.send(range(2100))  # more than are read at once
    reader = RedisReader if isinstance(queue, RedisQueue) else NatsReader
    receive, calls, errors = reader.receive, count(), list[RuntimeError]()

    async def receive_after_one_error(self: Any) -> Any:
        if next(calls) == 1:
            _, writer = await asyncio.open_connection("127.0.0.1", queue.server.port)
            writer.transport.abort()
            await writer.wait_closed()
            try:
                writer.write_eof()
            except RuntimeError as error:
                errors.append(error)
                raise
        return await receive(self)

    monkeypatch.setattr(reader, "receive", receive_after_one_error)
    assert list(queue.read(follow=True).take(2100)) == list(range(2100))
    assert len(errors) == 1

"""commit_kafka: offsets of a saved state, committed for tools that show how far a consumer group lags behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from asyncdata.errors import PlanError
from asyncdata.system.optional_packages import require
from asyncdata.web.folder import mappings_in
from asyncdata.web.kafka_client import EXTRA, client_arguments, reason_of, words_of
from asyncdata.web.sources import kafka_source, name_for

__all__ = ("commit_kafka",)

ANSWER_SECONDS: Final = 10.0
"""How long the broker may take to say why it could not be reached."""


def commit_kafka(
    servers: str, topic: str, state: Mapping[str, Any], group: str, *, client: Mapping[str, Any] | None = None
) -> dict[int, int]:
    """Commit how far a saved state has come in a topic, for tools that watch the lag of consumer groups.

    Call it when `state`, or the checkpoint that contains it, is saved. Returns the offset that was committed of each
    partition: that of the first record that a run resumed from `state` reads, so records that a `shuffle` or an
    incomplete batch holds are not counted as delivered. `from_kafka` itself never reads what is committed. `client` are
    the arguments of `from_kafka`. It opens a connection and blocks until the broker has answered: in a coroutine call
    it by `asyncio.to_thread`. `ConnectionError` if the broker cannot be reached. Needs `pip install
    'asyncdata[kafka]'`.

    >>> import asyncdata as ad
    >>> ad.web.commit_kafka("localhost:9092", "samples", {"position": []}, "trainers")
    Traceback (most recent call last):
    asyncdata.errors.PlanError: commit_kafka: the state has no offset in the topic 'samples'
    """
    source = kafka_source(servers, topic, "oldest", False, 300.0, client, "commit_kafka")
    name_for("commit_kafka", "group", group)
    offsets: dict[int, int] = {}
    for partition, offset in offsets_in(state, source.label()):
        offsets[partition] = min(offset, offsets.get(partition, offset))
    if not offsets:
        raise PlanError(f"commit_kafka: the state has no offset in the topic {topic!r}")
    asyncio.run(commit(source.servers, topic, group, offsets, source.client))
    return offsets


def offsets_in(state: object, label: str) -> Iterator[tuple[int, int]]:
    """Yield the partitions and offsets of a topic that a state contains, at any depth."""
    for named in mappings_in(state):
        if named.get("queue") == label:
            yield from ((int(partition), offset) for partition, offset in named.get("next", {}).items())
            if "partition" in named:
                yield named["partition"], named["offset"]


async def commit(servers: str, topic: str, group: str, offsets: Mapping[int, int], client: Mapping[str, Any]) -> None:
    """Commit offsets in the name of a group, of which no member needs to be there."""
    kafka: Any = require("aiokafka", "commit_kafka", EXTRA)
    given = client_arguments(client)
    consumer = kafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False, **given)
    try:
        await consumer.start()
        places = {kafka.TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        consumer.assign(list(places))
        await consumer.commit(places)
    except kafka.errors.KafkaConnectionError as error:
        reason = await reason_of(servers, given, ANSWER_SECONDS) or error
        raise ConnectionError(f"commit_kafka: {words_of(reason)}") from reason
    finally:
        await consumer.stop()

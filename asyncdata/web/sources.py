"""The sources for channels, streams and queues, from the arguments of the methods."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any, Final, cast
from urllib.parse import urlsplit

from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.graph.node import Node
from asyncdata.redaction import redacted
from asyncdata.web.channel import Channel
from asyncdata.web.decoding import Decode
from asyncdata.web.durable import DurableChannel
from asyncdata.web.folder import local_folder
from asyncdata.web.http_stream import HttpStream
from asyncdata.web.kafka_topic import KafkaTopic
from asyncdata.web.nats_stream import NatsStream
from asyncdata.web.queue_reader import Begin
from asyncdata.web.queued import Queued
from asyncdata.web.received import Freshness, Received
from asyncdata.web.redis_stream import RedisStream
from asyncdata.web.schema import Schema, schema_for
from asyncdata.web.stored import Stored
from asyncdata.web.streamed import HttpStreamed, WebSocketStreamed
from asyncdata.web.websocket_stream import Subscribe, WebSocketStream

__all__ = (
    "channel_source",
    "decode_for",
    "http_stream_source",
    "kafka_source",
    "maker_for",
    "nats_source",
    "redis_source",
    "seconds_for",
    "websocket_source",
)


def channel_source(
    channel: object, freshness: Freshness | None, decode: Any, schema: Any, ack: Any, follow: Any
) -> Node:
    """Return the source for the arguments of `from_channel`."""
    if isinstance(channel, Channel):
        if decode is not None or ack != "state" or not check_flag("from_channel", "follow", follow):
            raise PlanError(
                "from_channel(decode=, ack=, follow=) are for a DurableChannel: a Channel holds items, not bytes, "
                "gives each item once, and ends when it is closed"
            )
        return Received(channel, freshness, schema_for("from_channel", schema))
    if ack not in ("state", "delivered"):
        raise PlanError(f"from_channel(ack=) must be 'state' or 'delivered', got {ack!r:.80}")
    make = maker_for("from_channel", decode, schema)
    return Stored(folder_of(channel), make, freshness, ack, check_flag("from_channel", "follow", follow))


def http_stream_source(
    url: object, decode: Any, headers: Mapping[str, str] | None, idle_seconds: Any, give_up_seconds: Any
) -> Node:
    """Return the source for the arguments of `from_http_stream`."""
    check_url("from_http_stream", url, ("http://", "https://"))
    idle = seconds_for("from_http_stream", "idle_seconds", idle_seconds)
    give_up = seconds_for("from_http_stream", "give_up_seconds", give_up_seconds)
    return HttpStreamed(
        HttpStream(str(url), decode_for("from_http_stream", decode), dict(headers or {}), idle, give_up)
    )


def websocket_source(
    url: object, decode: Any, subscribe: Any, headers: Mapping[str, str] | None, give_up_seconds: Any
) -> Node:
    """Return the source for the arguments of `from_websocket`."""
    check_url("from_websocket", url, ("ws://", "wss://"))
    give_up = seconds_for("from_websocket", "give_up_seconds", give_up_seconds)
    if not (subscribe is None or isinstance(subscribe, (str, bytes)) or callable(subscribe)):
        raise PlanError(f"from_websocket(subscribe=) must be a message or a function, got {subscribe!r:.80}")
    decode = decode_for("from_websocket", decode)
    first = cast("Subscribe | None", subscribe)
    return WebSocketStreamed(WebSocketStream(str(url), decode, first, dict(headers or {}), give_up))


def redis_source(
    url: object, stream: object, start: object, group: object, consumer: object, follow: object, give_up_seconds: Any
) -> Node:
    """Return the source for the arguments of `from_redis_stream`."""
    method = "from_redis_stream"
    check_url(method, url, ("redis://", "rediss://", "unix://"))
    name, named = name_for(method, "stream", stream), None if group is None else name_for(method, "group", group)
    begin, follows = begin_for(method, start), check_flag(method, "follow", follow)
    give_up = seconds_for(method, "give_up_seconds", give_up_seconds)
    who = name_for(method, "consumer", consumer)
    return Queued(RedisStream(str(url), name, begin, named, who, follows, give_up))


def nats_source(
    url: object, stream: object, subject: object, start: object, durable: object, follow: object, give_up_seconds: Any
) -> Node:
    """Return the source for the arguments of `from_nats`."""
    method = "from_nats"
    check_url(method, url, ("nats://", "tls://", "ws://", "wss://"))
    name, named = nats_name("stream", stream), None if durable is None else nats_name("durable", durable)
    about = None if subject is None else name_for(method, "subject", subject)
    if about is not None and not SUBJECT.fullmatch(about):
        raise PlanError(f"{method}(subject=) must be names with dots between them, as 'sensors.*', got {about!r:.80}")
    begin, follows = begin_for(method, start), check_flag(method, "follow", follow)
    give_up = seconds_for(method, "give_up_seconds", give_up_seconds)
    return Queued(NatsStream(str(url), name, about, begin, named, follows, give_up))


SUBJECT: Final = re.compile(r"[^\s.]+(?:\.[^\s.]+)*")
NATS_NAME: Final = re.compile(r"[^\s.*>/\\]+")


def nats_name(argument: str, value: object) -> str:
    """Return the name of a stream or consumer; the server would not answer for one with other characters."""
    name = name_for("from_nats", argument, value)
    if not NATS_NAME.fullmatch(name):
        raise PlanError(f"from_nats({argument}=) must be a name without spaces and . * > / \\, got {name!r:.80}")
    return name


def kafka_source(
    servers: object,
    topic: object,
    start: object,
    follow: object,
    give_up_seconds: Any,
    client: object,
    method: str = "from_kafka",
) -> KafkaTopic:
    """Return the source for the arguments of `from_kafka`, or of another function of a topic."""
    where, name = name_for(method, "servers", servers), name_for(method, "topic", topic)
    if not SERVERS.fullmatch(where):  # what it has instead may be secret
        raise PlanError(f"{method}(servers=) must be 'host:port', several with commas; options belong into client=")
    if not TOPIC.fullmatch(name):
        raise PlanError(f"{method}(topic=) must be a name of at most 249 letters, digits, '.', '_' and '-'")
    begin, follows = begin_for(method, start), check_flag(method, "follow", follow)
    if client is not None and not isinstance(client, Mapping):
        raise PlanError(f"{method}(client=) must be a dict of arguments of AIOKafkaConsumer, got {client!r:.80}")
    more = dict(cast("Mapping[str, Any]", client or {}))
    if taken := more.keys() & OWN:
        raise PlanError(f"{method}(client=) may not have {', '.join(sorted(taken))}: the states hold the offsets")
    return KafkaTopic(where, name, begin, follows, seconds_for(method, "give_up_seconds", give_up_seconds), more)


SERVERS: Final = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:.%]+\]):\d+(?:, *(?:[\w.-]+|\[[\da-fA-F:.%]+\]):\d+)*")
TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

OWN: Final = {
    *("auto_offset_reset", "bootstrap_servers", "enable_auto_commit", "group_id", "isolation_level"),
    *("key_deserializer", "value_deserializer"),
}
"""Arguments of the client that from_kafka sets, or that would change records."""


def begin_for(method: str, start: object) -> Begin:
    if start in ("oldest", "new"):
        return start
    raise PlanError(f"{method}(start=) must be 'oldest' or 'new', got {start!r:.80}")


def name_for(method: str, argument: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise PlanError(f"{method}({argument}=) must be a name, got {value!r:.80}")
    return value


def check_url(method: str, url: object, schemes: tuple[str, ...]) -> None:
    if not isinstance(url, str) or not url.startswith(schemes):
        raise PlanError(f"{method} needs a URL that begins with {' or '.join(schemes)}, got {url!r:.80}")
    try:
        _ = urlsplit(url).port
    except ValueError:  # which would show a part of a password with a slash
        raise PlanError(
            f"{method}: the host or port of {redacted(url)!r:.80} cannot be parsed; in a user and password write "
            "special characters percent-encoded, as %2F for a slash"
        ) from None


def seconds_for(method: str, name: str, value: Any) -> float:
    """Return a number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise PlanError(f"{method}({name}=) must be a number of seconds above 0, got {value!r:.80}")
    return float(value)


def decode_for(method: str, decode: Any) -> Decode | None:
    """Return the user's function of bytes, if there is one."""
    if decode is not None and (not callable(decode) or iscoroutinefunction(decode)):
        raise PlanError(f"{method}(decode=) must be a plain function of bytes, got {decode!r:.80}")
    return decode


def maker_for(method: str, decode: Any, schema: Any) -> Decode | Schema | None:
    """Return what makes items from bytes: the user's function, or what reads values of a declared type."""
    if decode is not None and schema is not None:
        raise PlanError(f"{method} takes decode= or schema=, not both: each makes the items")
    return decode_for(method, decode) if schema is None else schema_for(method, schema)


def folder_of(channel: object) -> str:
    """Return the path of a durable channel."""
    if isinstance(channel, DurableChannel):
        return channel.path
    if isinstance(channel, (str, os.PathLike)):
        return local_folder(channel)  # pyright: ignore[reportUnknownArgumentType]
    raise PlanError(f"from_channel needs a Channel, a DurableChannel or the path of one, got {channel!r:.80}")

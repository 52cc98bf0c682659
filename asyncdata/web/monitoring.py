"""Health and metrics of an ingest application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, final

from asyncdata.web.admission import admit
from asyncdata.web.channel_writers import AnyChannel
from asyncdata.web.consumer import Consumer
from asyncdata.web.decoding import BodyError
from asyncdata.web.http import JSON, Ingest, Message, Receive, Send, headers_of, refusal, respond

__all__ = ("Health", "Metrics")

TEXT: Final = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")

HELP: Final = {
    "requests_total": ("counter", "Requests and messages of WebSockets that were answered, by status."),
    "items_total": ("counter", "Items that were taken."),
    "bytes_total": ("counter", "Bytes of bodies that were taken."),
    "duplicates_total": ("counter", "Requests whose idempotency key had been taken before."),
    "admissions_total": ("counter", "Admissions that were given by HTTP."),
    "admissions_expired_total": ("counter", "Admissions that ended because nothing was sent with them in time."),
    "receiving_bytes": ("gauge", "Bytes of bodies that are being received."),
    "websockets": ("gauge", "WebSockets that are open."),
}


OF_CONSUMER: Final = {
    "failed": "Elements that failed in the pipeline and were left out.",
    "dead_letters": "Items of these that were stored as dead letters.",
}


@final
class Health:
    """`GET /health`: 200 while items are accepted and the consumer runs, else 503; without authentication."""

    def __init__(self, channel: AnyChannel, consumer: Consumer | None) -> None:
        self.channel = channel
        self.consumer = consumer

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        wrong = self.wrong()
        answer = {"status": "ok"} if wrong is None else {"status": "unavailable", "reason": wrong}
        await respond(send, 200 if wrong is None else 503, json.dumps(answer).encode(), [JSON])

    def wrong(self) -> str | None:
        if self.channel.closed:
            return "the channel is closed"
        if self.consumer is not None and self.consumer.ended:
            return "the consumer of the channel has ended"
        return None


@final
class Metrics:
    """`GET /metrics`: counts in Prometheus's text format, for the clients that the application serves."""

    def __init__(self, channel: AnyChannel, ingest: Ingest, consumer: Consumer | None) -> None:
        self.channel = channel
        self.ingest = ingest
        self.consumer = consumer

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            await admit(self.ingest.authenticate, scope, headers_of(scope))
        except BodyError as error:
            status, reply = refusal(error)
            await respond(send, status, json.dumps(reply).encode(), [JSON])
            return
        await respond(send, 200, "".join(self.lines()).encode(), [TEXT])

    def lines(self) -> Iterator[str]:
        """Yield the lines of the reply."""
        for name, (kind, what) in HELP.items():
            yield f"# HELP asyncdata_ingest_{name} {what}\n# TYPE asyncdata_ingest_{name} {kind}\n"
            for label, value in self.values(name).items():
                yield f"asyncdata_ingest_{name}{label} {value}\n"
        for name, value in self.channel.stats().items():
            yield f"# TYPE asyncdata_channel_{name} gauge\nasyncdata_channel_{name} {value}\n"
        if self.consumer is not None:
            for name, value in self.consumer.stats().items():
                yield f"# HELP asyncdata_consumer_{name}_total {OF_CONSUMER[name]}\n"
                yield f"# TYPE asyncdata_consumer_{name}_total counter\n"
                yield f"asyncdata_consumer_{name}_total {value}\n"

    def values(self, name: str) -> dict[str, Any]:
        """Return the values of a metric by their labels."""
        counts = self.ingest.counts
        match name:
            case "requests_total":
                return {f'{{status="{status}"}}': count for status, count in sorted(counts.requests.items())}
            case "receiving_bytes":
                return {"": self.ingest.receiving}
            case "admissions_total":
                return {"": self.ingest.leases.given}
            case "admissions_expired_total":
                return {"": self.ingest.leases.expired}
            case "websockets":
                return {"": counts.sockets}
            case _:
                return {"": getattr(counts, name.removesuffix("_total"))}

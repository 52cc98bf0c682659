"""Data from async services into pipelines: channels, ingest applications, streams and queues of other services.

State belongs to the event loop of the service or of the pipeline, unless a class says otherwise. Times are in
seconds, sizes in bytes.
"""

from __future__ import annotations

from asyncdata.web.consumer import Consumer
from asyncdata.web.durable import trim
from asyncdata.web.ingest import ingest_app
from asyncdata.web.kafka_commit import commit_kafka

__all__ = ("Consumer", "commit_kafka", "ingest_app", "trim")

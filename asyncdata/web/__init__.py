"""Data from async services into pipelines: channels, what takes data in, streams and queues of others."""

from __future__ import annotations

from asyncdata.web.consumer import Consumer
from asyncdata.web.durable import trim
from asyncdata.web.ingest import ingest_app

__all__ = ("Consumer", "ingest_app", "trim")

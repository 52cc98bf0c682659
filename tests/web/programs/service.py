"""A service of several workers, each of which has a channel of its own: `uvicorn tests.web.programs.service:app`."""

from __future__ import annotations

import os

import asyncdata as ad

app = ad.web.ingest_app(ad.DurableChannel.for_worker(os.environ["SPOOL"]))

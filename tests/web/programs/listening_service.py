"""Serves a durable channel on a listening socket that it inherits: `listening_service.py FOLDER DESCRIPTOR`."""

from __future__ import annotations

import socket
import sys

import uvicorn

import asyncdata as ad


def main(folder: str, descriptor: str) -> None:
    app = ad.web.ingest_app(ad.DurableChannel(folder, segment_bytes=20_000))
    uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio")).run(
        [socket.socket(fileno=int(descriptor))]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

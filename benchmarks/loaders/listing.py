"""A million keys of a bucket, listed in order and shuffled: seconds to the first name and to the last, and memory.

    python benchmarks/loaders/listing.py [--quick] [--json FILE]

The bucket is a process of our own that answers S3's ListObjectsV2 with pages of 1000 keys. Each run is in a process of
its own, whose largest resident memory is compared with what it had before.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Below, Report, Row, fresh, parse_arguments

__all__ = ("main",)

PAGE = 1000
ENTRY = (
    "<Contents><Key>train/images/{:08}.jpeg</Key><LastModified>2026-11-20T10:00:00.000Z</LastModified>"
    "<ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><Size>60000</Size></Contents>"
)
HEAD = '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'


class Bucket(BaseHTTPRequestHandler):
    """Answers with a page of keys."""

    protocol_version = "HTTP/1.1"
    count = 0

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Give the page behind the token."""
        query = parse_qs(urlsplit(self.path).query)
        begin = int(query.get("continuation-token", ["0"])[0])
        end = min(begin + PAGE, self.count)
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < self.count else ""
        truncated = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
        keys = "".join(map(ENTRY.format, range(begin, end)))
        body = f"{HEAD}{truncated}{keys}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(count: int, port: Any) -> None:
    """Answer until the process is ended; tell the port."""
    Bucket.count = count
    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        port.send(server.server_address[1])
        server.serve_forever()


def read(endpoint: str, shuffle: bool) -> None:
    """List all names; print how many there were, the seconds to the first and the last, and the memory."""
    options = {"endpoint": endpoint, "region": "us-east-1", "skip_signature": True}
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    idle = pages * os.sysconf("SC_PAGESIZE") / 1e6
    begin = time.perf_counter()
    names = ad.Dataset.list_files("s3://bucket/train/**", shuffle=shuffle, seed=0, storage_options=options)
    with names.iterate() as elements:
        next(elements)
        first = time.perf_counter() - begin
        count = 1 + sum(1 for _ in elements)
        elements.state_dict()
    last = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"count": count, "first": first, "last": last, "idle": idle, "peak": peak}))


def main() -> None:
    """Measure both."""
    if sys.argv[1:2] == ["--read"]:
        read(*json.loads(sys.argv[2]))
        return
    arguments = parse_arguments(__doc__ or "")
    count = 3_000 if arguments.quick else 1_000_000
    report = Report(f"{count:,} keys of a bucket")
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(count, theirs), daemon=True)
    server.start()
    endpoint = f"http://127.0.0.1:{mine.recv()}"
    for title, shuffle in {"in order": False, "shuffled": True}.items():
        found = fresh(__file__, "--read", json.dumps([endpoint, shuffle]))
        assert found["count"] == count
        first = Row(f"{title}: the first name", found["first"], "s")
        report.add(first if shuffle else Row(first.name, found["first"], "s", "bar", 1.0, AtMost(1)))
        report.add(Row(f"{title}: the last name, and a state", found["last"], "s"))
        report.add(Row(f"{title}: memory", found["peak"], "MB", "idle", found["idle"], Below(150)))
    server.terminate()
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

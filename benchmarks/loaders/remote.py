"""TFRecord files on a web server: against a raw loop on the same client with as many requests at once, and fsspec.

    python benchmarks/loaders/remote.py [--quick] [--json FILE]

The server is nginx on this machine (apt-get install nginx-light libnginx-mod-http-lua): once as fast as it can,
and once with 100 ms to the first byte and 10 MB/s a connection. Client and server share the cores. The raw loop gets
the same files in parts of 8 MB and drops them; "raw + parser" also takes the records apart, with both checksums.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import obstore
import uvloop
from obstore.store import HTTPStore

import asyncdata as ad
from asyncdata.formats.tfrecord import RecordParser
from asyncdata.storage.limit import Limit
from asyncdata.storage.registry import LIMITS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, parse_arguments

__all__ = ("main",)

FILES = 16
RECORD = 100_000
PART = 8 << 20
BLOCK = 2 << 20

CONFIGURATION = """
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
worker_processes 2; daemon off; pid nginx.pid; error_log error.log warn;
events {{ worker_connections 4096; }}
http {{
  lua_package_path "{lua}/?.lua;;";
  access_log off; sendfile on; tcp_nopush on; sendfile_max_chunk 1m; keepalive_requests 1000000;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server {{ listen 127.0.0.1:{fast}; root data; }}
  server {{ listen 127.0.0.1:{slow}; root data; limit_rate 10m; access_by_lua_block {{ ngx.sleep(0.1) }} }}
}}
"""


@dataclass(frozen=True)
class Server:
    """Where the files are: as fast as it can, and far away."""

    fast: str
    slow: str
    names: list[str]
    size: int


@contextmanager
def nginx(folder: Path, names: list[str], size: int) -> Iterator[Server]:
    """Run nginx over the files in `folder/data`."""
    program = shutil.which("nginx") or sys.exit("nginx is needed: apt-get install nginx-light libnginx-mod-http-lua")
    system = Path(program).resolve().parents[1]
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    fast, slow = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    modules, lua = system / "lib/nginx/modules", system / "share/lua/5.1"
    (folder / "nginx.conf").write_text(CONFIGURATION.format(modules=modules, lua=lua, fast=fast, slow=slow))
    with subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf"]) as process:
        try:
            while process.poll() is None and not listens(slow):
                time.sleep(0.05)
            yield Server(f"http://127.0.0.1:{fast}", f"http://127.0.0.1:{slow}", names, size)
        finally:
            process.terminate()


def listens(port: int) -> bool:
    """Whether somebody answers there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def write_files(folder: Path, megabytes: int) -> int:
    """Write the files, and return how many bytes they have in all."""
    folder.mkdir()
    os.chmod(folder.parent, 0o755)  # nginx's workers are nobody
    random = np.random.default_rng(0)
    records = [random.bytes(RECORD) for _ in range(64)]
    for number in range(FILES):
        with ad.TFRecordWriter(folder / f"{number:02}.tfrecord") as writer:
            for place in range(megabytes * 1_000_000 // RECORD):
                writer.write(records[(place + number) % len(records)])
    return sum(path.stat().st_size for path in folder.iterdir())


def parsed(parser: RecordParser, data: Any) -> int:
    """Take the records out of some bytes; return how many bytes they have."""
    found = 0
    for start in range(0, len(data), BLOCK):
        parser.feed(data[start : start + BLOCK])
        while records := parser.parse(1000):
            found += sum(map(len, records))
    return found


async def raw_loop(base: str, server: Server, at_once: int, parse: bool) -> int:
    """Get all files in parts, so many at once; take them apart in order if that is asked for."""
    store = HTTPStore(base, client_options={"allow_http": True, "timeout": "1h"}, retry_config={"max_retries": 0})
    slots = asyncio.Semaphore(at_once)
    size = server.size // FILES

    async def part(name: str, start: int) -> memoryview:
        async with slots:
            span = (start, min(start + PART, size))
            result = await obstore.get_async(store, name, options={"range": span})
            return memoryview(await result.bytes_async())

    async def file(name: str) -> int:
        parser, done = RecordParser(name), 0
        starts = iter(range(0, size, PART))
        ahead = [asyncio.create_task(part(name, start)) for start in islice(starts, 1 + at_once // FILES)]
        while ahead:
            data = await ahead.pop(0)
            if (start := next(starts, None)) is not None:
                ahead.append(asyncio.create_task(part(name, start)))
            done += parsed(parser, data) if parse else len(data)
        return done

    return sum(await asyncio.gather(*map(file, server.names)))


def by_fsspec(base: str, server: Server) -> int:
    """Read the files by fsspec, each in a thread, and take them apart."""
    system = fsspec.filesystem("http")

    def file(name: str) -> int:
        parser, done = RecordParser(name), 0
        with system.open(f"{base}/{name}", "rb", block_size=PART) as opened:
            while data := opened.read(PART):
                done += parsed(parser, memoryview(data))
        return done

    with ThreadPoolExecutor(FILES) as pool:
        return sum(pool.map(file, server.names))


def by_asyncdata(base: str, server: Server, at_once: int) -> int:
    """Read the files by asyncdata, sixteen in turn, with so many requests at once at most."""
    limit = LIMITS.setdefault(base, Limit())
    limit.now = limit.most = at_once
    urls = [f"{base}/{name}" for name in server.names]
    return sum(map(len, ad.TFRecordDataset(urls, num_parallel_reads=FILES)))


def contenders(base: str, server: Server, at_once: int) -> dict[str, Callable[[], int]]:
    """The ways to read the files."""
    return {
        "raw": lambda: uvloop.run(raw_loop(base, server, at_once, False)),
        "raw + parser": lambda: uvloop.run(raw_loop(base, server, at_once, True)),
        "fsspec": lambda: by_fsspec(base, server),
        "asyncdata": lambda: by_asyncdata(base, server, at_once),
    }


def measured(ways: dict[str, Callable[[], int]], rounds: int) -> dict[str, tuple[float, float]]:
    """Run them by turns; return the median seconds and CPU seconds for a gigabyte of each."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin, busy = time.perf_counter(), time.process_time()
            gigabytes = way() / 1e9
            seconds, busy = time.perf_counter() - begin, time.process_time() - busy
            runs[name].append((seconds / gigabytes, busy / gigabytes))
    return {
        name: (statistics.median(one for one, _ in some), statistics.median(one for _, one in some))
        for name, some in runs.items()
    }


def main() -> None:
    """Measure both servers."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("TFRecord files on a web server: seconds, and CPU seconds of this process, for a gigabyte")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "nginx")
        folder.mkdir()
        os.chmod(scratch, 0o755)
        size = write_files(folder / "data", 8 if arguments.quick else 64)
        names = [f"{number:02}.tfrecord" for number in range(FILES)]
        with nginx(folder, names, size) as server:
            near = measured(contenders(server.fast, server, 16), arguments.rounds(5))
            seconds, busy = near["asyncdata"]
            report.add(Row("no delay, CPU", busy, "s", "raw + parser", near["raw + parser"][1], AtMost(1.5)))
            report.add(Row("no delay, CPU", busy, "s", "fsspec", near["fsspec"][1], AtMost(1)))
            report.add(Row("no delay", seconds, "s", "fsspec", near["fsspec"][0], AtMost(1)))
            for at_once in (16, 32):
                far = measured(contenders(server.slow, server, at_once), arguments.rounds(3))
                name = f"100 ms, 10 MB/s each, {at_once} at once"
                report.add(Row(name, far["asyncdata"][0], "s", "raw", far["raw"][0], AtMost(1 / 0.85)))
                report.add(Row(name, far["asyncdata"][0], "s", "fsspec", far["fsspec"][0], AtMost(1)))
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

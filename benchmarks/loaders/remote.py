"""Records on a server: asyncdata against a raw loop on the same client with as many requests at once, and its peers.

    python benchmarks/loaders/remote.py [--quick] [--json FILE]
    python benchmarks/loaders/remote.py --picture docs/remote-throughput.svg

The server is nginx on this machine (apt-get install nginx-light libnginx-mod-http-lua): once as fast as it can, and
once with 100 ms to the first byte and 10 MB/s a connection. Client and server share the cores. The raw loop gets the
same files in parts of 8 MB and drops them; "raw + parser" also takes the records apart, with both checksums. All run
by turns, each in a process of its own, and so do the peers that are installed (pip install s3fs webdataset
mosaicml-streaming litdata): fsspec and s3fs with a thread for each file, the others with worker processes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, fresh, installed, parse_arguments
from remote_picture import Line, drawn
from remote_ways import FILES, Job, write_records

__all__ = ("main",)

PEERS = ("fsspec", "s3fs", "webdataset", "mosaicml-streaming", "litdata")
OURS = ("raw", "raw + parser", "asyncdata")
CONCURRENCY = (1, 2, 4, 8, 16, 32)

CONFIGURATION = """
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
worker_processes 2; daemon off; pid nginx.pid; error_log error.log warn;
events {{ worker_connections 4096; }}
http {{
  default_type application/octet-stream;
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
    folder: str


@contextmanager
def nginx(folder: Path) -> Iterator[Server]:
    """Run nginx over what is in `folder/data`."""
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
            yield Server(f"http://127.0.0.1:{fast}", f"http://127.0.0.1:{slow}", str(folder / "data"))
        finally:
            process.terminate()


def listens(port: int) -> bool:
    """Whether somebody answers there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def served(megabytes: int, peers: Sequence[str]) -> Iterator[Server]:
    """Serve records, sixteen files of so many megabytes."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "nginx")
        folder.mkdir()
        os.chmod(scratch, 0o755)
        write_records(folder / "data", megabytes, peers)
        with nginx(folder) as server:
            yield server


def measured(jobs: Sequence[Job], rounds: int) -> dict[str, tuple[float, float]]:
    """Do the jobs by turns; return the median seconds and processor seconds for a gigabyte of each."""
    runs: dict[str, list[tuple[float, float]]] = {job.way: [] for job in jobs}
    for _ in range(rounds):
        for job in jobs:
            found = fresh(WAYS, json.dumps(asdict(job)))
            gigabytes = found["bytes"] / 1e9
            runs[job.way].append((found["seconds"] / gigabytes, found["busy"] / gigabytes))
    return {
        name: (statistics.median(one for one, _ in some), statistics.median(one for _, one in some))
        for name, some in runs.items()
    }


WAYS = str(Path(__file__).with_name("remote_ways.py"))


def draw(server: Server, file: Path, rounds: int) -> None:
    """Measure megabytes a second for numbers of requests at once, and draw them."""
    points: dict[str, list[tuple[int, float]]] = {"raw": [], "asyncdata": [], "fsspec": []}
    for at_once in CONCURRENCY:
        files = min(at_once, FILES)
        jobs = [Job(way, server.slow, server.folder, at_once, files) for way in points]
        for way, (seconds, _) in measured(jobs, rounds).items():
            points[way].append((at_once, 1000 / seconds))
            print(at_once, way, f"{1000 / seconds:.1f} MB/s", flush=True)
    lines = [Line(name, some) for name, some in points.items()]
    file.write_text(drawn(lines, "requests at once", "MB/s, with 100 ms to the first byte and 10 MB/s a connection"))


def main() -> None:
    """Measure both servers, or draw."""
    if sys.argv[1:2] == ["--picture"]:
        with served(64, ()) as server:
            draw(server, Path(sys.argv[2]), 3)
        return
    arguments = parse_arguments(__doc__ or "")
    report = Report("Records on a server: seconds, and CPU seconds of the client, for a gigabyte")
    peers = [] if arguments.quick else [*installed(PEERS)]
    with served(4 if arguments.quick else 64, ()) as server:
        against_raw(report, server, arguments.rounds(5))
    with served(32, peers) as server:
        against_peers(report, server, peers, arguments.rounds(3))
    report.finish(arguments.json)


def against_raw(report: Report, server: Server, rounds: int) -> None:
    """Compare with the raw loop."""
    near = measured([Job(way, server.fast, server.folder) for way in OURS], rounds)
    report.add(Row("no delay, CPU", near["asyncdata"][1], "s", "raw + parser", near["raw + parser"][1], AtMost(1.5)))
    report.add(Row("no delay", near["asyncdata"][0], "s", "raw + parser", near["raw + parser"][0]))
    for at_once in (16, 32):
        far = measured([Job(way, server.slow, server.folder, at_once) for way in ("raw", "asyncdata")], rounds)
        name = f"100 ms, 10 MB/s each, {at_once} at once"
        report.add(Row(name, far["asyncdata"][0], "s", "raw", far["raw"][0], AtMost(1 / 0.85)))


def against_peers(report: Report, server: Server, peers: Sequence[str], rounds: int) -> None:
    """Compare with others."""
    for name, base, at_once in (("no delay", server.fast, 2), ("100 ms, 10 MB/s each", server.slow, FILES)):
        jobs = [Job(way, base, server.folder, FILES if way in IN_ONE_PROCESS else at_once) for way in peers]
        found = measured([Job("asyncdata", base, server.folder), *jobs], rounds)
        for peer in peers:
            report.add(Row(name, found["asyncdata"][0], "s", peer, found[peer][0], AtMost(1)))


IN_ONE_PROCESS = ("fsspec", "s3fs")
"""Peers that read in threads; others have as many processes as there are cores, or requests where they wait."""


if __name__ == "__main__":
    main()

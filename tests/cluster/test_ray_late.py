"""On Ray itself: a worker that is stopped, a node whose link is cut, and a head that demands a token."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.cluster import ray_transport
from asyncdata.cluster.transport import CALLS
from asyncdata.errors import StageError
from tests.cluster.test_ray import ROOT, with_pid

REASONS = (
    RuntimeError("Last connection error: RPC error: InvalidAuthToken: Authentication token is missing or incorrect"),
    ValueError("Token authentication is enabled but no authentication token was found."),
)


@pytest.mark.parametrize("reason", REASONS)
def test_a_head_that_demands_a_token_is_told_with_the_cure(reason: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> None:
        raise ConnectionError("Failed to connect to Ray cluster at 192.0.2.1:6379") from reason

    monkeypatch.setattr(ray_transport, "ray_of", lambda: SimpleNamespace(is_initialized=lambda: False, init=refuses))
    with pytest.raises(StageError, match="demands a token.* RAY_AUTH_MODE=token.*RAY_AUTH_TOKEN"):
        ray_transport.RayTransport(ad.Cluster(), CALLS)


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_a_stopped_worker_is_not_waited_for(ray: Any) -> None:
    """Ray takes no note of one: without another actor the pipeline would wait for ever."""
    ds = ad.Dataset.range(4000).map(with_pid, num_parallel_calls=2)
    stopped, found = 0, list[int]()
    try:
        for number, pid, _ in ds.with_options(ad.Options(cluster=ad.Cluster(calls=2, num_cpus=0.75))):
            found.append(number)
            if len(found) == 1500:
                stopped = pid
                os.kill(pid, signal.SIGSTOP)
    finally:
        if stopped:
            os.kill(stopped, signal.SIGCONT)
    assert found == [*range(4000)]


NAMES = "asyncdata-a", "asyncdata-b"


@contextlib.contextmanager
def two_machines() -> Generator[None]:
    """Two network namespaces with a link between them, 10.77.9.1 and 10.77.9.2."""
    a, b = NAMES
    lines = [
        f"netns add {a}",
        f"netns add {b}",
        f"-n {a} link add va type veth peer name vb netns {b}",
        f"-n {a} addr add 10.77.9.1/24 dev va",
        f"-n {b} addr add 10.77.9.2/24 dev vb",
        *(f"-n {name} link set {link} up" for name, link in ((a, "lo"), (b, "lo"), (a, "va"), (b, "vb"))),
    ]
    try:
        for line in lines:
            subprocess.run(["ip", *line.split()], check=True, capture_output=True)
        yield
    finally:
        for name in NAMES:
            told = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for pid in told.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


CUT = """
import json, os, subprocess, sys, time, ray, asyncdata as ad

def work(n):
    time.sleep(0.004)
    return n

def build(kind):
    if kind == "calls":
        return ad.Dataset.range(2400).map(work, num_parallel_calls=4)
    part = lambda n: ad.Dataset.range(200 * n, 200 * n + 200).map(work)
    return ad.Dataset.range(12).interleave(part, 4, num_parallel_calls=4)

ray.init(address="10.77.9.1:6390", log_to_driver=False, logging_level="ERROR")
for kind, where in (("calls", ad.Cluster(calls=4)), ("runs", ad.Cluster(calls=0, runs=4))):
    expected = list(build(kind))
    found, longest, last = [], 0.0, None
    with build(kind).with_options(ad.Options(cluster=where)).iterate() as elements:
        for n in elements:
            longest = max(longest, time.monotonic() - (last or time.monotonic()))
            found.append(n)
            if len(found) == 500:
                subprocess.run(["ip", "link", "set", "va", "down"], check=True)
            if len(found) == 1200:
                state = json.loads(json.dumps(elements.state_dict()))
            last = time.monotonic()
    subprocess.run(["ip", "link", "set", "va", "up"], check=True)
    exact = found == expected == found[:1200] + list(build(kind).iterate(state=state))
    print(kind, exact, longest < 10, flush=True)
os._exit(0)
"""


def can_have_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(not can_have_namespaces(), reason="needs root and ip")
def test_a_node_whose_link_is_cut_costs_seconds_and_nothing_else(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}
    start = [str(Path(sys.executable).with_name("ray")), "start", "--num-cpus=2", "--object-store-memory=100000000"]
    folder = Path("/tmp") / f"asyncdata-{os.getpid()}"  # the names of Ray's sockets must be short
    head = ["--head", "--port=6390", "--include-dashboard=false", f"--temp-dir={folder}", "--node-ip-address=10.77.9.1"]
    worker = ["--address=10.77.9.1:6390", "--node-ip-address=10.77.9.2"]
    with two_machines():
        for name, arguments in zip(NAMES, (head, worker), strict=True):
            command = ["ip", "netns", "exec", name, *start, *arguments]
            with (tmp_path / "log").open("w") as log:
                subprocess.run(command, env=environment, stdout=log, stderr=log, check=True, timeout=100)
        command = ["ip", "netns", "exec", NAMES[0], sys.executable, "-c", CUT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)
    shutil.rmtree(folder, ignore_errors=True)
    assert done.stdout.splitlines() == ["calls True True", "runs True True"], done.stderr[-2000:]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ray_says_what_a_missing_token_is_known_by(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    ray = str(Path(sys.executable).with_name("ray"))
    folder = Path("/tmp") / f"asyncdata-{os.getpid()}"
    server = {**os.environ, "HOME": str(tmp_path), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 40}
    head = [ray, "start", "--head", "--port=6391", "--include-dashboard=false", f"--temp-dir={folder}", "--block"]
    program = (
        "import asyncdata as ad\nlist(ad.Dataset.range(3).map(abs, 2).with_options(ad.Options(cluster=ad.Cluster())))"
    )
    client = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path / "client"), "RAY_ADDRESS": "127.0.0.1:6391"}
    client.pop("RAY_AUTH_MODE", None)
    with (tmp_path / "log").open("w") as log:
        started = subprocess.Popen(head, env=server, stdout=log, stderr=log, start_new_session=True)
        try:
            told = [
                subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
                for env in (client, {**client, "RAY_AUTH_MODE": "token"})
            ]
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait(60)
    shutil.rmtree(folder, ignore_errors=True)
    for done in told:
        assert "StageError: the Ray cluster demands a token" in done.stderr, done.stderr[-2000:]

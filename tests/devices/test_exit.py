"""The interpreter exits while something is copied to a device: it waits until the thread is out of the library."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, threading
import asyncdata as ad
from asyncdata.devices.simulated import Accelerator, SimulatedDevice

entered, may_go_on, send, calls = threading.Event(), threading.Event(), SimulatedDevice.send, []

def slow(self, leaves, into):
    calls.append(leaves)
    if len(calls) > 1:
        entered.set()
        may_go_on.wait()
        sum(range(3_000_000))
        print("sent", flush=True)
    return send(self, leaves, into)

SimulatedDevice.send = slow
batches = iter(ad.Dataset.range(8).batch(2).prefetch_to_device(Accelerator()))
next(batches)
entered.wait()
atexit.register(may_go_on.set)  # called before what waits for the thread
"""


@pytest.mark.parametrize("line", ["", "del batches"])
def test_a_copy_is_waited_for_at_exit(line: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM + line], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("sent\n", "")

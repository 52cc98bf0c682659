"""Only the end of the data is `StopIteration`: an iterator that was stopped from elsewhere says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import asyncdata as ad
from tests.marks import first_by_default

ROOT = Path(__file__).parents[1]
PLACEMENTS = pytest.mark.parametrize("placement", ["thread", "process", "current"])


@pytest.mark.parametrize(
    "arguments",
    first_by_default(
        [
            "thread plain daemon for",
            "process plain daemon for",
            "thread plain daemon async",
            "thread process thread for",
            "thread threads daemon for",
            "thread process daemon for",
            "current plain daemon for",
            "process plain daemon async",
            "thread plain daemon tee",
            "current process thread for",
        ],
        2,
    ),
)
def test_a_reader_that_the_exit_stops_is_told(arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "faults" / "ending.py"), *arguments.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("ClosedError"), done
    assert "interpreter is exiting" in done.stdout
    assert done.returncode == 0


@PLACEMENTS
@pytest.mark.parametrize("leave", ["close", "load_state_dict"])
def test_a_reader_that_another_thread_stops_is_told(placement: Any, leave: str) -> None:
    elements = ad.Dataset.counter().with_options(ad.Options(placement=placement)).iterate()
    begun, ended = threading.Event(), list[BaseException | None]()

    def read() -> None:
        try:
            for _ in elements:
                begun.set()
        except Exception as error:
            ended.append(error)
        else:
            ended.append(None)

    state = elements.state_dict()
    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    if leave == "close":
        elements.close()
    else:
        elements.load_state_dict(state)
        elements.close()
    reader.join()
    assert [type(error) for error in ended] == [ad.ClosedError]


@PLACEMENTS
def test_an_engine_that_was_stopped_is_not_the_end(placement: Any) -> None:
    elements = ad.Dataset.counter().with_options(ad.Options(placement=placement)).iterate()
    next(elements)
    vars(elements)["_reader"].abandon()
    for _ in range(2):  # every time
        with pytest.raises(ad.ClosedError, match="not the end of the data"):
            for _ in elements:
                pass
    assert elements.state_dict()["delivered"] > 0
    elements.close()


@PLACEMENTS
def test_the_end_is_the_end(placement: Any) -> None:
    elements = ad.Dataset.range(3).with_options(ad.Options(placement=placement)).iterate()
    assert list(elements) == [0, 1, 2]
    assert list(elements) == []
    vars(elements)["_reader"].abandon()
    assert list(elements) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what is raised in a finalizer
@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_signal_handler_that_raises_does_not_lock_the_iterator(placement: Any) -> None:
    """Signals come at every place of the reading: an interval timer fires while elements are asked for."""

    def handler(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_globals["__name__"].startswith("asyncdata"):  # not in this test itself
            raise TimeoutError("alarm")

    before = signal.signal(signal.SIGALRM, handler)
    elements = ad.Dataset.counter().batch(64).with_options(ad.Options(placement=placement)).iterate()
    came = 0
    try:
        next(elements)
        signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
        while came < 50:
            try:
                next(elements)
            except TimeoutError:
                came += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    next(elements)
    elements.close()


def test_datasets_that_are_only_built_hold_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        ad.Dataset.range(3).map(abs, num_parallel_calls=17, executor="process")
    assert len(os.listdir("/proc/self/fd")) <= before

"""Hypothesis profiles, event loops to run on, and the check that a test leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import uvloop
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, given, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.detection import is_hypothesis_test
from hypothesis.strategies import none

from tests.marks import MARKERS, asked_for, markers_in
from tests.pages import as_printed_here

collect_ignore = ["faults"]  # programs for tests/test_interpreter.py

LAWS = pytest.StashKey[bool]()
"""Whether the long versions of the laws are asked for."""

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=150, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.register_profile("short", settings.get_profile("ci"), max_examples=20)
settings.register_profile("long", settings.get_profile("ci"), derandomize=False, max_examples=10_000)


def pytest_configure(config: pytest.Config) -> None:
    """Load a Hypothesis profile, before test modules ask for its number of examples: `-m laws` has the long version of
    each law.

    Have Ctrl-C interrupt also where a shell that runs the tests in the background has it ignored: the programs that
    tests start inherit that.

    Keep bytecode in a folder for a while where none may be kept: each of many programs would compile the package anew.
    """
    config.stash[LAWS] = re.search(r"(?<!not )\blaws\b", config.option.markexpr) is not None
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if config.stash[LAWS] else "short"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # all that is collected stays: to look for garbage in it took a third of the time
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = TemporaryDirectory(prefix="asyncdata-bytecode-")
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder.name
        sys.dont_write_bytecode = False
        config.add_cleanup(folder.cleanup)


@pytest.hookimpl(trylast=True)  # Hypothesis itself begins then
def pytest_sessionstart() -> None:
    """Have Hypothesis draw constants of the modules that are loaded now alone: with those of modules that are loaded
    later, its examples would depend on which tests ran before in the same process.

    Then a first law, while there are few objects: Hypothesis looks through all for those that refer to the generators
    that it keeps, and warns if `gc` no longer looks at these.
    """
    names, function = vars(providers), "_get_local_constants"
    if function in names:
        constants = names[function]()
        names[function] = lambda: constants
    given(none())(lambda _: None)()


def pytest_xdist_auto_num_workers() -> int:
    """Return what `-n auto` means: one more than there are cores, as many tests wait for processes that they start."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules without tests that `-m` asks for: to import all takes ten seconds in each process."""
    if collection_path.suffix != ".py" or asked_for(config.option.markexpr, markers_in(collection_path)):
        return None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Look for doctests where there is a prompt: others of our hundreds of modules need not be imported for that."""
    found = yield
    return [
        one for one in found if not isinstance(one, DoctestModule) or ">>> " in file_path.read_text(encoding="utf-8")
    ]


@pytest.hookimpl(tryfirst=True)  # before what is not asked for by `-m` is left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test over random examples `laws` where their long versions are asked for.

    See that the text of its module tells the markers of each test. Let doctests expect what this NumPy prints.
    """
    for item in items:
        random = isinstance(item, pytest.Function) and is_hypothesis_test(item.function)
        if isinstance(item, pytest.DoctestItem):
            as_printed_here(item.dtest)
        given = {mark.name for mark in item.iter_markers()}.intersection(MARKERS).union(["laws"] if random else [])
        if not given <= markers_in(item.path):
            raise pytest.UsageError(f"the markers of {item.nodeid} do not stand in its module: {given}")
        if random and config.stash[LAWS]:
            item.add_marker(pytest.mark.laws)
            item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish() -> None:
    """Let the many `gc.collect()` of the leak checks look at what the tests made, not at every module."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def earlier_modules_are_old() -> None:
    """Let them not look at what earlier modules and their imports left alive either: that took a minute."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail the test if it leaves a thread or a descriptor behind for longer than ten seconds."""
    from asyncdata.testing import leaves_nothing

    with leaves_nothing():
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KB, which may be remounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small disk: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small_files(tmp_path: Path) -> Iterator[Path]:
    """A process that may write no file of more than 64 KB."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def debug_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


@pytest.fixture(params=[debug_loop, uvloop.new_event_loop], ids=["debug", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]:
    """Run an async test body on an event loop, and see that its tasks end within ten seconds of its end."""

    def runner(body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as loop:
            return loop.run(alone(body))

    return runner


async def alone(body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    result = await body()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=10)
    assert not left, f"tasks left behind: {left}"
    return result

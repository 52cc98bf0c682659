"""A plain debugger stops inside a user's function, wherever it runs, and the pipeline goes on after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import first_by_default

PROGRAM = """
import asyncio
import asyncdata as ad

def look(x):
    if x == 1:
        breakpoint()
    return x * 10

async def look_later(x):
    await asyncio.sleep(0)
    return look(x)

options = ad.Options(placement={placement!r})
print(list(ad.Dataset.range(3).map({function}{how}).with_options(options)))
"""


@pytest.mark.parametrize("placement", first_by_default(["thread", "current"]))
@pytest.mark.parametrize(
    ("function", "how"),
    [("look", ""), ("look", ", num_parallel_calls=2"), ("look_later", ""), ("look", ", executor='thread'")],
)
def test_a_debugger_stops_in_a_function_and_goes_on(placement: str, function: str, how: str) -> None:
    program = PROGRAM.format(placement=placement, function=function, how=how)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="p x + 100\ncontinue\n",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "101" in done.stdout
    assert "[0, 10, 20]" in done.stdout


IN_PROCESS = """
import pdb
import asyncdata as ad

def look(x):
    if x == 1:
        {stop}
    return x * 10

if __name__ == "__main__":
    ds = ad.Dataset.range(3).map(look{how}).with_options(ad.Options(placement={placement!r}))
    with ds.iterate() as elements:
        print(next(elements))
        try:
            next(elements)
        except Exception as error:
            print(*error.__notes__, sep="\\n")
        print(next(elements))
"""


@pytest.mark.parametrize(
    ("stop", "how", "placement"),
    first_by_default([("breakpoint()", ", executor='process'", "thread"), ("pdb.set_trace()", "", "process")], count=1),
)
def test_a_debugger_in_a_worker_process_says_how_to_debug(stop: str, how: str, placement: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(IN_PROCESS.format(stop=stop, how=how, placement=placement))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100, check=False)
    if sys.version_info >= (3, 14) and stop == "pdb.set_trace()":  # there pdb ends the program, and says so
        assert done.returncode == 1
        assert "Quitting pdb will kill the process" in done.stdout
        return
    assert done.returncode == 0, done.stderr
    assert "in map(look) at program.py:5, element 1" in done.stdout
    assert "a debugger has no terminal in a worker process: while you debug, call the function in this" in done.stdout
    assert done.stdout.endswith("20\n")

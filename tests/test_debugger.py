"""A plain debugger stops inside a user's function, wherever it runs, and the pipeline goes on after it."""

from __future__ import annotations

import subprocess
import sys

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

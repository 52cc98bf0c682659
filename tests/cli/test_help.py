"""The command line says what there is, and shows an example where a command needs a file of the user's own."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys

import pytest

from asyncdata.__main__ import COMMANDS, main

Capture = pytest.CaptureFixture[str]


def test_no_command_shows_all_of_them(capsys: Capture) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    assert told.startswith("usage: asyncdata")
    for name in COMMANDS:
        assert re.search(rf"^    {name}", told, re.MULTILINE), name


@pytest.mark.parametrize("buffered", [True, False])
def test_output_that_nobody_reads_any_more_ends_the_command_quietly(buffered: bool) -> None:
    """As behind `| head`."""
    closed, output = os.pipe()
    os.close(closed)
    command = [sys.executable, *([] if buffered else ["-u"]), "-m", "asyncdata", "inspect", __file__]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=environment, timeout=120, check=False)
    os.close(output)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_connection_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def run(_: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("asyncdata.cli.inspect.run", run)
    assert main(["inspect", "a.jsonl"]) == 2
    assert capfd.readouterr().err == "asyncdata: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_an_example(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"Example: asyncdata {command} " in told
    assert ("ds = ad.Dataset" in told) == (command in {"bench", "dashboard", "doctor"})


def test_what_is_missing_is_named(capsys: Capture) -> None:
    assert main(["inspect", "nowhere/"]) == 2
    assert capsys.readouterr().err == "asyncdata: there is no file or folder 'nowhere/'\n"
    with pytest.raises(SystemExit):
        main(["doctor", "pipeline.py:ds", "--seconds", "soon"])
    assert "--seconds: must be a number of seconds above 0, got 'soon'" in capsys.readouterr().err
    assert main(["dashboard", "nowhere.py:ds", "--report", "run.txt"]) == 2
    assert "--report writes HTML, which browsers open: give a name that ends in .html, got 'run.txt'" in (
        capsys.readouterr().err
    )

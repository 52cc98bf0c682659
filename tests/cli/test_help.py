"""The command line says what there is, and shows an example where a command needs a file of the user's own."""

from __future__ import annotations

import re

import pytest

from asyncdata.__main__ import COMMANDS, main

Capture = pytest.CaptureFixture[str]


def test_no_command_shows_all_of_them(capsys: Capture) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    assert told.startswith("usage: asyncdata")
    names = [command.__name__.rpartition(".")[2].replace("command", "demo") for command in COMMANDS]
    for name in names:
        assert re.search(rf"^    {name.replace('trace_record', 'trace').replace('_', '-')}", told, re.MULTILINE), name


@pytest.mark.parametrize("command", ["bench", "dashboard", "doctor"])
def test_commands_for_a_pipeline_have_an_example(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"Example: asyncdata {command} pipeline.py:ds" in told
    assert "ds = ad.Dataset" in told

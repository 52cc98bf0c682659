"""What README.md shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_prints_what_it_says(tmp_path: Path) -> None:
    shown = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README.read_text(), re.DOTALL)
    assert shown is not None
    program, output = shown.groups()
    path = tmp_path / "readme.py"
    path.write_text(program)
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert run.stdout == output


def test_the_two_commands_are_one_line_each() -> None:
    for mark in ("main", "test"):
        command = re.search(rf"<!-- {mark} -->\n```sh\n(.*?)```", README.read_text(), re.DOTALL)
        assert command is not None
        assert command[1].count("\n") == 1

"""Code in the guides: it can be pasted into a file, it names what there is, and what the page on seeing shows runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from tests.pages import DOCS

README = DOCS.parent / "README.md"
PAGES = sorted([*DOCS.glob("*.md"), README])


def programs(page: Path, *languages: str) -> list[str]:
    """Return the blocks of a page in these languages."""
    fenced = rf"^( *)```(?:{'|'.join(languages)})(?: [^\n]*)?\n(.*?)^ *```"
    blocks = re.findall(fenced, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [re.sub(f"(?m)^{indent}", "", block) for indent, block in blocks]


def parsed(program: str) -> ast.Module:
    """Parse a block, of which some are the body of a coroutine function."""
    try:
        return ast.parse(program)
    except SyntaxError:
        return ast.parse("async def main():\n" + re.sub("(?m)^", "    ", program))


def named(node: ast.expr) -> Any:
    """Return what `ad.` and names stand for, `None` for anything else; `AttributeError` if there is no such name."""
    if isinstance(node, ast.Name):
        return ad if node.id == "ad" else None
    if not isinstance(node, ast.Attribute) or (found := named(node.value)) is None:
        return None
    return getattr(found, node.attr)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_can_be_pasted_into_a_file_and_name_what_there_is(page: Path) -> None:
    assert ">>>" not in page.read_text(encoding="utf-8")
    for program in programs(page, "python", "py"):
        for node in ast.walk(parsed(program)):
            if isinstance(node, ast.Attribute):
                named(node)


@pytest.mark.dashboard
def test_the_examples_of_the_page_on_seeing_run(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    pytest.importorskip("prometheus_client")
    path = tmp_path / "pasted.py"
    path.write_text("\n".join(programs(DOCS / "observe.md", "python")).replace("/tmp/", f"{tmp_path}/"))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    assert "├ map(load)" in done.stdout
    assert re.search(r"num_parallel_calls=\d+ would give about", done.stdout)  # 64 where the cores are free
    made = {"pasted.py", "plan.svg", "run.html", "timeline.svg", "trace.json"}
    assert {one.name for one in tmp_path.iterdir()} == made

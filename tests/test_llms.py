"""The page for coding assistants: each of its examples runs as it stands, and each error is the one it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import asyncdata as ad

PAGE = Path(ad.__file__).parent / "llms.txt"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
RAISES = re.compile(r"# raises (\w+): (.*)\n")


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_example_does_what_it_says(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = compile(block, "pasted.py", "exec")
    if (expected := RAISES.match(block)) is None:
        exec(program, {})
        return
    with pytest.raises(Exception, match=re.escape(expected[2])) as caught:
        exec(program, {})
    assert type(caught.value).__name__ == expected[1]


def test_rules_and_calls_are_as_many_as_it_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rules = text[text.index("## Ten rules") : text.index("## Twenty calls")]
    assert re.findall(r"^(\d+)\. ", rules, re.MULTILINE) == [str(number) for number in range(1, 11)]
    calls = {int(number) for number in re.findall(r"(?:#|and) (\d+)\.", text[text.index("## Twenty calls") :])}
    assert calls == {*range(1, 21)}


def test_the_documentation_has_the_same_page() -> None:
    docs = Path(__file__).parents[1] / "docs" / "llms.txt"
    assert docs.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")

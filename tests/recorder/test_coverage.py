"""Which files came when, as text and as a picture, and what an audit says of the run above them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.recorder import coverage as rows
from asyncdata.recorder.audit import audit
from asyncdata.recorder.coverage import coverage_lines, coverage_of
from asyncdata.recorder.log_reader import read_logs

PROGRAM = """
import asyncdata as ad
files = ad.Dataset.list_files({folder!r} + "/*.txt", shuffle=False)
ds = ad.TextLineDataset(files).batch(5)
"""


def written(folder: Path, files: int, lines: int) -> Path:
    """Write files of so many lines, and a program that reads them."""
    for number in range(files):
        (folder / f"a&b {number:02}.txt").write_text("".join(f"{line}\n" for line in range(lines)))
    (program := folder / "pipe_of_the_coverage.py").write_text(PROGRAM.format(folder=str(folder)))
    return program


def recorded(folder: Path) -> ad.Dataset[Any]:
    files = ad.Dataset.list_files(f"{folder}/*.txt", shuffle=False)
    return ad.TextLineDataset(files).batch(5).with_options(ad.Options(record=folder / "run.jsonl"))


def test_one_command_draws_which_files_came_when(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, log, picture = written(tmp_path, 3, 20), tmp_path / "run.jsonl", tmp_path / "run.svg"
    for _ in recorded(tmp_path):
        pass
    command = ["audit", str(log), "--coverage", f"{program}:ds", "--picture", str(picture)]
    assert main(command) == 0
    drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    said = [element.text for element in drawn.iter() if element.tag.endswith("}text")]
    assert said[:3] == ["epoch 0: 12 steps, 60 records: complete, each once", "a&b 00.txt", "20 records"]
    assert said[-2:] == ["step 0", "step 11"]
    cells = [element.text for element in drawn.iter() if element.tag.endswith("}title")]
    assert cells == [f"a&b {step // 4:02}.txt, step {step}: 5" for step in range(12)]
    assert not re.search(r"(href|src|url)", picture.read_text(encoding="utf-8"))  # it needs no other file
    with recorded(tmp_path).iterate(epoch=1) as batches:
        next(batches)
    assert main(command) == 1
    assert "not at the end of the epoch: 1 steps" in picture.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["audit", str(log), "--picture", str(picture)]) == 2
    assert main([*command[:-1], str(tmp_path / "run.png")]) == 2
    assert "as --coverage FILE.py:NAME" in capsys.readouterr().err


def test_of_many_files_some_share_a_row_and_none_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST", 3)
    written(tmp_path, 7, 5)
    ds = recorded(tmp_path)
    for _ in ds:
        pass
    (found,) = audit(read_logs([str(tmp_path / "run.jsonl")]))
    lines = [" ".join(line.replace(f"{tmp_path}/", "").split()) for line in coverage_lines(found, ds.plan)]
    assert lines == [
        "a&b 00.txt to a&b 02.txt (3 files) 15 records |@@@ |",
        "a&b 03.txt to a&b 05.txt (3 files) 15 records | @@@ |",
        "a&b 06.txt 5 records | @|",
    ]


@pytest.mark.parametrize("parts", [1, 3, 7, 40])
def test_each_step_is_in_one_part_and_the_parts_say_which(tmp_path: Path, parts: int) -> None:
    written(tmp_path, 2, 50)
    ds = recorded(tmp_path)
    for _ in ds:
        pass
    (found,) = audit(read_logs([str(tmp_path / "run.jsonl")]))
    coverage = coverage_of(found, ds.plan, parts)
    steps = [coverage.steps_of(part) for part in range(coverage.parts)]
    assert [step for first, last in steps for step in range(first, last + 1)] == [*range(20)]
    both = [sum(pair) for pair in zip(*coverage.rows.values(), strict=True)]
    assert both == [5 * (last + 1 - first) for first, last in steps]

"""What docs/compatibility.md says about formats is what the code reads: a new number is written there too."""

from __future__ import annotations

import re
from pathlib import Path

from asyncdata import states
from asyncdata.formats import offset_index
from asyncdata.persistence import run_log as log
from asyncdata.persistence import saved_dataset
from asyncdata.web import folder

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"


def test_the_page_has_the_numbers_of_all_formats() -> None:
    rows = re.findall(r"^\| (.*?) \| ([\d to]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    said = {what.partition(" (")[0]: numbers for what, numbers in rows}
    assert said == {
        "a state": f"{states.OLDEST} to {states.VERSION}",
        "a state of `asyncdata.torch.DataLoader`": "1",  # compared by tests/torch, as PyTorch is not installed here
        "a folder of `save`": str(saved_dataset.VERSION),
        "a folder of a `DurableChannel`": str(folder.FORMAT),
        "a log of `Options(record=)`": f"1 to {log.FORMAT}",
        "indexes of files": str(offset_index.VERSION),
    }

"""What docs/pytorch.md shows is what happens."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.pages import check_examples

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


@pytest.mark.torch
def test_the_page_prints_what_it_says() -> None:
    pytest.importorskip("torch")
    check_examples("pytorch.md")


@pytest.mark.torch
def test_each_argument_of_dataloader_has_its_row() -> None:
    data = pytest.importorskip("torch.utils.data")
    page = PAGE.read_text(encoding="utf-8")
    for heading in ("## Each argument of DataLoader", "### Workers"):
        table = page.partition(heading)[2].partition("\n## ")[0]
        for name in inspect.signature(data.DataLoader).parameters:
            assert f"`{name}" in table, (heading, name)


@pytest.mark.torch
def test_the_drop_in_has_the_arguments_of_dataloader() -> None:
    data = pytest.importorskip("torch.utils.data")
    from asyncdata.torch import DataLoader

    theirs = [*inspect.signature(data.DataLoader).parameters]
    assert [*inspect.signature(DataLoader).parameters] == [*theirs, "device", "record"]

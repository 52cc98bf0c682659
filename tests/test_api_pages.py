"""The pages of docs/api/ have each public name once, and no other name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "api").glob("*.md"))
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
OF_TF_DATA = {"AUTOTUNE", "INFINITE_CARDINALITY", "Reducer", "UNKNOWN_CARDINALITY"}
"""Names that `asyncdata.experimental` has as tf.data has them there."""

SUBMODULES = {"checkpoint", "experimental", "observe", "web"}


def documented() -> list[str]:
    """Return the full names of what the pages have."""
    return [name for page in PAGES for name in ENTRY.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("asyncdata", {*ad.__all__} - SUBMODULES),
        ("asyncdata.experimental", {*ad.experimental.__all__} - OF_TF_DATA),
        ("asyncdata.observe", {*ad.observe.__all__}),
        ("asyncdata.testing", {*importlib.import_module("asyncdata.testing").__all__}),
        ("asyncdata.web", {*ad.web.__all__}),
        ("asyncdata.checkpoint", {"inspect_state", "load", "load_shares", "merge_states", "save", "save_share"}),
        ("asyncdata.torch", {"DataLoader"}),
    ],
)
def test_every_public_name_is_on_one_page(module: str, names: set[str]) -> None:
    found = [name.rpartition(".")[2] for name in documented() if name.rpartition(".")[0] == module]
    assert sorted(found) == sorted(names)


def test_all_pages_are_in_the_table_and_in_the_navigation() -> None:
    names = [f"api/{page.name}" for page in PAGES]
    overview = (DOCS / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\((api/\w+\.md)\)", overview)) == names
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r": (api/\w+\.md)$", navigation, re.MULTILINE)) == names


def test_no_page_has_a_name_that_is_not_there() -> None:
    for name in documented():
        module, _, last = name.rpartition(".")
        if module == "asyncdata.torch":  # which needs PyTorch
            continue
        found: Any = importlib.import_module(module)
        assert getattr(found, last).__doc__ or not isinstance(getattr(found, last), type)

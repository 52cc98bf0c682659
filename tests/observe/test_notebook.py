"""What a notebook shows, run in a kernel of Jupyter's: a bar, tables, a sentence and pictures."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.dashboard

CELLS = (
    "import asyncdata as ad\nds = ad.Dataset.range(200).skip(0).map(lambda x: x, num_parallel_calls=2).batch(10)",
    "for batch in ds.progress():\n    pass",
    "with ds.iterate() as batches:\n    for batch in batches:\n        pass\nbatches.stats()",
    "batches.bottleneck()",
    "ds.explain()",
)


@pytest.fixture(scope="module")
def shown() -> list[dict[str, Any]]:
    """What each cell shows, by kind."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("ipywidgets")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return [{kind: text for out in cell.outputs for kind, text in out.get("data", {}).items()} for cell in book.cells]


def test_a_bar_is_a_widget(shown: list[dict[str, Any]]) -> None:
    assert "application/vnd.jupyter.widget-view+json" in shown[1]
    assert shown[1]["text/plain"].startswith("epoch 0:")


def test_statistics_are_a_table(shown: list[dict[str, Any]]) -> None:
    assert "20 elements in " in shown[2]["text/html"]
    assert "<td>range(200)</td>" in shown[2]["text/html"]


def test_the_bottleneck_is_a_sentence(shown: list[dict[str, Any]]) -> None:
    assert shown[3]["text/html"].startswith("<p>")
    assert shown[3]["text/html"].endswith(".</p>")


def test_a_plan_is_a_picture(shown: list[dict[str, Any]]) -> None:
    assert shown[4]["image/svg+xml"].startswith("<svg")

"""Pictures of pipelines: each step is drawn once, arrows go down, and what users write is no markup."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import asyncdata as ad
from asyncdata.observe.plan_picture import Box, boxes_of, places, plan_picture

SVG = "{http://www.w3.org/2000/svg}"


def steps_in(picture: str) -> list[str]:
    return [step.findtext(f"{SVG}title") or "" for step in ET.fromstring(picture).iter(f"{SVG}g")]


def test_each_step_is_drawn_with_what_was_measured() -> None:
    ds = ad.Dataset.zip(ad.Dataset.range(40), ad.Dataset.range(40)).batch(4)
    with ds.iterate() as batches:
        assert len(list(batches)) == 10
        stats = batches.stats()
    picture = plan_picture([("before", boxes_of(stats, "batch(4)"))])
    assert steps_in(picture) == [step.step for step in stats.steps]
    words = [text.text or "" for text in ET.fromstring(picture).iter(f"{SVG}text")]
    assert words[0] == "before"
    assert any(word.startswith("40 elements, ") for word in words)
    assert picture.count('stroke-width="2.5"') == 1


def test_sources_stand_side_by_side_above_what_reads_them() -> None:
    boxes = [Box("a"), Box("b", inputs=(0,)), Box("c"), Box("zip", inputs=(1, 2)), Box("batch", inputs=(3,))]
    assert places(boxes) == ([0.0, 0.0, 1.0, 0.5, 0.5], [0, 1, 1, 2, 3])


def test_a_label_is_text() -> None:
    label = "map(<script>alert('1')</script>&" + "x" * 80
    picture = plan_picture([("<b>", [Box(label, ("<i>",), 0.5, "<u>"), Box("take", inputs=(0,))])])
    assert steps_in(picture) == [label, "take"]


def test_no_steps_are_a_picture_too() -> None:
    assert steps_in(plan_picture([("", [])])) == []

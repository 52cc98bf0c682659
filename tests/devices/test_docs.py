"""The examples of docs/devices.md that need no GPU run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

PAGE = Path(__file__).parents[2] / "docs" / "devices.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_simulated_accelerator() -> None:
    ds = ad.Dataset.range(8).map(lambda x: {"image": np.full((4, 4), x)}).batch(2)
    names: dict[str, Any] = {"ad": ad, "ds": ds}
    exec(EXAMPLES[-1], names)
    assert names["batch"]["image"].shape == (2, 4, 4)  # the last of four
    assert names["accelerator"].races == []


@pytest.mark.torch
def test_the_loop() -> None:
    torch = pytest.importorskip("torch")
    found: list[int] = []
    names = {"ad": ad, "torch": torch, "images": range(512), "decode": lambda x: {"image": np.full(4, x), "label": x}}
    exec(EXAMPLES[0], {**names, "model": lambda image: image, "loss_of": lambda out, _: found.append(len(out))})
    assert found == [256, 256]


@pytest.mark.torch
def test_pictures_that_are_decoded_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch, image = pytest.importorskip("torch"), pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    for place in range(3):
        path = tmp_path / "train" / f"class {place % 2}" / f"{place}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (20 + place, 30)).save(path)
    found: list[Any] = []
    names: dict[str, Any] = {"ad": ad, "torch": torch, "device": "cpu", "model": lambda pictures: pictures}
    example, other = [one for one in EXAMPLES if "decode_on_device" in one]
    exec(example, {**names, "loss_of": lambda out, labels: found.append((tuple(out.shape), sorted(labels.tolist())))})
    assert found == [((3, 3, 224, 224), [0, 0, 1])]
    (tmp_path / "train" / "class 1" / "cut.jpg").write_bytes((tmp_path / "train/class 0/0.jpg").read_bytes()[:-9])
    exec(other.replace("256", "3"), names)
    assert names["labels"].tolist() == [0, 0, 1]
    (tmp_path / "train" / "class 1" / "broken.jpg").write_bytes(b"\xff\xd8" + bytes(99) + b"\xff\xd9")
    exec(other.replace("256", "1"), names)
    assert "picture 0 of [0]" in capsys.readouterr().out

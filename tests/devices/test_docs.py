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

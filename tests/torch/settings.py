"""What a training program sets before it builds its loader, in the ways that programs do."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Config(dict[str, Any]):
    """A dict with attributes, as configurations are."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@dataclass
class Sizes:
    """Sizes of something."""

    width: int = 1


SCALE = 1
MEANS = {"r": [0.0]}
MANY = [*range(2000)]
_PRIVATE = 1
lower = 1
config = Config(size=1, inner=Config(depth=1))
same_config = config
arguments = Namespace(name="a")
sizes = Sizes()


generator = torch.Generator()
numbers = np.random.default_rng(1)
python = random.Random(2)


class Drawing(Dataset[Any]):
    """Draws from the generators of this module, as its sampler does."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(1, generator=generator).item(), float(numbers.random()), python.random()


class Drawn:
    """A sampler in another order each time."""

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        for place in torch.randperm(8, generator=generator).tolist():
            yield (place + int(numbers.integers(8)) + python.randrange(8)) % 8


def default_width(of: Sizes = sizes) -> int:
    """What holds a configuration of this module from its start."""
    return of.width


class Told(Dataset[Any]):
    """Says what its process has."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        import os
        import sys

        from PIL import Image, ImageFile

        return {
            "globals": [SCALE, MEANS, config.size, config.inner.depth, same_config is config, arguments.name],
            "held": default_width(),
            "not sent": [MANY[0], _PRIVATE, lower],
            "environment": os.environ.get("ASYNCDATA_TEST_SETTING"),
            "path": "a folder of the program" in sys.path,
            "dtype": str(torch.ones(1).dtype),
            "gradients": torch.is_grad_enabled(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "errors": np.geterr()["over"],
            "images": [ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS],
            "index": index,
        }

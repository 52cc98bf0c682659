"""Small shards of coloured noise, and the command line run on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.demo.images import encode_jpeg

RED, BLUE = 5, 9  # labels need not be 0 and 1


def coloured_noise(label: int, random: np.random.Generator, size: int = 64) -> np.ndarray:
    image = random.integers(0, 128, (size, size, 3), np.uint8)
    image[..., 0 if label == RED else 2] += 100
    return image


def record(label: int, random: np.random.Generator) -> bytes:
    return ad.make_example({"image": encode_jpeg(coloured_noise(label, random)), "label": label})


def write(path: Path, records: Iterable[bytes]) -> Path:
    with ad.TFRecordWriter(path) as writer:
        for each in records:
            writer.write(each)
    return path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with three shards of forty records each."""
    random = np.random.default_rng(7)
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(3):
        labels = [RED, BLUE] * 20
        write(folder / f"part-{shard}.tfrecord", [record(label, random) for label in labels])
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "ASYNCDATA_CACHE": str(tmp_path / "cache"), "PYTHONWARNINGS": "error"}


@pytest.fixture
def demo(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m asyncdata demo` with some arguments."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "asyncdata", "demo", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run

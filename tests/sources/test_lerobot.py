"""Folders of LeRobot as users read them: that in tests/data was written, and read for comparison, by lerobot 0.4.4."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.data.write_lerobot import FOLDER, LENGTHS, SELECTIONS, TASKS
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import WAYS

pytestmark = pytest.mark.formats

COUNT = sum(LENGTHS)

TOP = "observation.images.top"

VIDEO = Path("videos", TOP, "chunk-000", "file-001.mp4")


def values() -> dict[str, Any]:
    """Return what LeRobot reads, by selection and feature."""
    with np.load(FOLDER / "values.npz") as found:
        return {name: found[name] for name in found.files}


def places(frames: Any) -> list[Any]:
    """Return which frames these are, failures in their places."""
    return [one if isinstance(one, Failed) else int(one["index"]) for one in frames]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the folder, whose files may be changed."""
    return Path(shutil.copytree(FOLDER, tmp_path / "mine"))


@pytest.mark.parametrize("name", SELECTIONS)
def test_frames_are_those_that_lerobot_reads(name: str) -> None:
    expected = {key.partition(" ")[2]: found for key, found in values().items() if key.startswith(f"{name} ")}
    frames = [*ad.LeRobotDataset(FOLDER, **SELECTIONS[name])]
    assert len(frames) == len(expected["index"])
    for key, stacked in expected.items():
        found = np.stack([np.asarray(frame.pop(key)) for frame in frames])
        picture = ".images." in key and not key.endswith("_is_pad")
        assert found.dtype == stacked.dtype, key
        assert np.array_equal(found, np.moveaxis(stacked, -3, -1) if picture else stacked), key
    assert not any(frames)


@pytest.mark.parametrize("way", first_by_default(WAYS, 2))
def test_any_frame_in_any_order(way: Any) -> None:
    ds = ad.LeRobotDataset(FOLDER, num_parallel_reads=2)
    assert len(ds) == COUNT
    assert places(way(ds)) == [*range(COUNT)]
    frame = ds[-1]
    assert (frame["episode_index"], frame["frame_index"], frame["task"]) == (3, LENGTHS[3] - 1, TASKS[1])
    frame[TOP][...] = 0  # it may be changed
    assert ds[-1][TOP].any()
    expected = values()[f"all {TOP}"]
    shuffled = way(ds.shuffle(seed=1))
    assert sorted(places(shuffled)) == [*range(COUNT)] != places(shuffled)
    assert all(np.array_equal(np.moveaxis(expected[int(one["index"])], 0, -1), one[TOP]) for one in shuffled)


def test_resumes() -> None:
    check_resumes(lambda: ad.LeRobotDataset(FOLDER, episodes=[2, 0], columns=["index", TOP]), places=5)
    check_resumes(lambda: ad.LeRobotDataset(FOLDER, columns=["index"], num_parallel_reads=2).shuffle(seed=2), places=3)

"""Frames of a folder of LeRobot against LeRobot's own dataset, in one process, from the page cache.

    python benchmarks/loaders/lerobot_frames.py [--quick] [--json FILE]

It needs `pip install lerobot==0.4.4` beside asyncdata; with FFmpeg's libraries LeRobot decodes by torchcodec, else by
PyAV. What is compared is the CPU time of the process, all threads together. The folder is written by LeRobot: two
cameras of 320x240 in AV1 with a keyframe for every second frame, and 28 numbers. "Windows" are three frames of each
camera and 16 actions.
"""

from __future__ import annotations

import gc
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.video_utils import get_safe_default_codec

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, Report, Row, parse_arguments

__all__ = ("main",)

FPS = 30

CAMERAS = ("observation.images.top", "observation.images.wrist")

WINDOWS = {**{name: [-0.2, -0.1, 0.0] for name in CAMERAS}, "action": [number / FPS for number in range(16)]}


def write(folder: Path, lengths: list[int]) -> None:
    """Write episodes of these lengths."""
    rng = np.random.default_rng(0)
    camera = {"dtype": "video", "shape": (240, 320, 3), "names": ["height", "width", "channels"]}
    numbers = {"dtype": "float32", "shape": (14,), "names": None}
    features = {**dict.fromkeys(CAMERAS, camera), "observation.state": numbers, "action": numbers}
    made = LeRobotDataset.create("my/data", FPS, features, folder)
    scene = rng.integers(0, 256, (30, 40, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    for length in lengths:
        for number in range(length):
            pictures = {name: np.roll(scene, number * 2, axis) for axis, name in enumerate(CAMERAS)}
            state, action = rng.normal(size=(2, 14)).astype(np.float32)
            made.add_frame({**pictures, "observation.state": state, "action": action, "task": "roll"})
        made.save_episode()
    made.finalize()


def main() -> None:
    """Write the folder, read it in each way by turns, and print the table."""
    arguments = parse_arguments(__doc__ or "")
    peer = f"lerobot by {get_safe_default_codec()}"
    report = Report("Frames of LeRobot, from the page cache")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "data")
        write(folder, [20, 20] if arguments.quick else [60] * 4)
        for title, windows in (("a frame", None), ("a frame with windows", WINDOWS)):
            theirs: Any = LeRobotDataset("my/data", folder, delta_timestamps=windows)
            ours = ad.LeRobotDataset(folder, delta_timestamps=windows)
            shuffled = random.Random(0).sample(range(len(theirs)), len(theirs))
            for order, ds, numbers in (
                ("in order", ours, range(len(theirs))),
                ("shuffled", ours.shuffle(seed=0), shuffled),
            ):
                seconds: dict[str, list[float]] = {"asyncdata": [], peer: []}
                for turn in range(arguments.rounds(3) + 1):
                    for name, frames in (("asyncdata", ds), (peer, map(theirs.__getitem__, numbers))):
                        gc.collect()
                        begin = time.process_time()
                        for _ in frames:
                            pass
                        if turn:
                            seconds[name].append(time.process_time() - begin)
                each = [median(found) / len(theirs) * 1e6 for found in seconds.values()]
                report.add(Row(f"{title}, {order}", each[0], "us CPU", peer, each[1], AtLeast(2), seconds))
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

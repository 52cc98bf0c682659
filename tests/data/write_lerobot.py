"""Write the folder in `tests/data/lerobot` with the package that defines the format; the tests read it without.

`pip install lerobot==0.4.4`, then `python -m tests.data.write_lerobot`. `values.npz` is what that package reads, by
PyAV: for each selection the values of each feature, stacked; pictures as LeRobot has them, times 255.
"""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ("FOLDER", "LENGTHS", "SELECTIONS", "TASKS")

FOLDER = Path(__file__).parent / "lerobot"

FPS = 10

LENGTHS = [7, 12, 5, 9]
"""The frames of each episode."""

TASKS = ["fold", "stack"]
"""The tasks of even and odd episodes."""

SELECTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "windows": {
        "delta_timestamps": {
            "observation.images.top": [-0.3, -0.1, 0.0],
            "observation.images.wrist": [0.2, 0.0],
            "observation.images.still": [-0.1, 0.0],
            "action": [-0.1, 0.0, 0.1, 0.5],
            "grid": [0.0, 0.2],
            "reward": [0.2],
        }
    },
    "episodes": {"episodes": [1, 3], "delta_timestamps": {"observation.images.top": [-0.1, 0.2]}},
}

VIDEO = {"dtype": "video", "shape": (24, 32, 3), "names": ["height", "width", "channels"]}

FEATURES: dict[str, Any] = {
    "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
    "action": {"dtype": "float32", "shape": (2,), "names": None},
    "reward": {"dtype": "float32", "shape": (1,), "names": None},
    "done": {"dtype": "bool", "shape": (1,), "names": None},
    "grid": {"dtype": "float32", "shape": (2, 3), "names": None},
    "observation.images.top": VIDEO,
    "observation.images.wrist": VIDEO,
    "observation.images.still": {**VIDEO, "dtype": "image", "shape": (4, 4, 3)},
}


def picture(episode: int, frame: int, shift: int) -> Any:
    """Return a picture that shows its numbers."""
    found = np.zeros((24, 32, 3), np.uint8)
    found[..., 0], found[..., 1] = frame * 20, episode * 60 + shift
    found[:, frame * 2 : frame * 2 + 2, 2] = 255
    return found


def write() -> None:
    """Write the folder, of which a data file and a video file have one or two episodes each."""
    dataset: Any = import_module("lerobot.datasets.lerobot_dataset").LeRobotDataset
    shutil.rmtree(FOLDER, ignore_errors=True)
    made = dataset.create("my/data", FPS, FEATURES, FOLDER)
    made.meta.update_chunk_settings(2, 100, 100)
    rng = np.random.default_rng(0)
    for episode, length in enumerate(LENGTHS):
        for frame in range(length):
            values = {
                "observation.state": rng.normal(size=3).astype(np.float32),
                "action": np.array([episode, frame], np.float32),
                "reward": np.array([frame], np.float32),
                "done": np.array([frame == length - 1]),
                "grid": rng.normal(size=(2, 3)).astype(np.float32),
                "observation.images.top": picture(episode, frame, 0),
                "observation.images.wrist": picture(episode, frame, 50),
                "observation.images.still": rng.integers(0, 256, (4, 4, 3), np.uint8),
            }
            made.add_frame({**values, "task": TASKS[episode % 2]})
        made.save_episode()
        if episode % 2:  # the next episode goes to other files
            made.finalize()
            made = dataset("my/data", FOLDER)
    made.finalize()
    found = dict[str, Any]()
    for name, how in SELECTIONS.items():
        frames = dataset("my/data", FOLDER, video_backend="pyav", **how)
        items = [frames[place] for place in range(len(frames))]
        for key in items[0]:
            found[f"{name} {key}"] = stacked(key, [item[key] for item in items])
    np.savez_compressed(FOLDER / "values.npz", **found)


def stacked(key: str, values: list[Any]) -> Any:
    """Return the values of a feature in one array."""
    if key == "task":
        return np.array(values)
    array = np.stack([value.numpy() for value in values])
    return (array * 255).round().astype(np.uint8) if ".images." in key and array.dtype != bool else array


if __name__ == "__main__":
    write()

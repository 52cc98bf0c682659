"""Folders of LeRobot for tests, written by hand: the number of a frame, and a camera that shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.videos import write_video

__all__ = ("CAMERA", "write_lerobot")

CAMERA = "observation.images.front"

SCALAR = {"shape": [1], "names": None}


def write_lerobot(folder: Path, lengths: Sequence[int], fps: int = 10, camera: bool = True, **how: Any) -> Path:
    """Write episodes of these lengths, each in a file with row groups of at most 1000 frames, and one video."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    begins, count = [0, *accumulate(lengths)][:-1], sum(lengths)
    columns: dict[str, Any] = {
        "number": np.arange(count, dtype=np.int32),
        "timestamp": np.concatenate([np.arange(length, dtype=np.float32) / np.float32(fps) for length in lengths]),
        "frame_index": np.concatenate([np.arange(length) for length in lengths]),
        "episode_index": np.repeat(np.arange(len(lengths)), lengths),
        "index": np.arange(count),
        "task_index": np.zeros(count, np.int64),
    }
    features = {name: {"dtype": str(column.dtype), **SCALAR} for name, column in columns.items()}
    episodes: dict[str, Any] = {
        "episode_index": range(len(lengths)),
        "length": lengths,
        "dataset_from_index": begins,
        "dataset_to_index": [*accumulate(lengths)],
        "data/chunk_index": [0] * len(lengths),
        "data/file_index": range(len(lengths)),
    }
    if camera:
        features[CAMERA] = {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"]}
        episodes |= {f"videos/{CAMERA}/{name}": [0] * len(lengths) for name in ("chunk_index", "file_index")}
        episodes[f"videos/{CAMERA}/from_timestamp"] = [begin / fps for begin in begins]
        video = folder / "videos" / CAMERA / "chunk-000" / "file-000.mp4"
        video.parent.mkdir(parents=True)
        write_video(video, range(count), fps, **how)
    texts = {"task_index": [0], "__index_level_0__": ["wave"]}
    tables: dict[str, dict[str, Any]] = {"meta/episodes/chunk-000/file-000": episodes, "meta/tasks": texts}
    for number, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        part = {name: column[begin : begin + length] for name, column in columns.items()}
        tables[f"data/chunk-000/file-{number:03d}"] = part
    for name, table in tables.items():
        (path := folder / f"{name}.parquet").parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), path, row_group_size=1000)
    info = {"codebase_version": "v3.0", "fps": fps, "total_episodes": len(lengths), "chunks_size": 1000}
    pattern = "chunk-{chunk_index:03d}/file-{file_index:03d}"
    paths = {"data_path": f"data/{pattern}.parquet", "video_path": f"videos/{{video_key}}/{pattern}.mp4"}
    (folder / "meta" / "info.json").write_text(json.dumps({**info, **paths, "features": features}))
    return folder

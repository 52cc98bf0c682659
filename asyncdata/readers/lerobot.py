"""LeRobotDataset: the frames in the folders of LeRobot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from os import PathLike
from posixpath import basename
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from asyncdata.dataset import Dataset
from asyncdata.errors import DataLossError, PlanError
from asyncdata.executors.function_call import Call
from asyncdata.formats.arrow_columns import arrow
from asyncdata.readers.files import CacheFolder, StorageMapping, names_given, one_path
from asyncdata.readers.folder_index import inside, joined, reading_index
from asyncdata.sources.file_list_digest import stamps
from asyncdata.sources.in_memory import Range
from asyncdata.sources.lerobot import Camera, Episodes, FrameReader, FrameTables
from asyncdata.storage import StorageOptions, without_query
from asyncdata.system.optional_packages import require
from asyncdata.transforms.map import Map

__all__ = ("LeRobotDataset",)

METHOD: Final = "LeRobotDataset"

TEXTS: Final = {"task": "meta/tasks.parquet", "subtask": "meta/subtasks.parquet"}
"""Columns of texts, of which frames store numbers."""

PLACE: Final = re.compile(r"\{(\w+)(?::(0?\d{1,2}d?))?\}")
"""Where a word stands in the pattern of a path, and how it is formatted."""

LONG: Final = 40
"""An argument with more characters is shown as a digest."""

EPISODES: Final = "meta/episodes/chunk-{:03d}/file-{:03d}.parquet"


class LeRobotDataset(Dataset[dict[str, Any]]):
    """The frames in a folder of LeRobot in its format v3.0, as dicts of values by feature, episode by episode.

    Neither that package nor PyTorch is needed. Values are those of the Parquet files (docs/formats.md has the types);
    pictures of cameras, stored in Parquet or as videos, are arrays of (height, width, 3), uint8; `"task"` is the text
    of the task, a `str`. Any frame is read by its number, so `len`, `dataset[i]`, `shuffle()` without a buffer and
    `shard` take no memory. Of a video what is needed is read and decoded, from the last keyframe on.

    A frame whose row or picture cannot be had is a `DataLossError` in its place, and the next frame follows; so is one
    without a picture within `tolerance_s` of its time. Needs pyarrow, for videos PyAV, and for pictures in Parquet
    Pillow: `pip install 'asyncdata[lerobot]'`.

    >>> import asyncdata as ad
    >>> deltas = {"observation.images.top": [-0.1, 0], "action": [0, 0.1, 0.2]}
    >>> ds = ad.LeRobotDataset("/data/aloha", delta_timestamps=deltas, num_parallel_reads=4)  # doctest: +SKIP
    >>> frame = ds[0]  # doctest: +SKIP
    >>> frame["observation.images.top"].shape, frame["action"].shape, frame["action_is_pad"]  # doctest: +SKIP
    ((2, 480, 640, 3), (3, 14), array([False, False, False]))
    """

    def __init__(
        self,
        filenames: str | PathLike[str],
        episodes: Sequence[int] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        columns: Sequence[str] | None = None,
        num_parallel_reads: int | None = None,
        *,
        tolerance_s: float = 1e-4,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read a folder with `meta/info.json`, here or at a URL.

        `episodes` are the numbers of those to read, in this order, by default all. `columns` are the features to read,
        by default all: cameras that are not in it are not decoded.

        `delta_timestamps` are times in seconds relative to each frame, by feature: that feature then is an array with
        the values at these times along its first axis, and `"action_is_pad"` a boolean array, true where the time is
        outside of the episode, whose first or last frame is repeated there. Times must be multiples of a frame's
        duration, up to `tolerance_s`, by which times of frames and videos may differ, too.

        Frames are decoded in a thread, or in `num_parallel_reads` threads; their order stays. `storage_options` and
        `cache_dir` are as for `TFRecordDataset`.
        """
        arrow("pyarrow.parquet", METHOD)  # raises here if it is not installed
        storage = StorageOptions.of(METHOD, storage_options, cache_dir)
        root = one_path(METHOD, filenames, storage)
        info = info_of(root, storage)
        chosen = chosen_features(info.features, columns)
        windows = windows_of(delta_timestamps, chosen, info.fps, tolerance_s)
        cameras = [name for name, feature in chosen.items() if feature["dtype"] == "video"]
        if cameras:
            require("av", METHOD, "'asyncdata[lerobot]'")
        texts = {
            name: texts_of(joined(root, path), name, storage)
            for name, path in TEXTS.items()
            if f"{name}_index" in info.features and (columns is None or name in columns)
        }
        found = selected(episodes_of(root, info, cameras, storage), episodes)
        reader = FrameReader(chosen, found, windows, tolerance_s, texts, stamps(found.files_read), storage)
        call = Call(METHOD, reader)
        given = {
            "episodes": None if episodes is None else found.numbers.tolist(),
            "windows": windows,
            "columns": columns,
        }
        words = [basename(without_query(root).rstrip("/")), *[shown(*pair) for pair in given.items() if pair[1]]]
        call.name = call.shown = call.label = f"{METHOD}({', '.join(words)})"
        plan = Range(range(found.frames))
        super().__init__(Map.of(plan, call, num_parallel_reads, None, None if num_parallel_reads else "thread"))


def shown(name: str, value: Any) -> str:
    """Return an argument for a label, which a state has: the argument itself, or a digest of a long one."""
    text = repr(value)
    return f"{name}={text}" if len(text) <= LONG else f"{name}=#{blake2b(text.encode(), digest_size=4).hexdigest()}"


class Info(NamedTuple):
    """What `meta/info.json` says."""

    features: dict[str, Any]
    fps: float
    episodes: int
    chunks_size: int
    data_path: str
    video_path: str | None


def info_of(root: str, storage: StorageOptions | None) -> Info:
    """Return what a folder says of itself; `PlanError` if it is of another version."""
    with reading_index(root, "LeRobot", storage, "meta/info.json") as info:
        version = str(info["codebase_version"])
        if version.startswith("v3."):
            features = {str(name): feature_in(feature) for name, feature in info["features"].items()}
            return Info(
                features,
                float(info["fps"]),
                int(info["total_episodes"]),
                int(info["chunks_size"]),
                str(info["data_path"]),
                info.get("video_path"),
            )
    raise PlanError(
        f"{METHOD}: {without_query(root)} has the format {version}, and v3.0 is read: convert it with "
        "lerobot.datasets.v30.convert_dataset_v21_to_v30"
    )


def feature_in(found: Any) -> dict[str, Any]:
    """Return a feature as a folder describes it; `KeyError` or `TypeError` if its dtype or shape cannot be."""
    feature = {**found, "dtype": str(found["dtype"]), "shape": tuple(found["shape"])}
    if len(feature["shape"]) > 1 and feature["dtype"] not in ("image", "video"):
        np.dtype(feature["dtype"])
    return feature


def chosen_features(features: dict[str, Any], columns: Any) -> dict[str, Any]:
    """Return the features to read; `PlanError` for unknown ones."""
    if (names := names_given(METHOD, "columns", columns)) is None:
        return features
    known = [*features, *(name for name in TEXTS if f"{name}_index" in features)]
    if missing := [name for name in names if name not in known]:
        raise PlanError(f"{METHOD}(columns=): there is no feature {missing[0]!r}, the features are {known}")
    return {name: features[name] for name in names if name in features}


def windows_of(given: Any, features: Mapping[str, Any], fps: float, tolerance: float) -> dict[str, list[int]]:
    """Return the frames of each window, counted from the frame in question; `PlanError` if they are none."""
    if not isinstance(given, (Mapping, type(None))):
        raise PlanError(
            f"{METHOD}(delta_timestamps=) must be a dict of lists of times in seconds, such as {{'action': [0, 0.1]}}, "
            f"got {given!r:.80}"
        )
    found: dict[str, list[int]] = {}
    for name, times in cast("Mapping[str, Any]", given or {}).items():
        if name not in features:
            raise PlanError(
                f"{METHOD}(delta_timestamps=): there is no feature {name!r} among those that are read: {[*features]}"
            )
        try:
            deltas = [float(time) for time in times]
        except (TypeError, ValueError):
            raise PlanError(
                f"{METHOD}(delta_timestamps=): the times of {name!r} must be a list of seconds, got {times!r:.80}"
            ) from None
        found[name] = [round(delta * fps) for delta in deltas]
        wrong = [delta for delta in deltas if abs(delta * fps - round(delta * fps)) / fps > tolerance]
        if wrong or not deltas:
            raise PlanError(
                f"{METHOD}(delta_timestamps=): times of {name!r} must be multiples of {1 / fps:g} s, as the folder has "
                f"{fps:g} frames per second, got {wrong[0] if wrong else deltas!r:.80}"
            )
    return found


def texts_of(path: str, name: str, storage: StorageOptions | None) -> dict[int, str]:
    """Return the texts in a table of texts with numbers."""
    found: dict[int, str] = {}
    for columns in FrameTables(None, storage).all_columns(path):
        (texts,) = [column for other, column in columns.items() if other != f"{name}_index"]
        found.update(zip(columns[f"{name}_index"].tolist(), map(str, texts), strict=True))
    return found


def episodes_of(root: str, info: Info, cameras: Sequence[str], storage: StorageOptions | None) -> Episodes:
    """Return what a folder says of its episodes."""
    names = ["episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index"]
    for name in cameras:
        names += [f"videos/{name}/{one}" for one in ("chunk_index", "file_index", "from_timestamp")]
    tables, parts, count, chunk, file = FrameTables(names, storage), list[Mapping[str, Any]](), 0, 0, 0
    while count < info.episodes:
        found = tables.all_columns(joined(root, EPISODES.format(chunk, file)))
        parts += found
        count += sum(len(one["length"]) for one in found)
        chunk, file = (chunk, file + 1) if file + 1 < info.chunks_size else (chunk + 1, 0)
    if count != info.episodes:
        raise DataLossError(
            f"{without_query(root)}: meta/episodes has {count} episodes, meta/info.json {info.episodes}"
        )
    whole = {name: np.concatenate([part[name] for part in parts] or [np.zeros(0, np.int64)]) for name in names}
    paths, files = paths_in(root, info.data_path, whole, "data", {})
    begins = whole["dataset_from_index"]
    first = np.full(len(paths), np.iinfo(np.int64).max)
    np.minimum.at(first, files, begins)
    views = {name: camera_of(root, info, name, whole) for name in cameras}
    return Episodes(whole["episode_index"], whole["length"], paths, files, begins - first[files], views)


def camera_of(root: str, info: Info, name: str, columns: Mapping[str, Any]) -> Camera:
    """Return where the videos of a camera have the episodes."""
    paths, files = paths_in(root, str(info.video_path), columns, f"videos/{name}", {"video_key": name})
    return Camera(paths, files, columns[f"videos/{name}/from_timestamp"])


def paths_in(
    root: str, pattern: str, columns: Mapping[str, Any], what: str, more: Mapping[str, str]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the paths of the files that have episodes, and the index of each episode's."""
    numbers = np.stack([columns[f"{what}/chunk_index"], columns[f"{what}/file_index"]])
    each, places = np.unique(numbers, axis=1, return_inverse=True)
    names = [named(pattern, {"chunk_index": chunk, "file_index": file, **more}) for chunk, file in each.T.tolist()]
    return [joined(root, inside(name)) for name in names], places.reshape(-1)


def named(pattern: str, words: Mapping[str, Any]) -> str:
    """Return the name of a file by a pattern of `info.json`; `DataLossError` for one with other words, or formats."""
    try:
        return PLACE.sub(lambda place: format(words[place[1]], place[2] or ""), pattern)
    except (KeyError, ValueError):
        raise DataLossError(
            f"{METHOD}: meta/info.json has a path {pattern!r:.200}, where {[*words]} are known"
        ) from None


def selected(found: Episodes, numbers: Any) -> Episodes:
    """Return some of the episodes; `PlanError` for unknown ones."""
    if numbers is None:
        return found
    known = {number: place for place, number in enumerate(found.numbers.tolist())}
    try:
        places = [known[number] for number in numbers]
    except (TypeError, KeyError):
        raise PlanError(
            f"{METHOD}(episodes=) must be numbers of episodes, of which there are {len(known)}, got {numbers!r:.80}"
        ) from None
    return Episodes(
        found.numbers[places],
        found.lengths[places],
        found.paths,
        found.files[places],
        found.rows[places],
        {name: Camera(one.paths, one.files[places], one.begins[places]) for name, one in found.cameras.items()},
    )

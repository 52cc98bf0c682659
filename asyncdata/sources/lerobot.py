"""Folders of LeRobot: their frames by number, with the pictures that videos have for them."""

from __future__ import annotations

import copy
import threading
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError
from asyncdata.formats.column_parser import part_of
from asyncdata.formats.images import decode_image
from asyncdata.formats.parquet_groups import DecodedGroup
from asyncdata.formats.sized_file import SizedFile
from asyncdata.formats.video import Pixels, Video
from asyncdata.graph.node import PHYSICAL, REPLACEABLE
from asyncdata.sources.files_with_headers import check_unchanged
from asyncdata.sources.parquet_random_access import KnownTable, ParquetFiles
from asyncdata.storage import StorageOptions, open_file, without_query
from asyncdata.storage.cached import RemoteFile

__all__ = ("Camera", "Episodes", "FrameReader", "FrameTables")

IDLE: Final = 16
"""How many videos are kept open, each of which takes some megabytes."""

REMOTE_BYTES: Final = 1 << 18
"""How many bytes of a video are requested from a store at once."""

LOCAL_BYTES: Final = 1 << 15


@dataclass(frozen=True)
class Camera:
    """In which video of a camera each episode is, and where it begins there."""

    paths: Sequence[str]
    files: npt.NDArray[np.int64]
    """The index of each episode's file."""
    begins: npt.NDArray[np.float64]
    """The time of each episode's first frame in its file, in seconds."""


@dataclass(frozen=True)
class Episodes:
    """The selected episodes: what the folder says of each."""

    numbers: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    paths: Sequence[str]
    files: npt.NDArray[np.int64]
    """The index of each episode's file."""
    rows: npt.NDArray[np.int64]
    """The number of each episode's first row in its file."""
    cameras: Mapping[str, Camera]

    @property
    def files_read(self) -> list[str]:
        """The paths of all files."""
        return [*self.paths, *[path for one in self.cameras.values() for path in one.paths]]

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """How many frames there are up to the end of each episode."""
        return np.cumsum(self.lengths)

    @property
    def frames(self) -> int:
        """How many frames there are."""
        return int(self.ends[-1]) if len(self.lengths) else 0


class FrameTables(ParquetFiles):
    """The files of Parquet in a folder of LeRobot."""

    method: ClassVar = "LeRobotDataset"

    def values(self, path: str, row: int, names: Collection[str]) -> dict[str, Any]:
        """Return the values of some columns in a row, which may be changed: the row group stays cached. Thread-safe."""
        known = self.of(path)
        if known.error is not None:
            raise copy.copy(known.error)
        group = bisect_right(known.begins, row) - 1
        if group == len(known.begins) - 1:
            raise DataLossError(f"{without_query(path)}: it has {known.begins[-1]} rows, and no row {row}")
        decoded, at = self.row_group(path, known, group), row - known.begins[group]
        if isinstance(decoded, Exception):
            raise copy.copy(decoded)
        if at in decoded.lost:
            raise decoded.error(at, without_query(path), group)
        if missing := [name for name in names if name not in decoded.columns]:
            raise DataLossError(f"{without_query(path)}: it has no column {missing[0]!r}")
        return {name: value_at(decoded.columns[name], at) for name in names}

    def row_group(self, path: str, known: KnownTable, group: int) -> DecodedGroup | Exception:
        """Return the rows of a row group, or its error; no file is opened if it is cached."""
        with self.lock:
            if (decoded := self.groups.get((path, group))) is not None:
                self.groups.move_to_end((path, group))
                return decoded
        with open_file(path, self.storage) as file:
            check_unchanged(path, file, known.status)
            return self.group(file, path, known, group)

    def all_columns(self, path: str) -> list[Mapping[str, Any]]:
        """Return the columns of each row group of a file."""
        known = self.of(path)
        if known.error is not None:
            raise copy.copy(known.error)
        with open_file(path, self.storage) as file:
            found = [self.decoded(file, path, known, group) for group in range(len(known.begins) - 1)]
        for one in found:
            if isinstance(one, Exception):
                raise one
        return [one.columns for one in found if not isinstance(one, Exception)]


def value_at(column: Any, row: int) -> Any:
    """Return a copy of the value that a column has in a row."""
    if type(column) is np.ndarray and column.dtype != object:
        return column[row].copy()
    (found,) = ColumnBatch(part_of({"value": column}, row, row + 1), 1)
    return copy.deepcopy(found["value"])


class VideoFile(SizedFile):
    """A video in a file or an object, as a file object. Between two reads no file is open."""

    def __init__(self, path: str, storage: StorageOptions | None) -> None:
        with open_file(path, storage) as file:
            self._status = file.status()
            self.remote = file if isinstance(file, RemoteFile) else None
        super().__init__(self._status.size)
        self._path = path
        self._storage = storage

    def read(self, size: int = -1, /) -> bytes:
        size = self.size - self.at if size < 0 else size
        if self.remote is not None:
            found = self.remote.read_at(self.at, size)
        else:
            with open_file(self._path, self._storage) as file:
                check_unchanged(self._path, file, self._status)
                found = file.read_at(self.at, size)
        self.at += len(found)
        return found


class Videos:
    """Videos that are opened when they are needed, and kept for the next frames. Thread-safe."""

    def __init__(self, storage: StorageOptions | None) -> None:
        self.storage = storage
        self.idle: list[tuple[str, Video]] = []
        """Those that no thread uses, the one that was used last at the end."""
        self.lock = threading.Lock()

    def nearest(self, path: str, times: npt.NDArray[np.float64]) -> tuple[Pixels, npt.NDArray[np.float64]]:
        """Return the frames of a video nearest to some times, and their own times."""
        video = self.taken(path, float(times.min())) or self.open_video(path)
        found = video.nearest(times)  # after an error it is not used again
        with self.lock:
            self.idle.append((path, video))
            old = [self.idle.pop(0)[1]] if len(self.idle) > IDLE else []
        for one in old:
            one.close()
        return found

    def open_video(self, path: str) -> Video:
        """Open a video."""
        file = VideoFile(path, self.storage)
        return Video(file, without_query(path), LOCAL_BYTES if file.remote is None else REMOTE_BYTES)

    def taken(self, path: str, time: float) -> Video | None:
        """Return an open video that no thread uses, if possible one that was decoded up to a time."""
        with self.lock:
            places = [place for place, (other, _) in enumerate(self.idle) if other == path]
            ahead = [place for place in places if self.idle[place][1].is_ahead(time)]
            return self.idle.pop((ahead or places)[-1])[1] if places else None


@dataclass(frozen=True, eq=False)
class FrameReader:
    """Makes the frame with a number."""

    features: Mapping[str, Any]
    """The columns that frames have."""
    episodes: Episodes
    windows: Mapping[str, Sequence[int]]
    """For each column that is a window, the numbers of its frames, counted from the frame that is made."""
    tolerance: float
    texts: Mapping[str, Mapping[int, str]]
    """The texts that columns of numbers stand for, by the name of the text's column."""
    origin: Sequence[tuple[str, int, int]] = field(repr=False, metadata=REPLACEABLE)
    """The files, in their current versions."""
    storage: StorageOptions | None = field(default=None, repr=False, metadata=PHYSICAL)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what is open."""
        fields = (self.features, self.episodes, self.windows, self.tolerance, self.texts, self.origin, self.storage)
        return FrameReader, fields

    @cached_property
    def stored(self) -> list[str]:
        """The columns that Parquet has, of those that frames have."""
        return [name for name, feature in self.features.items() if feature["dtype"] != "video"]

    @cached_property
    def single(self) -> dict[str, None]:
        """The columns of Parquet of which one value is read."""
        texts = [f"{name}_index" for name in self.texts]
        return dict.fromkeys([*(name for name in self.stored if name not in self.windows), *texts, *PLACE])

    @cached_property
    def tables(self) -> FrameTables:
        """The files of Parquet."""
        return FrameTables([*dict.fromkeys([*self.single, *self.stored])], self.storage)

    @cached_property
    def videos(self) -> Videos:
        """The videos."""
        return Videos(self.storage)

    def __call__(self, number: int) -> dict[str, Any]:
        """Return a frame; `DataLossError` if its row or a picture cannot be had."""
        episodes = self.episodes
        episode = int(np.searchsorted(episodes.ends, number, side="right"))
        length = int(episodes.lengths[episode])
        frame = number - int(episodes.ends[episode]) + length
        places = {name: [frame + delta for delta in deltas] for name, deltas in self.windows.items()}
        inside = {name: [min(max(place, 0), length - 1) for place in given] for name, given in places.items()}
        rows = self.rows(episode, frame, inside)
        found = dict[str, Any]()
        for name, feature in self.features.items():
            if feature["dtype"] == "video":
                times = [rows[one]["timestamp"] for one in inside.get(name, [frame])]
                values: Any = self.pictures(name, episode, times)
            else:
                values = [as_feature(rows[one][name], feature) for one in inside.get(name, [frame])]
            found[name] = np.asarray(values) if name in inside else values[0]
        for name, given in places.items():
            found[f"{name}_is_pad"] = np.array([not 0 <= place < length for place in given])
        return {**found, **{name: self.text(name, int(rows[frame][f"{name}_index"])) for name in self.texts}}

    def text(self, name: str, number: int) -> str:
        """Return the text that a number stands for."""
        known = self.texts[name]
        if number not in known:
            raise DataLossError(
                f"a frame has the {name} number {number}, and meta/{name}s.parquet has only {[*known]!r:.80}"
            )
        return known[number]

    def rows(self, episode: int, frame: int, windows: Mapping[str, Sequence[int]]) -> dict[int, dict[str, Any]]:
        """Return the values of Parquet by frame, after a check that their rows are those of the frames."""
        path, begin = self.episodes.paths[int(self.episodes.files[episode])], int(self.episodes.rows[episode])
        needs: dict[int, dict[str, None]] = {frame: {**self.single}}
        for name, places in windows.items():
            for place in places:
                needs.setdefault(place, dict.fromkeys(PLACE))
                if name not in self.episodes.cameras:
                    needs[place][name] = None
        found = {one: self.tables.values(path, begin + one, names) for one, names in needs.items()}
        number = int(self.episodes.numbers[episode])
        for one, values in found.items():
            if (place := (int(values["episode_index"]), int(values["frame_index"]))) != (number, one):
                raise DataLossError(
                    f"{without_query(path)}: row {begin + one} is frame {place[1]} of episode {place[0]}, and by the "
                    f"folder's meta/episodes frame {one} of episode {number}"
                )
        return found

    def pictures(self, name: str, episode: int, times: Sequence[Any]) -> Pixels:
        """Return the frames that a camera has at some times of an episode."""
        camera = self.episodes.cameras[name]
        path = camera.paths[int(camera.files[episode])]
        wanted = camera.begins[episode] + np.array(times, np.float64)
        found, stamps = self.videos.nearest(path, wanted)
        rounding = np.spacing(np.abs(np.array(times, np.float32))).astype(np.float64)  # of the times in Parquet
        wrong = np.abs(stamps - wanted) > self.tolerance + rounding
        if wrong.any():
            raise DataLossError(
                f"{without_query(path)}: the frame nearest to {wanted[wrong][0]:.6g} s is at {stamps[wrong][0]:.6g} s, "
                f"further away than tolerance_s={self.tolerance:g}"
            )
        return found


PLACE: Final = ("timestamp", "frame_index", "episode_index")
"""Columns that are always read."""


def as_feature(value: Any, feature: Mapping[str, Any]) -> Any:
    """Return a value of Parquet as the folder describes it: pictures and arrays of several axes."""
    if feature["dtype"] == "image":
        content = cast("dict[str, Any]", value).get("bytes") if isinstance(value, dict) else None
        if not isinstance(content, bytes):
            raise DataLossError(f"a picture is expected as the bytes of a file, got {value!r:.80}")
        return decode_image(content)
    return np.array(nested(value), feature["dtype"]) if len(feature["shape"]) > 1 else value


def nested(value: Any) -> Any:
    """Return arrays of arrays as lists."""
    array = cast("npt.NDArray[Any]", value)
    return [nested(one) for one in array] if isinstance(value, np.ndarray) and array.dtype == object else array

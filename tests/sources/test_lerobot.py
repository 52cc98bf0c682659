"""Folders of LeRobot as users read them: that in tests/data was written, and read for comparison, by lerobot 0.4.4."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.data.write_lerobot import FOLDER, LENGTHS, SELECTIONS, TASKS
from tests.lerobot import CAMERA, write_lerobot
from tests.marks import first_by_default
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results
from tests.videos import number_in, write_video

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


def test_a_state_is_of_the_same_arguments() -> None:
    with ad.LeRobotDataset(FOLDER, episodes=[0, 1]).iterate() as frames:
        next(frames)
        state = frames.state_dict()
    with pytest.raises(ad.ResumeError, match=r"was LeRobotDataset\(lerobot, episodes=\[0, 1\]\) when it was saved"):
        ad.LeRobotDataset(FOLDER, episodes=[1, 0]).iterate(state=state)
    with pytest.raises(ad.ResumeError, match=r"is LeRobotDataset\(lerobot, .*, windows=\{'action': \[1\]\}\) now"):
        ad.LeRobotDataset(FOLDER, episodes=[0, 1], delta_timestamps={"action": [0.1]}).iterate(state=state)


def test_a_folder_that_was_moved(folder: Path, tmp_path: Path) -> None:
    with ad.LeRobotDataset(folder, columns=["index"]).shuffle(seed=1).iterate() as frames:
        before = places([next(frames) for _ in range(5)])
        state = frames.state_dict()
    (tmp_path / "elsewhere").mkdir()
    moved = folder.rename(tmp_path / "elsewhere" / "mine")
    again = ad.LeRobotDataset(moved, columns=["index"]).shuffle(seed=1)
    assert sorted([*before, *places(again.iterate(state=state))]) == [*range(COUNT)]
    info = json.loads((moved / "meta" / "info.json").read_text())
    (moved / "meta" / "info.json").write_text(json.dumps({**info, "total_episodes": 1}))
    with pytest.raises(ad.DataLossError, match=r"mine: meta/episodes has 2 episodes, meta/info\.json 1"):
        ad.LeRobotDataset(moved)
    (moved / "meta" / "info.json").write_text(json.dumps(info))
    with pytest.raises(ad.ResumeError, match="range|33"):
        list(ad.LeRobotDataset(moved, episodes=[0, 1], columns=["index"]).iterate(state=state))


def test_in_a_process_of_its_own() -> None:
    ds = ad.LeRobotDataset(FOLDER, episodes=[3]).with_options(ad.Options(placement="process"))
    assert places(ds) == [*range(COUNT - LENGTHS[3], COUNT)]


def test_damaged_files_are_errors_in_their_places(folder: Path) -> None:
    ds = ad.LeRobotDataset(folder, columns=["index", TOP])
    first, lost = sum(LENGTHS[:2]), Failed("DataLossError")
    content, expected = (folder / VIDEO).read_bytes(), np.moveaxis(values()[f"all {TOP}"], 1, -1)
    for size in range(0, len(content) - 200, 97):
        (folder / VIDEO).write_bytes(content[:size])
        found = results(ad.LeRobotDataset(folder, columns=["index", TOP]))
        assert len(found) == COUNT
        assert places(found[:first]) == [*range(first)]
        assert found[-1] == lost
        for place, one in enumerate(found):
            assert one == lost or np.array_equal(one[TOP], expected[place])
    (folder / VIDEO).unlink()
    assert places(results(ds)) == [*range(first), *[Failed("FileNotFoundError")] * (COUNT - first)]
    (folder / VIDEO).write_bytes((folder / VIDEO.with_name("file-000.mp4")).read_bytes())  # of other episodes
    assert places(results(ad.LeRobotDataset(folder, columns=["index"]))) == [*range(COUNT)]
    table = folder / "data" / "chunk-000" / "file-001.parquet"
    table.write_bytes(table.read_bytes()[:-5])
    assert places(results(ad.LeRobotDataset(folder, columns=["index"]))) == [*range(first), *[lost] * (COUNT - first)]
    shutil.copy(table.with_name("file-000.parquet"), table)
    with pytest.raises(
        ad.DataLossError, match=r"row 0 is frame 0 of episode 0, and by .*meta/episodes frame 0 of epis"
    ):
        ad.LeRobotDataset(folder, columns=["index"])[first]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"dtype": "video"', '"kind": "video"', "KeyError: 'dtype'"),
        ("{chunk_index:03d}", "{chunk:03d}", r"path 'data/chunk-\{chunk:03d\}.*'chunk_index', 'file_index'"),
        ("{file_index:03d}", "{file_index:02.03d}", None),
        ("{file_index:03d}", "{file_index.numerator}", None),
    ],
)
def test_what_a_folder_says_of_itself_wrongly(folder: Path, old: str, new: str, message: str | None) -> None:
    """A pattern of a path has a few words, and none of what `str.format` could do more."""
    info = folder / "meta" / "info.json"
    info.write_text(info.read_text().replace(old, new))
    with pytest.raises(ad.DataLossError if message else FileNotFoundError, match=message):
        list(ad.LeRobotDataset(folder))


def test_a_task_that_the_table_of_tasks_does_not_have(folder: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    whole = [*ad.LeRobotDataset(FOLDER, columns=["index", "task"])]
    path = folder / "meta" / "tasks.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)  # without "fold", number 0
    found = places(results(ds := ad.LeRobotDataset(folder, columns=["index", "task"])))
    lost = Failed("DataLossError")
    assert found == [lost if frame["task"] == "fold" else place for place, frame in enumerate(whole)]
    with pytest.raises(ad.DataLossError, match=r"the task number 0, and meta/tasks\.parquet has only \[1\]"):
        ds[found.index(lost)]


def test_rows_that_changed_their_places_are_errors_in_windows_too(folder: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = folder / "data" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(path)
    order = pa.array([0, 1, 3, 2, *range(4, len(table))])
    pq.write_table(table.take(order), path)
    fps = json.loads((folder / "meta" / "info.json").read_text())["fps"]
    how: dict[str, Any] = {"columns": ["index", "action"], "delta_timestamps": {"action": [0, 1 / fps]}}
    found = places(results(ad.LeRobotDataset(folder, episodes=[0], **how)))
    assert found == [0, *[Failed("DataLossError")] * 3, *range(4, LENGTHS[0])]


def test_a_frame_that_the_video_does_not_have(folder: Path) -> None:
    write_video(folder / VIDEO, range(0, 30, 2), rate=10)
    found = results(ad.LeRobotDataset(folder, episodes=[2], columns=["index", TOP]))
    assert places(found) == [19, Failed("DataLossError"), 21, Failed("DataLossError"), 23]
    with pytest.raises(ad.DataLossError, match=r"nearest to 0\.1 s is at 0.*, further away than tolerance_s=0\.0001"):
        ad.LeRobotDataset(folder, episodes=[2])[1]
    assert places(results(ad.LeRobotDataset(folder, episodes=[2], tolerance_s=0.11))) == [*range(19, 24)]


def test_on_a_web_server() -> None:
    with web() as server:
        for path in filter(Path.is_file, FOLDER.rglob("*")):
            url = server.put(f"mine/{path.relative_to(FOLDER)}", path.read_bytes())
        root = f"{url.partition('/mine')[0]}/mine"
        ds = ad.LeRobotDataset(root, columns=["index", TOP], num_parallel_reads=2)
        assert places(ds) == [*range(COUNT)]
        expected = values()[f"all {TOP}"]
        frame = ds.shuffle(seed=1).take(1).get_single_element()
        assert np.array_equal(frame[TOP], np.moveaxis(expected[int(frame["index"])], 0, -1))
        check_resumes(lambda: ad.LeRobotDataset(root, columns=["index", TOP]), places=2)
        server.put(f"mine/{VIDEO}", (FOLDER / VIDEO).read_bytes()[:500])
        found = places(results(ad.LeRobotDataset(root, columns=["index", TOP])))
        assert found == [*range(19), *[Failed("DataLossError")] * (COUNT - 19)]


def test_what_is_refused(folder: Path) -> None:
    for how, message in [
        ({"episodes": [4]}, r"episodes=\) must be numbers of episodes, of which there are 4, got \[4\]"),
        ({"episodes": 2}, "must be numbers of episodes"),
        ({"columns": ["word"]}, r"columns=\): there is no feature 'word', the features are \['observation.state'"),
        ({"columns": TOP}, "must be a list of names"),
        ({"delta_timestamps": {"word": [0]}}, "there is no feature 'word' among those that are read"),
        ({"delta_timestamps": [0, 0.1]}, r"must be a dict of lists of times in seconds.*got \[0, 0.1\]"),
        ({"delta_timestamps": {TOP: 0.1}}, "must be a list of seconds, got 0.1"),
        ({"delta_timestamps": {TOP: [0, 0.15]}}, "must be multiples of 0.1 s, as the folder has 10 frames per second"),
        ({"delta_timestamps": {TOP: []}}, r"got \[\]"),
    ]:
        with pytest.raises(ad.PlanError, match=rf"LeRobotDataset\(.*{message}"):
            ad.LeRobotDataset(FOLDER, **how)
    info = folder / "meta" / "info.json"
    content = info.read_text()
    info.write_text(content.replace("v3.0", "v2.1"))
    with pytest.raises(ad.PlanError, match=r"has the format v2.1, and v3.0 is read: convert it with lerobot"):
        ad.LeRobotDataset(folder)
    info.write_text(content.replace("data/chunk", "../data/chunk"))
    with pytest.raises(ad.DataLossError, match="outside of the folder"):
        ad.LeRobotDataset(folder)
    info.write_text("[]")
    with pytest.raises(ad.DataLossError, match=r"info.json: it is no index of LeRobot"):
        ad.LeRobotDataset(folder)
    for wrong in (folder / "none", info):
        with pytest.raises((FileNotFoundError, NotADirectoryError)) as missing:
            ad.LeRobotDataset(wrong)
        assert "a folder of LeRobot has a file meta/info.json" in missing.value.__notes__[0]


@pytest.mark.slow
def test_an_hour_of_video(tmp_path: Path) -> None:
    """One episode is so long that the rounding of its times as float32 is above the tolerance."""
    fps, lengths = 5, [12_000, *[300] * 20]
    write_lerobot(tmp_path, lengths, fps, preset="ultrafast", gop=20)
    ds = ad.LeRobotDataset(tmp_path, delta_timestamps={CAMERA: [-1, 0, 0.2]}, num_parallel_reads=2)
    assert len(ds) == sum(lengths) == 3600 * fps
    chosen = [*range(11_990, 12_010), *map(int, ds.shuffle(seed=1).take(200).map(lambda frame: frame["number"]))]
    for number in chosen:
        frame = ds[number]
        end = 12_000 if number < 12_000 else number // 300 * 300 + 300
        begin = 0 if number < 12_000 else end - 300
        wanted = [min(max(number + delta, begin), end - 1) for delta in (-5, 0, 1)]
        assert frame["number"] == number
        assert [*map(number_in, frame[CAMERA])] == [one % 50 for one in wanted]
        assert frame[f"{CAMERA}_is_pad"].tolist() == [not begin <= number + delta < end for delta in (-5, 0, 1)]
    with ds.skip(15_000).iterate() as frames:
        assert [int(next(frames)["number"]) for _ in range(20)] == [*range(15_000, 15_020)]

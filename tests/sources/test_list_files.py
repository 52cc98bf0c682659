"""A state refuses other files than it was saved with, and says which."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import inspect_state
from asyncdata.errors import ResumeError
from asyncdata.storage.local import LocalStore, is_path
from tests.states import edited


def folder(path: Path, count: int) -> list[str]:
    names = [str(path / f"shard-{number:05d}.txt") for number in range(count)]
    for name in names:
        Path(name).write_text("x")
    return names


def listed(path: Path) -> ad.Dataset:
    return ad.Dataset.list_files(str(path / "*"), shuffle=False)


def test_the_files_of_several_patterns_are_sorted_together_and_come_as_often_as_they_match(tmp_path: Path) -> None:
    names = folder(tmp_path, 3)
    patterns = [str(tmp_path / pattern) for pattern in ("*2.txt", "shard-*", "*0.txt")]
    found = list(ad.Dataset.list_files(patterns, shuffle=False))
    assert found == [names[0], names[0], names[1], names[2], names[2]]


def stopped(path: Path) -> dict[str, Any]:
    with listed(path).iterate() as names:
        next(names)
        return json.loads(json.dumps(names.state_dict()))


def refusal(path: Path, state: Any) -> str:
    with pytest.raises(
        ResumeError, match=r"step 1 was \d+ files #[0-9a-f]{8} when .* \d+ files #[0-9a-f]{8} now; "
    ) as no:
        listed(path).iterate(state=state)
    return str(no.value).split(" now; ")[1].removesuffix("; build the same pipeline, or start without the state")


def rename(names: list[str], number: int, name: str) -> None:
    os.rename(names[number], str(Path(names[number]).with_name(name)))


def write(names: list[str], number: int) -> None:
    Path(names[number]).write_text("longer")


Change = Callable[[list[str]], Any]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda names: write(names, 1), "{1} has another name or size"),
        (lambda names: [write(names, 0), write(names, 2)], "{0} has another name or size, and 1 more file"),
        (lambda names: [write(names, n) for n in range(3)], "{0} has another name or size, and 2 more files"),
        (lambda names: rename(names, 1, "shard-00001.old"), "{folder}/shard-00001.old has another name or size"),
        (lambda names: rename(names, 0, "z"), "{1} has another name or size, and 2 more files"),
        (lambda names: Path(names[1] + "b").write_text(""), "{1}b was added"),
        (lambda names: Path(names[2] + "b").write_text(""), "{2}b was added"),
        (lambda names: Path(names[0]).with_name("a").write_text(""), "{folder}/a was added"),
        (lambda names: [Path(names[0] + x).write_text("") for x in "bc"], "2 added, from {0}b on"),
        (lambda names: os.remove(names[0]), "1 file fewer, which was before {1}"),
        (lambda names: os.remove(names[2]), "1 file fewer, which was before the end"),
        (lambda names: [os.remove(name) for name in names[:2]], "2 files fewer, which was before {2}"),
        (lambda names: [os.remove(names[0]), write(names, 1)], "1 file fewer, and the first difference is at {1}"),
    ],
)
def test_of_three_files_the_one_that_differs_is_named(tmp_path: Path, change: Change, said: str) -> None:
    names = folder(tmp_path, 3)
    state = stopped(tmp_path)
    change(names)
    assert refusal(tmp_path, state) == said.format(*names, folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda names: write(names, 500), "one of {480} to {511} has another name or size"),
        (lambda names: write(names, 999), "one of {992} to {999} has another name or size"),
        (
            lambda names: [write(names, 1), write(names, 40)],
            "one of {0} to {31} has another name or size, and 1 more group",
        ),
        (lambda names: rename(names, 70, "shard-00070.old"), "one of {64} to {95} has another name or size"),
        (
            lambda names: Path(names[500] + "b").write_text(""),
            "1 file more, and the first difference is at {480} to {510}",
        ),
        (
            lambda names: Path(names[999] + "b").write_text(""),
            "1 file more, and the first difference is at {992} to {999}b",
        ),
        (lambda names: os.remove(names[500]), "1 file fewer, and the first difference is at {480} to {512}"),
        (lambda names: os.remove(names[999]), "1 file fewer, and the first difference is at {992} to {998}"),
        (lambda names: [os.remove(n) for n in names[992:]], "8 files fewer, and the first difference is at the end"),
    ],
)
def test_of_a_thousand_files_the_place_that_differs_is_named(tmp_path: Path, change: Change, said: str) -> None:
    names = folder(tmp_path, 1000)
    state = stopped(tmp_path)
    assert len(state["plan"][0]) < 160
    change(names)
    assert refusal(tmp_path, state) == said.format(*names)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64, 65])
def test_the_same_files_are_accepted_and_each_change_is_seen(tmp_path: Path, count: int) -> None:
    names = folder(tmp_path, count)
    state = stopped(tmp_path)
    assert list(listed(tmp_path).iterate(state=state)) == names[1:]
    assert (len(state["plan"][0]) - len(f"{count} files #12345678:")) // 4 <= 32
    for number, name in enumerate(names):
        write(names, number)
        assert (name in refusal(tmp_path, state)) or count > 32
        Path(name).write_text("x")
    assert list(listed(tmp_path).iterate(state=state)) == names[1:]


def test_files_that_are_all_gone(tmp_path: Path) -> None:
    names = folder(tmp_path, 2)
    with ad.TFRecordDataset(names).iterate() as records:
        state = records.state_dict()
    with pytest.raises(
        ResumeError, match=r"was 2 files #.{8} .* is 0 files #.{8} now; 2 files fewer, .* before the end"
    ):
        ad.TFRecordDataset([]).iterate(state=state)
    with ad.TFRecordDataset([]).iterate() as records:
        state = records.state_dict()
    with pytest.raises(ResumeError, match=rf"was 0 files #.{{8}} .* now; 2 added, from {names[0]} on"):
        ad.TFRecordDataset(names).iterate(state=state)


def test_a_state_that_was_saved_without_places_is_refused_all_the_same(tmp_path: Path) -> None:
    folder(tmp_path, 3)
    state = stopped(tmp_path)
    with pytest.raises(ResumeError, match="step 1 was 3 files #12345678 when it was saved, and is 3 files #"):
        listed(tmp_path).iterate(state=edited(state, plan=["3 files #12345678"]))


def test_an_account_of_a_state_is_for_people(tmp_path: Path) -> None:
    folder(tmp_path, 40)
    line = inspect_state(stopped(tmp_path)).splitlines()[0]
    assert line.startswith("plan       40 files #")
    assert len(line) == len("plan       40 files #12345678")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/b/c/f.txt", "a/b/g.txt", "a/.h/x.txt", "a/b/.k.txt", "top.txt", "z/q.txt", "[x]/y.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "z")
    (tmp_path / "a" / "dead").symlink_to("nowhere")
    return tmp_path


PATTERNS = ("**", "**/", "*/**", "a/**", "a/**/", "**/*.txt", "**/b/**", "a/b/**/g.txt", "a/**/c/*", "**/c/**/*.txt")
OTHERS = ("*.txt", "top.txt/**", "x/**", "a**", "**b/*", "./**/*.txt", "*/*/**/f.txt", "**/.h/*", "a/.h/**", "**/z/*")


@pytest.mark.parametrize("pattern", [*PATTERNS, *OTHERS])
@pytest.mark.parametrize("base", ["", "absolute"])
def test_patterns_match_what_glob_gives(pattern: str, base: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    pattern = str(tree) + os.sep + pattern if base else pattern
    found = [entry.path for entry in LocalStore().list(pattern)]
    assert found == sorted(filter(is_path, glob.glob(pattern, recursive=True)))


def test_links_to_folders_above_are_not_followed(tree: Path) -> None:
    for number, place in enumerate(("", "a", "a/b", "a/b/c", "z")):
        (tree / place / f"again{number}").symlink_to(tree)
        (tree / place / f"here{number}").symlink_to(tree / place)
    (tree / "a" / "b" / "to_z").symlink_to(tree / "z")
    (tree / "z" / "to_b").symlink_to(tree / "a" / "b")
    found = list(ad.Dataset.list_files(f"{tree}/**/g.txt", shuffle=False))
    assert found == [str(tree / name / "g.txt") for name in ("a/b", "a/link/to_b", "z/to_b")]
    assert list(ad.Dataset.list_files(f"{tree}/**/**/top.txt", shuffle=False)) == [str(tree / "top.txt")]

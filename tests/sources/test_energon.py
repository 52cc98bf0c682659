"""EnergonDataset on folders that `energon prepare` has prepared, compared with what Energon's own reader gives."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.braces import expand_braces
from asyncdata.testing import check_resumes
from tests.data.write_energon import FOLDER, METADATASETS, READ

EXPECTED: dict[str, list[Any]] = json.loads((FOLDER / "expected.json").read_text())

IN_EXCLUDED_SHARD = {"011", "012"}
"""What Energon's join gives though its shard is excluded."""

formats = pytest.mark.formats


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the folders, which tests may change."""
    return Path(shutil.copytree(FOLDER, tmp_path / "energon"))


def plain(value: Any) -> Any:
    """A sample as JSON holds it."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items() if name == "__key__" or not name.startswith("__")}
    return value.decode() if isinstance(value, bytes) else value


@formats
@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("name", [name for name in EXPECTED if ".yaml" not in name])
def test_samples_are_those_of_energon_s_own_reader(name: str, index: bool) -> None:
    path, part = name.split()
    ds = ad.EnergonDataset(FOLDER / path, part, index=index)
    assert [plain(sample) for sample in ds] == EXPECTED[name]
    check_resumes(lambda: ad.EnergonDataset(FOLDER / path, part, index=index).batch(2))
    if index:
        assert [plain(ds[number]) for number in range(len(ds))] == EXPECTED[name]
        shuffled = ds.shuffle(seed=1)
        assert sorted(map(repr, map(plain, shuffled))) == sorted(map(repr, EXPECTED[name]))
        check_resumes(lambda: shuffled)


@formats
@pytest.mark.parametrize("part", READ["joined.yaml"])
def test_joins(part: str) -> None:
    ds = ad.EnergonDataset(FOLDER / "joined.yaml", part, index=True, dataset_config=None)
    pairs = [tuple(sample.values()) if isinstance(sample, dict) else sample for sample in ds]
    expected = [one for one in EXPECTED[f"joined.yaml {part}"] if one["__key__"] not in IN_EXCLUDED_SHARD]
    assert [plain(image) for image, _ in pairs] == [one["image"] for one in expected]
    assert [caption["cap"].decode() for _, caption in pairs] == [one["caption"]["image"] for one in expected]
    check_resumes(lambda: ad.EnergonDataset(FOLDER / "joined.yaml", part, index=True, dataset_config=None))
    shuffled = ad.EnergonDataset(FOLDER / "joined.yaml", "train", index=True, dataset_config=None, shuffle=True, seed=0)
    assert Counter(sample["image"]["__key__"] for sample in shuffled) == Counter(one["__key__"] for one in expected)


@formats
def test_what_has_no_match(folder: Path) -> None:
    for nonmatch, count in (("none", 5), ("skip", 2), ("error", None)):
        text = METADATASETS["joined.yaml"].replace("nonmatch: skip", f"nonmatch: {nonmatch}")
        (folder / "joined.yaml").write_text(text)
        ds = ad.EnergonDataset(folder / "joined.yaml", "val", index=True, dataset_config=None)
        if count is None:
            with pytest.raises(KeyError, match="no element with the key 020"):
                list(ds)
        else:
            assert [key["__key__"] for key, other in ds if other is not None] == ["001", "023"]
            assert len(list(ds)) == count


@formats
def test_mixtures() -> None:
    path = FOLDER / "mixed.yaml"
    train = ad.EnergonDataset(path, seed=1)
    found = Counter(sample.get("__subflavors__", {}).get("kind") for sample in train.take(400))
    assert 250 < found["image"] < 350
    with pytest.raises(ad.PlanError, match="give index=True"):
        ad.EnergonDataset(path, "val")
    epoch = Counter(sample["__key__"] for sample in ad.EnergonDataset(path, "val", index=True, seed=1))
    captions = [one["__key__"] for one in EXPECTED["captions train"]][2:]
    assert epoch == Counter([one["__key__"] for one in EXPECTED["images train"]] * 2 + captions[: len(captions) // 2])
    test = ad.EnergonDataset(path, "test", index=True)
    assert [plain(sample) for sample in test] == EXPECTED["mixed.yaml test"]
    check_resumes(lambda: ad.EnergonDataset(path, seed=1, index=True, shuffle=True).take(30).batch(4))
    once = ad.EnergonDataset(path, seed=1, repeat=False)
    assert len(list(once)) == len(EXPECTED["images train"]) + len(EXPECTED["captions train"])


@formats
def test_metadatasets_in_others_and_of_version_1(folder: Path) -> None:
    (folder / "below").mkdir()
    parts = "{path: ../mixed.yaml, split_part: test}, {weight: 0, path: ../images, split_part: val}"
    outer = f"splits: {{dev: {{blend: [{parts}]}}}}"
    (folder / "below" / "outer.yaml").write_text(outer)
    ds = ad.EnergonDataset(folder / "below" / "outer.yaml", "dev", index=True, repeat=False, seed=0)
    assert [plain(sample) for sample in ds.take(4)] == EXPECTED["mixed.yaml test"]
    first = """
__module__: megatron.energon
__class__: Metadataset
splits: {val: {datasets: [{weight: 1, path: captions}]}}
"""
    (folder / "first.yaml").write_text(first)
    ds = ad.EnergonDataset(folder / "first.yaml", "val", repeat=False)
    assert [plain(sample) for sample in ds] == EXPECTED["captions val"]


@formats
@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("joined.yaml", None, "it names code, joiner: {'__module__': 'joiner'"),
        (
            "images/.nv-meta/dataset.yaml",
            "sample_loader: sample_loader.py:load\npart_filter: [a]",
            "code, sample_loader",
        ),
        ("images/.nv-meta/dataset.yaml", "part_filter: sample_loader.py:parts", "code, part_filter"),
        ("images/.nv-meta/dataset.yaml", "{__module__: mine, __class__: A}", "code, __module__: 'mine'"),
        ("images/.nv-meta/dataset.yaml", "sample_type: {__module__: mine, __class__: A}", "code, __module__: 'mine'"),
    ],
)
def test_code_is_not_imported(folder: Path, path: str, text: str | None, message: str) -> None:
    if text is not None:
        (folder / path).write_text(text)
    target = folder / path.partition("/")[0]
    with pytest.raises(ad.PlanError, match=message.replace("{", r"\{")) as caught:
        ad.EnergonDataset(target, index=True)
    assert "EnergonDataset(..., dataset_config=None).map(your_function)" in str(caught.value)
    assert next(iter(ad.EnergonDataset(target, index=True, dataset_config=None)))


@formats
@pytest.mark.parametrize(
    ("path", "text", "error", "message"),
    [
        ("images/.nv-meta/split.yaml", "split_parts: [", ad.DataLossError, "it is damaged"),
        ("images/.nv-meta/split.yaml", "split_parts: {a: []}", ad.PlanError, "there is no part 'train', but 'a'"),
        ("images/.nv-meta/split.yaml", "{split_parts: {}, more: 1}", ad.PlanError, "'more' is not supported"),
        ("images/.nv-meta/split.yaml", "split_parts: {train: [../a.tar]}", ad.DataLossError, "outside of the folder"),
        ("images/.nv-meta/split.yaml", "x", ad.PlanError, "expected a mapping"),
        ("images/.nv-meta/dataset.yaml", "!!python/object/apply:os.system [ls]", ad.DataLossError, "it is damaged"),
        ("images/.nv-meta/dataset.yaml", "field_map: {a: '['}", ad.PlanError, "neither a member nor a part of one"),
        ("mixed.yaml", "splits: {train: {path: images, aux: {}}}", ad.PlanError, "'aux' is not supported"),
        ("mixed.yaml", "splits: {train: {path: a.jsonl}}", ad.PlanError, "read it by JsonLinesDataset"),
        ("mixed.yaml", "splits: {train: {path: images, subset: {range: [0, 99]}}}", ad.PlanError, "is not in the 6"),
        ("mixed.yaml", "splits: {train: {blend: []}}", ad.PlanError, "blend is a list of data sets"),
    ],
)
def test_damaged_and_wrong_files(folder: Path, path: str, text: str, error: Any, message: str) -> None:
    (folder / path).write_text(text)
    with pytest.raises(error, match=message):
        ad.EnergonDataset(folder / path.partition("/")[0], index=True)


@formats
@pytest.mark.parametrize("damage", ["missing", "short", "random", "cut"])
def test_an_index_that_does_not_fit_is_made_anew(folder: Path, damage: str) -> None:
    path = folder / "images" / "shard_2.tar.idx"
    content = path.read_bytes()
    path.unlink()
    changed = {
        "short": content[:-8],
        "random": bytes(range(40)),
        "cut": content[:-3],
    }
    if damage in changed:
        path.write_bytes(changed[damage])
    ds = ad.EnergonDataset(folder / "images", index=True)
    assert [plain(ds[number]) for number in range(len(ds))] == EXPECTED["images train"]


@formats
@pytest.mark.parametrize("name", ["shard_3.tar.idx", "in the middle"])
def test_an_index_of_another_archive_of_the_same_size_is_an_error(folder: Path, name: str) -> None:
    path = folder / "images" / "shard_2.tar.idx"
    begins = np.frombuffer(path.read_bytes(), "<u8").copy()
    begins[-2] += 1024  # where the second member of the sample begins
    content = begins.tobytes() if name == "in the middle" else (folder / "images" / name).read_bytes()
    path.write_bytes(content)
    ds = ad.EnergonDataset(folder / "images", index=True)
    with pytest.raises(ad.DataLossError, match="its index does not fit"):
        [ds[number] for number in range(len(ds))]


@formats
def test_a_member_that_a_sample_does_not_have(folder: Path) -> None:
    (folder / "images" / ".nv-meta" / "dataset.yaml").write_text("field_map: {image: webp}\n")
    with pytest.raises(KeyError, match="webp") as caught:
        ad.EnergonDataset(folder / "images").peek()
    assert any("of the members ['__key__', " in note for note in caught.value.__notes__)


@formats
def test_damaged_archives(folder: Path) -> None:
    path = folder / "images" / "shard_2.tar"
    whole = path.read_bytes()
    expected = EXPECTED["images train"]
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place])
        (folder / "images" / ".shard_2.tar.index").unlink(missing_ok=True)
        for index in (False, True):
            found, errors = read(ad.EnergonDataset(folder / "images", index=index))
            assert found == expected[: len(found)]
            assert len(found) == 1 + len(read(ad.WebDataset(path))[0])
            assert errors == 1 or place > len(whole) - 1024, place  # only zeros are missing


def read(ds: ad.Dataset[Any]) -> tuple[list[Any], int]:
    """All samples, and how many errors there were."""
    found, errors = list[Any](), 0
    with ds.iterate() as elements:
        while True:
            try:
                found.append(plain(next(elements)))
            except StopIteration:
                return found, errors
            except ad.DataLossError:
                errors += 1


def test_a_folder_without_yaml(tmp_path: Path) -> None:
    samples = ad.Dataset.from_list([{"__key__": f"{number}", "txt": f"{number}"} for number in range(6)])
    samples.write_webdataset(tmp_path / "a", 3)
    names = sorted(path.name for path in (tmp_path / "a").glob("*.tar"))
    (tmp_path / "a" / ".nv-meta").mkdir()
    split = {"split_parts": {"train": names, "none": []}, "exclude": [f"{names[0]}/0", names[1], f"{names[2]}/{{4,9}}"]}
    (tmp_path / "a" / ".nv-meta" / "split.json").write_text(json.dumps(split))
    for index in (False, True):
        ds = ad.EnergonDataset(tmp_path / "a", index=index, split_config="split.json")
        assert [sample["txt"] for sample in ds] == ["1", "5"]
        check_resumes(lambda index=index: ad.EnergonDataset(tmp_path / "a", index=index, split_config="split.json"))
    assert list(ad.EnergonDataset(tmp_path / "a", "none", split_config="split.json")) == []
    with pytest.raises(FileNotFoundError) as caught:
        ad.EnergonDataset(tmp_path, split_config="split.json")
    assert "prepare it by `energon prepare`" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..10..5}", ["0", "5", "10"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        ("{a..c}", ["a", "b", "c"]),
        ("x{a}y", ["x{a}y"]),
        ("x{}", ["x{}"]),
        ("{a", ["{a"]),
        ("{a{1,2}", ["{a1", "{a2"]),
        ("{,x}", ["", "x"]),
    ],
)
def test_braces(pattern: str, names: list[str]) -> None:
    assert expand_braces(pattern) == names


@pytest.mark.parametrize("name", ["split_config", "dataset_config"])
def test_a_config_is_a_name_in_the_folder(name: str) -> None:
    arguments: dict[str, Any] = {"dataset_config": None, name: "other/split.yaml"}
    with pytest.raises(ad.PlanError, match=r"a file in \.nv-meta"):
        ad.EnergonDataset(FOLDER / "images", **arguments)

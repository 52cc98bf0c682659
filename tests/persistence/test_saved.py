"""save and load: a folder that is complete or not there, whoever is stopped while it is written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.columns import ColumnBatch
from asyncdata.iterator import next_block
from asyncdata.persistence import saved_dataset
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Ordinals
from asyncdata.system.checksum import with_checksum
from asyncdata.testing import check_resumes, leaves_nothing
from asyncdata.testing.checks import same
from tests.faults.unnamed import INPUTS
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results, unnamed

ROOT = Path(__file__).parents[2]

COMPRESSIONS = pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB", "AUTO", ""])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved"


@COMPRESSIONS
def test_what_is_saved_is_loaded_in_its_order(path: Path, compression: str | None) -> None:
    elements: list[Any] = [1, (2.5, None), {"x": np.arange(3), "name": "x"}, b"y", [np.float32(1)]] * 20
    ad.Dataset.from_iterable(elements).save(path, compression)
    assert same(list(ad.Dataset.load(path)), elements)
    loaded = ad.Dataset.load(path, compression=compression)
    assert same(list(loaded), elements)
    assert len(loaded) == len(elements)
    check_resumes(lambda: ad.Dataset.load(path).shuffle(7, seed=1), places=8)
    assert max(os.listdir(path)) == "dataset.json"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_all_ways_to_read_leave_nothing(path: Path, way: Any) -> None:
    with leaves_nothing():
        ad.Dataset.range(50).save(path, shard_func=lambda x: x % 3)
        assert sorted(way(ad.Dataset.load(path))) == [*range(50)]
        assert len(way(ad.Dataset.load(path), 3)) == 3


def test_an_empty_dataset(path: Path) -> None:
    ad.Dataset.range(0).save(path)
    assert list(ad.Dataset.load(path)) == []
    assert len(ad.Dataset.load(path)) == 0


def test_elements_can_be_had_in_any_order(path: Path) -> None:
    ad.Dataset.range(100).map(lambda x: {"x": x}).save(path, shard_func=lambda element: element["x"] // 30)
    ds = ad.Dataset.load(path)
    assert (len(ds), ds[0], ds[-1], ds[45]) == (100, {"x": 0}, {"x": 99}, {"x": 45})
    assert sorted(element["x"] for element in ds.shuffle(seed=1)) == [*range(100)]
    check_resumes(lambda: ad.Dataset.load(path).shuffle(seed=1).batch(7))


def test_a_saved_dataset_may_be_moved_also_while_a_state_is_kept(path: Path) -> None:
    ad.Dataset.range(100).save(path)
    with ad.Dataset.load(path).iterate() as elements:
        assert [next(elements) for _ in range(30)] == [*range(30)]
        state = elements.state_dict()
    path.rename(path.with_name("elsewhere"))
    assert list(ad.Dataset.load(path.with_name("elsewhere")).iterate(state=state)) == [*range(30, 100)]


def test_without_a_function_a_full_shard_is_followed_by_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_dataset, "SHARD_BYTES", 1000)
    ad.Dataset.range(100).map(lambda x: np.full(50, x)).save(path)
    assert len(os.listdir(path)) > 10
    assert [int(array[0]) for array in ad.Dataset.load(path)] == [*range(100)]


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_files_do_not_depend_on_how_quickly_elements_come(
    path: Path, monkeypatch: pytest.MonkeyPatch, compression: str | None
) -> None:
    """In whatever blocks they come, and whether those are of arrays or of elements: the same files, byte for byte."""
    monkeypatch.setattr(saved_dataset, "SHARD_BYTES", 20_000)
    rows = {"x": np.random.default_rng(1).random((500, 40)), "y": np.arange(500, dtype=np.float32)}
    ways: list[Any] = [
        lambda ds: ds,
        lambda ds: ds.prefetch(1),
        lambda ds: ds.map(lambda row: row),
        lambda ds: ds.batch(7).unbatch(),
        lambda ds: ds.with_options(ad.Options(placement="current")),
    ]
    found: list[dict[str, bytes]] = []
    for number, way in enumerate(ways):
        target = path.with_name(f"{number}")
        way(ad.Dataset.from_tensor_slices(rows)).save(target, compression)
        assert same([*ad.Dataset.load(target)], [*ad.Dataset.from_tensor_slices(rows)])
        found.append({file.name: file.read_bytes() for file in target.iterdir()})
    assert len(found[0]) > 3
    assert all(files == found[0] for files in found)


def test_what_is_written_into_dicts_is_saved(path: Path) -> None:
    with ad.Dataset.from_tensor_slices({"x": np.arange(300)}).iterate() as rows:
        blocks: list[Any] = [next_block(rows, 20) for _ in range(12)]
    for row in blocks[3].items:
        row["seen"] = 1
    shards = saved_dataset.ShardWriters(path.parent, None, None)
    for block in blocks:
        shards.add(block)
    shards.finish()
    shards.close()
    assert ["seen" in row for row in ad.Dataset.load(path.parent)] == [
        block is blocks[3] for block in blocks for _ in block.items
    ]


@pytest.mark.parametrize("sizes", [[20] * 6, [300], [1, 40, 2]])
def test_numbers_stay_what_they_are(path: Path, sizes: list[int]) -> None:
    """Python's integers are no NumPy's, however many blocks they come in, and whatever comes before and after them."""
    integers = [ColumnBatch.ints(range(number, number + size)) for number, size in enumerate(sizes)]
    numbers = [ColumnBatch(np.arange(size), size) for size in sizes]
    for name, parts in {"integers": integers, "numbers": numbers, "both": [*integers, *numbers, *integers]}.items():
        folder = path.with_name(name)
        folder.mkdir()
        shards = saved_dataset.ShardWriters(folder, None, None)
        shards.group = 10_000
        for part in parts:
            shards.add(Block.of_columns([part], Ordinals(0, len(part))))
        shards.finish()
        shards.close()
        assert same([*ad.Dataset.load(folder)], [element for part in parts for element in part])


def test_a_state_is_written_after_each_interval(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[tuple[int, int]] = []
    hold = saved_dataset.ShardWriters.hold

    def noted(shards: saved_dataset.ShardWriters, state: Any) -> None:
        hold(shards, state)
        held.append((state["delivered"], sum(shard.elements for shard in shards.shards.values())))

    monkeypatch.setattr(saved_dataset.ShardWriters, "hold", noted)
    ad.Dataset.range(1000).save(path, checkpoint_args={"checkpoint_interval": 300})
    assert held == [(300, 300), (600, 600), (900, 900)]


def test_an_exception_that_ends_loops_does_not_end_saving(path: Path) -> None:
    def stop(_: int) -> int:
        raise StopIteration

    with pytest.raises((StopIteration, RuntimeError)):
        ad.Dataset.range(3).save(path, shard_func=stop)
    with pytest.raises((StopIteration, RuntimeError)):
        ad.Dataset.range(3).map(stop).save(path)
    assert not path.exists()


@pytest.mark.parametrize(
    "element",
    [
        lambda number: [bytes(1 << 20)],
        lambda number: {"number": number, "pictures": [np.zeros(1 << 17)]},
        lambda number: np.array([b"x" * (1 << 20), None], object),
        lambda number: np.full(1 << 17, number),
    ],
)
def test_few_large_elements_are_held(path: Path, monkeypatch: pytest.MonkeyPatch, element: Any) -> None:
    """Whatever they are made of: no more than those of two blocks."""
    blocks: list[int] = []
    write = saved_dataset.ShardWriters.write

    def noted(shards: saved_dataset.ShardWriters) -> None:
        blocks.append(len(shards.waiting))
        write(shards)

    monkeypatch.setattr(saved_dataset.ShardWriters, "write", noted)
    ad.Dataset.range(40).map(element).save(path)
    assert max(blocks) <= 2
    assert len(ad.Dataset.load(path)) == 40


def test_what_cannot_be_written_is_found_at_once(path: Path) -> None:
    read: list[int] = []

    def odd(number: int) -> set[int]:
        read.append(number)
        return {number}

    with pytest.raises(ad.StructureError, match="cannot be written to a file"):
        ad.Dataset.counter().map(odd).prefetch(1).save(path)
    assert len(read) < 10


def test_readers_and_specs(path: Path) -> None:
    ad.Dataset.range(9).map(lambda x: (x, float(x))).save(path, shard_func=lambda x, _: x % 3)
    spec = (ad.TensorSpec((), "int8"), ad.TensorSpec((), "float32"))
    ds = ad.Dataset.load(path, spec, reader_func=lambda shards: shards.interleave(lambda shard: shard))
    assert [x for x, _ in ds] == [*range(9)]
    assert next(iter(ds))[1].dtype == np.float32
    assert {type(error) for error in results(ad.Dataset.load(path, ad.TensorSpec((3,))))} == {Failed}
    with pytest.raises(ad.PlanError, match="needs a Dataset, got int"):
        ad.Dataset.load(path, reader_func=lambda shards: 3)  # type: ignore[arg-type,return-value]


# mistakes


def test_what_is_there_already_is_not_touched(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="is there already"):
        ad.Dataset.range(3).save(path)
    assert path.read_text() == "mine"


def test_an_empty_folder_is_replaced(path: Path) -> None:
    path.mkdir()
    ad.Dataset.range(3).save(path)
    assert list(ad.Dataset.load(path)) == [0, 1, 2]
    assert sorted(os.listdir(path)) == ["00000.tfrecord", "dataset.json"]


def test_what_comes_into_an_empty_folder_meanwhile_is_not_touched(path: Path) -> None:
    path.mkdir()
    own = path / "mine"

    def write(x: int) -> int:
        own.write_text("mine")
        return x

    ds = ad.Dataset.range(3).map(write)
    with pytest.raises(OSError, match="saved"):
        ds.save(path)
    assert own.read_text() == "mine"
    own.unlink()
    ad.Dataset.range(3).map(write).save(path)  # what was written gets its name, and nothing is read again
    assert list(ad.Dataset.load(path)) == [0, 1, 2]
    assert not own.exists()


@pytest.mark.parametrize("kind", ["a folder of files", "a link", "a link to nothing", "the current folder", "a dot"])
def test_what_cannot_be_replaced_is_refused_at_once(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    target: Path | str = path
    if kind == "a folder of files":
        (path / "mine").touch()
    elif kind.startswith("a link"):
        target = path.with_name("link")
        target.symlink_to(path if kind == "a link" else "nowhere")
    else:
        monkeypatch.chdir(path)
        target = "." if kind == "a dot" else path
    with pytest.raises(FileExistsError, match="is there already"):
        ad.Dataset.range(3).map(pytest.fail).save(target)
    assert not list(path.parent.glob("*.partial"))


def test_wrong_arguments_are_errors_where_they_are_given(path: Path) -> None:
    ds = ad.Dataset.range(3)
    with pytest.raises(ad.PlanError, match="compression_type must be"):
        ds.save(path, "ZIP")
    with pytest.raises(ad.PlanError, match="checkpoint_args=\\) has no 'directory'"):
        ds.save(path, checkpoint_args={"directory": "x"})
    with pytest.raises(ad.PlanError, match="checkpoint_interval"):
        ds.save(path, checkpoint_args={"checkpoint_interval": 0})
    assert not path.parent.joinpath("saved.partial").exists()
    with pytest.raises(ValueError, match="must return the number of a shard, from 0 on, got -1"):
        ds.save(path, shard_func=lambda x: -1)
    with pytest.raises(TypeError, match="save.*must return the number of a shard, an integer, got 1.5"):
        ds.save(path, shard_func=lambda x: 1.5)  # type: ignore[arg-type,return-value]
    ds.save(path, "GZIP")
    with pytest.raises(ad.PlanError, match="was saved with compression='GZIP', got 'ZLIB'"):
        ad.Dataset.load(path, compression="ZLIB")


def test_what_is_not_there_or_not_finished_says_so(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ad.Dataset.load(path)
    with pytest.raises(ad.StructureError, match=r"cannot be written to a file: builtins\.set"):
        ad.Dataset.from_iterable([1, {2}]).save(path)
    with pytest.raises(FileNotFoundError) as caught:
        ad.Dataset.load(path)
    assert "the save did not finish" in caught.value.__notes__[0]
    path.mkdir()
    (path / "dataset.json").write_text("{")
    with pytest.raises(ad.DataLossError, match="not the manifest of a saved dataset"):
        ad.Dataset.load(path)


# damage


def test_damage_is_an_error_that_names_the_file(path: Path) -> None:
    ad.Dataset.range(30).save(path)
    shard = path / "00000.tfrecord"
    data = shard.read_bytes()
    broken = bytearray(data)
    broken[broken.index((7).to_bytes(8, "little"))] ^= 1
    shard.write_bytes(broken)
    expected = [Failed("DataLossError") if x == 7 else x for x in range(30)]
    assert results(ad.Dataset.load(path)) == expected
    assert sorted(map(repr, results(ad.Dataset.load(path).shuffle(seed=1)))) == sorted(map(repr, expected))
    shard.write_bytes(data[:-1])
    with pytest.raises(ad.DataLossError, match=r"00000\.tfrecord: it had .* bytes when it was saved"):
        ad.Dataset.load(path)
    shard.unlink()
    assert results(ad.Dataset.load(path)) == [Failed("FileNotFoundError")]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"compression": null}',
        '{"compression": null, "shards": [["a"]]}',
        '{"version": 99, "compression": null, "shards": []}',
        "[" * 200_000,
    ],
    ids=lambda content: content[:60],
)
def test_a_manifest_that_is_damaged_is_an_error_that_names_it(path: Path, content: str) -> None:
    ad.Dataset.range(3).save(path)
    (path / "dataset.json").write_text(content)
    with pytest.raises(ad.DataLossError, match=r"dataset\.json: not the manifest"):
        ad.Dataset.load(path)


def stopped(path: Path) -> Path:
    """Begin to save 30 elements, up to an error, and return the folder."""
    with pytest.raises(Boom):
        ad.Dataset.range(30).map(boom_at_20).save(path, checkpoint_args={"checkpoint_interval": 7})
    return path.with_name(f"{path.name}.partial")


def boom_at_20(x: int) -> int:
    if x == 20:
        raise Boom(x)
    return x


NO_SEEDS = '{"compression": null, "shards": [[0, 14, 1]], "contents": [], "state": {}}'


@pytest.mark.parametrize("content", ["", "[]", '{"compression": null, "shards": [[0, 14, 1]]}', NO_SEEDS])
def test_a_saving_whose_state_is_damaged_begins_anew(path: Path, content: str) -> None:
    (stopped(path) / "state.json").write_text(content)
    ad.Dataset.range(30).save(path)
    assert list(ad.Dataset.load(path)) == [*range(30)]


def test_a_saving_whose_file_was_cut_short_does_not_go_on(path: Path) -> None:
    shard = stopped(path) / "00000.tfrecord"
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(ad.ResumeError, match=r"00000\.tfrecord had .* bytes and has 100 now; delete"):
        ad.Dataset.range(30).map(boom_at_20).save(path)


def test_a_file_that_may_not_grow_is_an_error_and_what_is_whole_stays(small_files: Path) -> None:
    path = small_files / "saved"
    with pytest.raises(OSError, match="File too large"):
        ad.Dataset.range(3000).map(lambda x: bytes(100)).save(path, checkpoint_args={"checkpoint_interval": 100})
    assert json.loads((small_files / "saved.partial" / "state.json").read_text())["shards"][0][1] > 100


def test_a_record_that_is_no_element_is_an_error_in_its_place(path: Path) -> None:
    ad.Dataset.range(1).save(path)
    with ad.TFRecordWriter(path / "00000.tfrecord") as writer:
        writer.write(b"!")
    manifest = json.loads((path / "dataset.json").read_text())
    manifest["shards"][0][2] = (path / "00000.tfrecord").stat().st_size
    (path / "dataset.json").write_text(json.dumps(with_checksum(manifest)))
    assert results(ad.Dataset.load(path)) == [Failed("DataLossError")]
    assert results(ad.Dataset.load(path).shuffle()) == [Failed("DataLossError")]


# stopped


def test_after_an_error_it_goes_on_where_it_was(path: Path) -> None:
    calls: list[int] = []

    def compute(x: int) -> int:
        calls.append(x)
        if x == 25 and calls.count(25) < 2:
            raise Boom(x)
        return x

    def save() -> None:
        ds = ad.Dataset.range(40).map(compute).with_options(ad.Options(optimize=False))
        ds.save(path, "GZIP", checkpoint_args={"checkpoint_interval": 10})

    with pytest.raises(Boom):
        save()
    assert not path.exists()
    save()
    assert list(ad.Dataset.load(path)) == [*range(40)]
    assert calls == [*range(26), *range(20, 40)]
    assert gzip.decompress((path / "00000.tfrecord").read_bytes())


def test_what_was_begun_with_another_pipeline_is_refused(path: Path) -> None:
    ds = ad.Dataset.range(40).map(lambda x: 1 // (x - 30))
    with pytest.raises(ZeroDivisionError):
        ds.save(path, checkpoint_args={"checkpoint_interval": 10})
    with pytest.raises(ad.ResumeError) as caught:
        ad.Dataset.range(41).save(path)
    assert "delete it to start again" in caught.value.__notes__[0]
    with pytest.raises(ad.ResumeError, match="begun with compression=None"):
        ds.save(path, "GZIP")


def test_what_was_begun_with_another_seed_is_refused(path: Path) -> None:
    def shuffled(**seed: int) -> ad.Dataset:
        return ad.Dataset.range(40).shuffle(40, **seed).map(boom_at_20)

    with pytest.raises(Boom):
        shuffled(seed=1).save(path, checkpoint_args={"checkpoint_interval": 1})
    with pytest.raises(ad.ResumeError, match="begun with another seed"):
        shuffled(seed=2).save(path)
    for same_or_any in ({"seed": 1}, {}):
        with pytest.raises(Boom):
            shuffled(**same_or_any).save(path)


def test_files_that_were_begun_after_the_last_state_are_removed(path: Path) -> None:
    partial = stopped(path)
    (partial / "00007.tfrecord").write_bytes(b"begun")
    assert stopped(path) == partial
    assert sorted(os.listdir(partial)) == ["00000.tfrecord", "state.json"]


def test_a_saving_that_failed_early_leaves_nothing_in_the_next(path: Path) -> None:
    with pytest.raises(Boom):
        ad.Dataset.range(30).map(boom_at_20).save(path, shard_func=lambda x: x % 5)
    assert len(os.listdir(path.with_name("saved.partial"))) == 5
    ad.Dataset.range(30).save(path, shard_func=lambda x: 0)
    assert sorted(os.listdir(path)) == ["00000.tfrecord", "dataset.json"]
    assert list(ad.Dataset.load(path)) == [*range(30)]


KILLED = first_by_default(["ordered", "shuffled", "unordered", "generated", "empty"])


@pytest.mark.parametrize("source", KILLED)
def test_killed_just_before_the_folder_gets_its_name_saving_again_gives_it(path: Path, source: str) -> None:
    killed = unnamed("save", path, source)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not path.exists()
    again = unnamed("save", path, source, "named")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert sorted(ad.Dataset.load(path)) == [x * x for x in range(killed.stdout.count("computed"))]
    assert sorted(os.listdir(path)) == ["00000.tfrecord", "dataset.json"]


def compute(x: int) -> int:
    return -x


@pytest.mark.parametrize(
    ("ds", "also"),
    first_by_default(
        [
            (ad.Dataset.range(10).map(compute), {}),
            (ad.Dataset.range(3), {}),
            (INPUTS["ordered"](), {"compression": "GZIP"}),
            (INPUTS["ordered"](), {"shard_func": lambda x: 7}),
        ]
    ),
    ids=["functions", "steps", "compression", "shards"],
)
def test_killed_just_before_the_folder_gets_its_name_it_is_not_given_to_others(path: Path, ds: Any, also: Any) -> None:
    assert unnamed("save", path, "ordered").returncode == -signal.SIGKILL
    with pytest.raises(ad.ResumeError):
        ds.save(path, **also)
    assert not path.exists()
    INPUTS["ordered"]().save(path)
    assert list(ad.Dataset.load(path)) == [x * x for x in range(10)]


@pytest.mark.parametrize("checksum", [True, False], ids=["now", "as before"])
@pytest.mark.parametrize(
    "shard", [["../x.tfrecord", 5, 9], [1, 5, 9], ["00000.tfrecord", -1, 9], ["00000.tfrecord", 5], 3, None], ids=str
)
def test_a_manifest_of_other_shards_is_an_error(path: Path, shard: Any, checksum: bool) -> None:
    ad.Dataset.range(5).save(str(path))
    told = {"version": 1, "compression": None, "shards": [shard]}
    (path / "dataset.json").write_text(json.dumps(with_checksum(told) if checksum else told))
    with pytest.raises(ad.DataLossError, match="not the manifest of a saved dataset"):
        ad.Dataset.load(str(path))


@pytest.mark.parametrize("change", [{"shards": []}, {"shards": [["00000.tfrecord", 4, 125]]}, {"checksum": 7}], ids=str)
def test_a_manifest_that_was_changed_is_an_error(path: Path, change: dict[str, Any]) -> None:
    ad.Dataset.range(5).save(str(path))
    manifest = path / "dataset.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_bytes()), **change}))
    with pytest.raises(ad.DataLossError, match="checksum"):
        ad.Dataset.load(str(path))


def test_a_state_of_a_save_that_is_damaged_is_not_used(path: Path) -> None:
    """Saving begins anew then."""
    state = stopped(path) / "state.json"
    told = json.loads(state.read_bytes())
    assert told["shards"][0][1] > 2
    told["state"]["position"] = 2
    state.write_text(json.dumps(told))
    stopped(path)
    assert json.loads(state.read_bytes())["shards"][0][1] == told["shards"][0][1]


def test_a_manifest_that_does_not_tell_whose_it_is_is_written_anew(path: Path) -> None:
    ad.Dataset.range(10).save(path)
    path.rename(path.with_name("saved.partial"))
    ad.Dataset.range(3).save(path)
    assert list(ad.Dataset.load(path)) == [0, 1, 2]


class Untold:
    """An iterator that can tell where it is, until it does."""

    def __init__(self) -> None:
        self.left = iter(range(10))

    def __iter__(self) -> Untold:
        return self

    def __next__(self) -> int:
        return next(self.left)

    def state_dict(self) -> Any:
        raise Boom

    def load_state_dict(self, state: Any) -> None:
        raise Boom


def test_a_source_that_cannot_tell_where_it_is_is_saved(path: Path) -> None:
    ad.Dataset.from_generator(Untold).save(path)
    assert list(ad.Dataset.load(path)) == [*range(10)]


def start(path: Path, count: int) -> subprocess.Popen[str]:
    program = ROOT / "tests" / "faults" / "saving.py"
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(program), str(path), str(count)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=4096,  # so that it waits until its lines are read, however late that is
    )


@pytest.mark.slow
def test_killed_again_and_again_it_goes_on_and_nothing_is_lost_or_twice(path: Path) -> None:
    size = 500
    for lines in (30, 150, 200):
        process = start(path, size)
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline().startswith("computed"), process.communicate()[1]
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not path.exists()
    state = json.loads((path.with_name("saved.partial") / "state.json").read_text())["state"]
    out, err = start(path, size).communicate(timeout=100)
    assert (out.splitlines()[-1], err) == ("done", "")
    assert out.count("computed") == size - state["delivered"] < size
    assert sorted(x for x, _ in ad.Dataset.load(path)) == [*range(size)]
    assert sorted(os.listdir(path)) == ["00000.tfrecord", "00001.tfrecord", "00002.tfrecord", "dataset.json"]


def test_killed_while_it_wrote_down_how_far_it_had_come_it_leaves_nothing_of_that(path: Path) -> None:
    partial = path.with_name("saved.partial")
    partial.mkdir()
    for name in (".state.json.00c0ffee", ".dataset.json.00c0ffee"):
        (partial / name).write_bytes(b"{")
    ad.Dataset.range(3).save(path)
    assert sorted(os.listdir(path)) == ["00000.tfrecord", "dataset.json"]


def test_two_processes_at_once_one_is_refused(path: Path) -> None:
    first = start(path, 2000)
    assert first.stdout is not None
    assert first.stdout.readline()
    with pytest.raises(FileExistsError, match="is being saved by another process"):
        ad.Dataset.range(3).save(path)
    first.kill()
    first.communicate()


def test_a_full_disk_is_an_error_and_with_room_it_goes_on(small_disk: Path) -> None:
    path = small_disk / "saved"

    def save() -> None:
        ad.Dataset.range(2000).map(lambda x: (x, bytes(100))).save(path, checkpoint_args={"checkpoint_interval": 100})

    for _ in range(2):
        with pytest.raises(OSError) as caught:
            save()
        assert caught.value.errno == errno.ENOSPC
        assert any("while " + str(path) in note and "was written" in note for note in caught.value.__notes__)
        assert not path.exists()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    save()
    assert [x for x, _ in ad.Dataset.load(path)] == [*range(2000)]


def test_an_element_that_does_not_fit_the_spec_names_the_argument(tmp_path: Path) -> None:
    ad.Dataset.range(1).save(tmp_path / "numbers")
    with pytest.raises(ad.StructureError) as caught:
        list(ad.Dataset.load(tmp_path / "numbers", element_spec=ad.TensorSpec((3,), "int64")))
    assert caught.value.__notes__ == ["in load(element_spec=), element (0, 0)"]


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("size", [None, 5, 100])
def test_a_state_is_of_the_elements_that_were_saved(path: Path, compression: str | None, size: int | None) -> None:
    """Others may take as many bytes."""

    def saved(seed: int) -> ad.Dataset[Any]:
        if path.exists():
            shutil.rmtree(path)
        ad.Dataset.range(40).shuffle(40, seed=seed).save(path, compression)
        ds = ad.Dataset.load(path)
        return ds if size is None else ds.shuffle(size, seed=1)

    with saved(seed=1).iterate() as elements:
        _ = [next(elements) for _ in range(9)]
        state = json.loads(json.dumps(elements.state_dict()))
        rest = list(elements)
    assert list(saved(seed=1).iterate(state=state)) == rest
    other = saved(seed=2)
    with pytest.raises(ad.ResumeError, match="load|name or size"):
        list(other.iterate(state=state))


def test_a_saving_that_goes_on_has_the_checksums_of_one_that_was_not_interrupted(path: Path) -> None:
    failing = [20]

    def fails_once(x: int) -> int:
        if x in failing:
            failing.clear()
            raise Boom(x)
        return x

    ds, other = ad.Dataset.range(30).map(fails_once), path.with_name("other")
    with pytest.raises(Boom):
        ds.save(path, checkpoint_args={"checkpoint_interval": 7})
    ds.save(path, checkpoint_args={"checkpoint_interval": 7})
    ds.save(other)
    manifests = [json.loads((one / "dataset.json").read_bytes()) for one in (path, other)]
    assert manifests[0]["checksums"] == manifests[1]["checksums"]
    assert list(ad.Dataset.load(path)) == [*range(30)]


def test_what_was_saved_before_checksums_were_has_states(path: Path) -> None:
    ad.Dataset.range(40).save(path)
    manifest = json.loads((path / "dataset.json").read_bytes())
    del manifest["checksums"], manifest["checksum"]
    (path / "dataset.json").write_text(json.dumps(with_checksum(manifest)))
    with ad.Dataset.load(path).iterate() as elements:
        assert next(elements) == 0
        state = elements.state_dict()
    assert list(ad.Dataset.load(path).iterate(state=state)) == [*range(1, 40)]
    assert "#" not in state["plan"][1]

"""Each block of docs/migrate.md runs, on data that the packages which it is about have written, and gives all of it."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import asyncdata as ad
from tests.cluster.conftest import ray  # noqa: F401  a fixture
from tests.data import write_litdata, write_mds, write_tfds, write_tokens
from tests.pages import DOCS

Names: TypeAlias = "dict[str, Any]"
Case: TypeAlias = "Generator[Names, Names, None]"
"""Writes data, gives the names that a block uses, and is sent those that it has afterwards."""

DATA = Path(__file__).parent / "data"

SECTION = re.compile(r"^## From (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)
SECTIONS = {
    title.replace("`", ""): BLOCK.findall(text)
    for title, text in SECTION.findall((DOCS / "migrate.md").read_text(encoding="utf-8"))
}

SMALL = {'"cuda"': '"cpu"', "2049": "5", "1025": "5", "size=224": "size=4"}
"""What is another size or device here than on the page."""


def same(value: Any) -> Any:
    return value


def copied(folder: Path, name: str, to: str) -> None:
    shutil.copytree(DATA / name, folder / to, dirs_exist_ok=True)


def rows_of(batches: Any) -> list[Any]:
    return [row for batch in batches for row in np.asarray(batch).tolist()]


def mosaic(folder: Path) -> Case:
    copied(folder, "mds/plain", "data/c4")
    done = yield {"tokenize": lambda sample: sample["int"]}
    assert sorted(rows_of(done["ds"])) == sorted(write_mds.sample(n)["int"] for n in range(write_mds.COUNT))


def picture(number: int) -> bytes:
    image, file = pytest.importorskip("PIL.Image"), io.BytesIO()
    image.fromarray(np.full((6, 5, 3), number, np.uint8)).save(file, "PNG")
    return file.getvalue()


def webdataset(folder: Path) -> Case:
    package = pytest.importorskip("webdataset")
    names = [str(folder / f"{shard}.tar") for shard in range(2)]
    for shard, name in enumerate(names):
        with package.TarWriter(name) as writer:
            for number in range(5 * shard, 5 * shard + 5):
                writer.write({"__key__": f"{number:04}", "jpg": picture(number), "cls": number})
    done = yield {"names": names}
    pairs = [pair for images, labels in done["ds"] for pair in zip(images[:, 0, 0, 0], labels, strict=True)]
    assert sorted(map(tuple, np.array(pairs).tolist())) == [(number, number) for number in range(10)]


def energon(folder: Path) -> Case:
    pytest.importorskip("yaml")
    copied(folder, "energon", "")
    path = folder / "mixture.yaml"
    path.write_text((folder / "mixed.yaml").read_text().replace("train:", "never:", 1).replace("  val:", "  train:"))
    done = yield {"load_sample": same, "encode_sample": lambda sample: sample["__key__"]}
    keys = [key for batch in done["ds"].batch(32) for key in batch]
    assert len(keys) > len(set(keys)) >= 8
    assert all(isinstance(key, str) for key in keys)


def tfds(folder: Path) -> Case:
    copied(folder, "tfds/mine", "data/mnist/3.0.1")
    done = yield {"decode": lambda sample: sample["id"]}
    stored = json.loads((write_tfds.FOLDER / "splits.json").read_text())["train"]
    assert sorted(rows_of(done["ds"])) == sorted(stored[:21])  # 90 % of 23


def litdata(folder: Path) -> Case:
    copied(folder, "litdata/rows", "data/imagenet")
    copied(folder, "litdata/tokens", "data/tokens")
    done = yield {"decode": lambda sample: sample["score"]}
    assert sorted(rows_of(done["ds"])) == [write_litdata.row(number)["score"] for number in range(write_litdata.ROWS)]
    windows, rest = list[list[int]](), iter(write_litdata.TOKENS)
    for chunk in json.loads((folder / "data/tokens/index.json").read_text())["chunks"]:
        tokens = [token for document in islice(rest, chunk["chunk_size"]) for token in document]
        windows += [tokens[place : place + 5] for place in range(0, len(tokens) - 4, 5)]
    assert sorted(rows_of(done["windows"])) == sorted(windows)


def lerobot(folder: Path) -> Case:
    pytest.importorskip("av")
    torch = pytest.importorskip("torch")
    copied(folder, "lerobot", "data/aloha")
    shapes = set[tuple[int, ...]]()

    def policy(pictures: Any, action: Any, padded: Any) -> Any:
        shapes.add((*pictures.shape[1:], *action.shape[1:], *padded.shape[1:]))
        return torch.zeros(())

    yield {"deltas": {"action": [0.0, 0.1]}, "policy": policy, "np": np}
    assert shapes == {(3, 24, 32, 2, 2, 2)}


def safetensors(folder: Path) -> Case:
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = {"latent": np.arange(12, dtype=np.float32).reshape(6, 2), "label": np.arange(6)}
    numpy.save_file(tensors, folder / "latents.safetensors")
    done = yield {}
    (batch,) = done["ds"]
    order = batch["label"].argsort()
    assert {name: batch[name][order].tolist() for name in batch} == {name: tensors[name].tolist() for name in tensors}


def next_number(row: Any) -> Any:
    return row + 1


def hdf5(folder: Path) -> Case:
    h5py = pytest.importorskip("h5py")
    with h5py.File("train.h5", "w") as file:
        file["image"] = np.arange(20).reshape(10, 2)
    done = yield {"h5py": h5py, "augment": next_number}
    assert sorted(rows_of(done["ds"])) == (np.arange(20).reshape(10, 2) + 1).tolist()


def lance(folder: Path) -> Case:
    package, arrow = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    vector = arrow.FixedSizeListArray.from_arrays(arrow.array(np.arange(20, dtype=np.float32)), 2)
    package.write_dataset(arrow.table({"vector": vector, "label": range(10), "text": ["x"] * 10}), "train.lance")
    done = yield {}
    (batch,) = done["ds"]
    assert sorted(zip(batch["label"].tolist(), batch["vector"][:, 0].tolist(), strict=True)) == [
        (n, 2 * n) for n in range(10)
    ]


def tokens(folder: Path) -> Case:
    for end in ("bin", "idx"):
        shutil.copy(DATA / f"tokens/uint16.{end}", f"corpus_text_document.{end}")
    done = yield {"world": 1, "rank": 0, "np": np}
    flat = [token for document in write_tokens.DOCUMENTS for sequence in document for token in sequence]
    windows = [flat[at : at + 5] for at in range(0, len(flat) - 4, 4)]
    pairs = [pair for batch in done["ds"] for pair in zip(*(part.tolist() for part in batch), strict=True)]
    assert sorted(pairs) == sorted((window[:-1], window[1:]) for window in windows)


def of_tfdata(folder: Path) -> Case:
    records = [ad.make_example({"numbers": np.arange(number % 4)}) for number in range(40)]
    paths = ad.Dataset.from_list(records).write_tfrecords(folder / "records", shards=2)
    features = {"numbers": ad.VarLenFeature(np.int64)}
    done = yield {"paths": paths, "parse": lambda record: ad.parse_single_example(record, features)["numbers"]}
    assert sorted(row for batch in done["ds"] for row in np.asarray(batch).sum(1).tolist()) == sorted([0, 0, 1, 3] * 10)


def table(folder: Path) -> None:
    """Write rows of texts in two files of Parquet."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "data/rows").mkdir(parents=True)
    for name, start in (("a", 0), ("b", 20)):
        numbers = range(start, start + 20)
        columns = {"text": ["w " * (n % 4) for n in numbers], "tags": [["t"] * (n % 3) for n in numbers]}
        parquet.write_table(arrow.table({"id": numbers, **columns}), folder / f"data/rows/{name}.parquet")


def words(rows: Any) -> Any:
    """Another number of rows than there are texts."""
    found = [(n, word) for n, text in zip(rows["id"], rows["text"], strict=True) for word in text.split()]
    return {"id": [n for n, _ in found], "ids": [[len(word)] * (n % 3) for n, word in found]}


def hugging_face(folder: Path) -> Case:
    table(folder)
    done = yield {"tokenize": words, "rank": 0, "world": 1}
    expected = [(n, [1] * (n % 3)) for n in range(40) for _ in range(n % 4)]
    assert sorted((int(row["id"]), list(row["ids"])) for row in done["ds"]) == expected


def numbered(number: int) -> Names:
    return {"id": number, "row": np.full(3, number, np.float32)}


def doubled(row: Names) -> Names:
    return {**row, "row": row["row"] * 2}


def complete_batches(batches: Any, known: int) -> None:
    """Check that full batches have so many rows of those that `doubled` makes, each once."""
    found = [
        (int(n), tuple(row)) for batch in batches for n, row in zip(batch["id"], np.asarray(batch["row"]), strict=True)
    ]
    assert len(found) == len(set(found)) == known
    assert all(row == (2 * n,) * 3 for n, row in found)


def nodes(folder: Path) -> Case:
    done = yield {"dataset": [numbered(n) for n in range(21)], "transform": doubled}
    complete_batches(done["ds"], 16)


def grain(folder: Path) -> Case:
    done = yield {"source": [numbered(n) for n in range(41)], "decode": doubled, "world": 2, "rank": 1}
    complete_batches(done["ds"], 16)


def ray_data(folder: Path) -> Case:
    table(folder)
    done = yield {"embed": lambda batch: {"id": batch["id"], "double": 2 * batch["id"]}}
    batches = list(done["ds"])
    assert [len(batch["id"]) for batch in batches] == [8] * 5
    found = [pair for batch in batches for pair in zip(batch["id"].tolist(), batch["double"].tolist(), strict=True)]
    assert sorted(found) == [(n, 2 * n) for n in range(40)]


async def fetched(number: int) -> Names:
    return numbered(number)


def spdl(folder: Path) -> Case:
    def collate(rows: Sequence[Names]) -> Names:
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    done = yield {"urls": range(20), "fetch": fetched, "decode": doubled, "collate": collate}
    complete_batches(done["ds"], 20)


def dali(folder: Path) -> Case:
    pytest.importorskip("torch")
    for number in range(10):
        path = folder / f"data/images/{number % 2}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    done = yield {"resize": lambda image: image[:4, :4], "rank": 0, "world": 1}
    pairs = [pair for batch in done["loader"] for pair in zip(*(part.tolist() for part in batch), strict=True)]
    assert sorted((image[0][0][0], label) for image, label in pairs) == [(n, n % 2) for n in range(10)]


def ffcv(folder: Path) -> Case:
    def augment(row: Names, rng: np.random.Generator) -> Names:
        return doubled(row)

    (folder / "data").mkdir()
    done = yield {"dataset": [numbered(n) for n in range(20)], "augment": augment}
    complete_batches(done["ds"], 20)


FORMATS, TORCH = pytest.mark.formats, pytest.mark.torch

CASES: dict[str, tuple[Callable[[Path], Case], Sequence[pytest.MarkDecorator]]] = {
    "Mosaic's streaming": (mosaic, ()),
    "webdataset": (webdataset, (FORMATS,)),
    "Megatron-Energon": (energon, (FORMATS,)),
    "TensorFlow Datasets": (tfds, ()),
    "Lightning's litdata": (litdata, (FORMATS,)),
    "LeRobot's LeRobotDataset": (lerobot, (FORMATS, TORCH)),
    "safetensors": (safetensors, (FORMATS,)),
    "h5py and zarr behind a DataLoader": (hdf5, (FORMATS,)),
    "lance.torch.data.LanceDataset": (lance, (FORMATS,)),
    "Megatron's IndexedDataset, or nanoGPT's memory map": (tokens, ()),
    "tf.data": (of_tfdata, ()),
    "Hugging Face datasets": (hugging_face, (FORMATS,)),
    "torchdata's nodes": (nodes, ()),
    "Grain": (grain, ()),
    "Ray Data": (ray_data, (FORMATS,)),
    "SPDL": (spdl, ()),
    "NVIDIA DALI": (dali, (TORCH,)),
    "FFCV": (ffcv, ()),
}


def run(block: str, names: Names, folder: Path) -> Names:
    for written, here in {**SMALL, '"/data/': f'"{folder.as_posix()}/data/'}.items():
        block = block.replace(written, here)
    exec(block, names)
    return names


def check_elements(case: Case, names: Names) -> None:
    """Go on with a case, which asserts what the names of a block must be now."""
    with pytest.raises(StopIteration):
        case.send(names)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which is the current one, in a launcher of one process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    return tmp_path


@pytest.mark.parametrize("title", [pytest.param(title, marks=marks) for title, (_, marks) in CASES.items()])
def test_a_block_gives_what_was_written(title: str, folder: Path) -> None:
    case = CASES[title][0](folder)
    names = {"ad": ad, **next(case)}
    for block in SECTIONS[title]:
        run(block, names, folder)
    check_elements(case, names)


def test_every_block_is_run() -> None:
    assert {title for title, blocks in SECTIONS.items() if blocks} == set(CASES)
    page = (DOCS / "migrate.md").read_text(encoding="utf-8")
    assert sum(map(len, SECTIONS.values())) == page.count("```py\n")


def tf_names() -> Names:
    tf = pytest.importorskip("tensorflow")

    def parse(record: Any) -> Any:
        return tf.io.parse_single_example(record, {"numbers": tf.io.RaggedFeature(tf.int64)})["numbers"]

    return {"tf": tf, "parse": parse}


def hf_names() -> Names:
    package, distributed = pytest.importorskip("datasets"), pytest.importorskip("datasets.distributed")
    return {"load_dataset": package.load_dataset, "split_dataset_by_node": distributed.split_dataset_by_node}


def torchdata_names() -> Names:
    found, data = pytest.importorskip("torchdata.nodes"), pytest.importorskip("torch.utils.data")
    return {**vars(found), "RandomSampler": data.RandomSampler, "default_collate": data.default_collate}


def spdl_names() -> Names:
    return {"PipelineBuilder": pytest.importorskip("spdl.pipeline").PipelineBuilder}


def grain_names() -> Names:
    return {"grain": pytest.importorskip("grain")}


OTHERS: dict[str, tuple[Callable[[], Names], pytest.MarkDecorator]] = {
    "tf.data": (tf_names, pytest.mark.tensorflow),
    "Hugging Face datasets": (hf_names, FORMATS),
    "torchdata's nodes": (torchdata_names, pytest.mark.integrations),
    "SPDL": (spdl_names, pytest.mark.integrations),
    "Grain": (grain_names, pytest.mark.integrations),
}


def comment_of(block: str) -> str:
    return "".join([line.removeprefix("# ") for line in block.splitlines(True) if line.startswith("# ")])


@pytest.mark.filterwarnings("ignore")  # of the other packages
@pytest.mark.parametrize("title", [pytest.param(title, marks=mark) for title, (_, mark) in OTHERS.items()])
def test_the_comment_of_a_block_gives_the_same_elements(title: str, folder: Path) -> None:
    """What is checked of ours is checked of the other loader."""
    case = CASES[title][0](folder)
    names = {"ad": ad, **next(case), **OTHERS[title][0]()}
    (block,) = SECTIONS[title]
    run(comment_of(block), names, folder)
    check_elements(case, names)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("ray")
def test_ray_data_gives_the_same_elements(folder: Path) -> None:
    case = ray_data(folder)
    names = {"ray": pytest.importorskip("ray"), **next(case)}
    pytest.importorskip("ray.data").DataContext.get_current().enable_progress_bars = False
    run(comment_of(SECTIONS["Ray Data"][0]), names, folder)
    check_elements(case, names)


NUMBERS, OTHER = range(10), range(100, 104)


def grain_pairs() -> list[tuple[Any, ad.Dataset[Any]]]:
    package = pytest.importorskip("grain")
    more, rows = package.experimental, [numbered(n) for n in NUMBERS]
    theirs, other = package.MapDataset.source(NUMBERS), package.MapDataset.source(OTHER)
    ours, others = ad.Dataset.from_source(NUMBERS), ad.Dataset.from_source(OTHER)
    sequences = [{"inputs": np.arange(1, 2 + n % 5)} for n in range(1, 12)]
    packed = package.MapDataset.source(sequences).to_iter_dataset()
    tokens = ad.Dataset.from_iterable(sequences)

    class Copies(more.FlatMapTransform):
        max_fan_out = 3

        def flat_map(self, number: int) -> list[int]:
            return [number] * (number % 3)

    def padded(batch: Any) -> Any:
        return more.batch_and_pad(batch, batch_size=4, pad_value=0)

    return [
        (theirs.map_with_index(lambda n, x: (n, x)), ours.enumerate()),
        (theirs[1::3], ours.shard(3, 1)),
        (theirs[2:9], ours.skip(2).take(7)),
        (theirs.batch(3, batch_fn=sum), ours.list_batch(3).map(sum)),
        (theirs.to_iter_dataset().batch(4, batch_fn=padded), ours.pad_to_cardinality(12).batch(4).map(lambda x, _: x)),
        (theirs.to_iter_dataset().apply(Copies()), ours.map(lambda n: [n] * (n % 3)).unbatch()),
        (package.MapDataset.concatenate([theirs, other]), ours.concatenate(others)),
        (more.ZipMapDataset([theirs, theirs]), ad.Dataset.zip(ours, ours)),
        (more.LimitIterDataset(theirs.to_iter_dataset(), 3), ours.take(3)),
        (more.RebatchIterDataset(theirs.to_iter_dataset().batch(3), 4), ours.batch(3).rebatch(4)),
        (
            more.InterleaveIterDataset([theirs.to_iter_dataset(), other.to_iter_dataset()], cycle_length=2),
            ad.Dataset.from_iterable([ours, others]).interleave(same, cycle_length=2),
        ),
        (
            more.ConcatThenSplitIterDataset(packed, length_struct={"inputs": 6}),
            tokens.pack_sequences(6, strategy="concat_then_split"),
        ),
        (
            package.MapDataset.source(rows).to_iter_dataset().batch(4),
            ad.Dataset.from_source(rows).batch(4),
        ),
    ]


def hugging_face_pairs() -> list[tuple[Any, ad.Dataset[Any]]]:
    package = pytest.importorskip("datasets", "4.2", reason="before it a row of the table has no counterpart")
    theirs, other = [package.Dataset.from_dict({"x": [*numbers]}) for numbers in (NUMBERS, OTHER)]
    named = other.rename_column("x", "y").select(range(3))
    ours, others = ad.Dataset.from_source(theirs), ad.Dataset.from_source(other)
    turns = ad.Dataset.range(2).repeat()

    def add(row: Names) -> Names:
        return {"double": 2 * row["x"]}

    return [
        (theirs.map(add), ours.map(lambda row: {**row, **add(row)})),
        (theirs.select(range(3)), ours.take(3)),
        (theirs.skip(3), ours.skip(3)),
        (package.concatenate_datasets([theirs, other]), ours.concatenate(others)),
        (
            package.concatenate_datasets([theirs.select(range(3)), named], axis=1),
            ad.Dataset.zip(ours.take(3), ad.Dataset.from_source(named)).map(lambda a, b: {**a, **b}),
        ),
        (package.interleave_datasets([other, theirs]), ad.Dataset.choose_from_datasets([others, ours], turns)),
        (
            package.interleave_datasets([theirs, other], stopping_strategy="all_exhausted_without_replacement"),
            ad.Dataset.choose_from_datasets([ours, others], turns, stop_on_empty_dataset=False),
        ),
        (theirs.to_iterable_dataset().repeat(2), ours.repeat(2)),
    ]


def nodes_pairs() -> list[tuple[Any, ad.Dataset[Any]]]:
    package = pytest.importorskip("torchdata.nodes")

    def source() -> Any:
        return package.IterableWrapper(NUMBERS)

    ours = ad.Dataset.from_iterable(NUMBERS)
    return [
        (package.Loader(package.Batcher(source(), 4)), ours.list_batch(4, drop_remainder=True)),
        (package.Loader(package.Batcher(source(), 4, drop_last=False)), ours.list_batch(4)),
        (package.Loader(package.Unbatcher(package.Batcher(source(), 4))), ours.list_batch(4, True).unbatch()),
    ]


def spdl_pairs() -> list[tuple[Any, ad.Dataset[Any]]]:
    builder, ours = pytest.importorskip("spdl.pipeline").PipelineBuilder, ad.Dataset.from_iterable(NUMBERS)

    def found(*steps: tuple[str, Any]) -> list[Any]:
        pipeline = builder().add_source(NUMBERS)
        for name, argument in steps:
            pipeline = getattr(pipeline, name)(*argument)
        built = pipeline.add_sink(2).build(num_threads=1)
        with built.auto_stop():
            return list(built.get_iterator(timeout=60))

    def even(number: int) -> int | None:
        return None if number % 2 else number

    def copies(number: int) -> Any:
        for _ in range(number % 3):
            yield number

    def fails(number: int) -> int:
        return 12 // (number % 4)

    return [
        (found(("pipe", [even])), ours.map(even).filter(lambda item: item is not None)),
        (found(("pipe", [copies])), ours.map(lambda item: list(copies(item))).unbatch()),
        (found(("pipe", [fails])), ours.map(fails).ignore_errors()),
        (found(("aggregate", [4])), ours.list_batch(4)),
        (found(("aggregate", [4]), ("disaggregate", [])), ours.list_batch(4).unbatch()),
    ]


def plain(element: Any) -> Any:
    """Return an element of plain Python."""
    if isinstance(element, dict):
        return {name: plain(value) for name, value in element.items()}
    if isinstance(element, (list, tuple)):
        return [*map(plain, element)]
    return element.tolist() if hasattr(element, "tolist") else element


PAIRS: dict[str, tuple[Callable[[], list[tuple[Any, ad.Dataset[Any]]]], pytest.MarkDecorator]] = {
    "Grain": (grain_pairs, pytest.mark.integrations),
    "Hugging Face datasets": (hugging_face_pairs, FORMATS),
    "torchdata's nodes": (nodes_pairs, pytest.mark.integrations),
    "SPDL": (spdl_pairs, pytest.mark.integrations),
}


@pytest.mark.filterwarnings("ignore")  # of the other packages
@pytest.mark.parametrize("title", [pytest.param(title, marks=mark) for title, (_, mark) in PAIRS.items()])
def test_what_a_table_has_side_by_side_gives_the_same(title: str) -> None:
    for theirs, ours in PAIRS[title][0]():
        assert [*map(plain, ours)] == [*map(plain, theirs)], ours


@pytest.mark.formats
@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_of_webdataset_for_captions_gives_the_same(folder: Path) -> None:
    """Samples without a picture or a caption are left out, and so are pictures that cannot be decoded."""
    package = pytest.importorskip("webdataset")
    for shard in range(3):
        with package.TarWriter(str(folder / f"{shard}.tar")) as writer:
            for number in range(8 * shard, 8 * shard + 8):
                file = (
                    {"jpg" if number % 2 else "png": picture(number) if number % 5 else b"broken"} if number % 7 else {}
                )
                text = {"txt": f" caption {number} " if number % 4 else "  "} if number % 6 else {}
                writer.write({"__key__": f"{number:04}", **file, **text})

    def complete(sample: Names) -> bool:
        return "txt" in sample and ("jpg" in sample or "png" in sample)

    theirs = package.DataPipeline(
        package.SimpleShardList([f"{shard}.tar" for shard in range(3)]),
        package.tarfile_to_samples(),
        package.select(complete),
        package.rename(image="jpg;png", text="txt", keep=False),
        package.select(lambda sample: sample["text"].decode().strip()),
        package.map_dict(image=ad.decode_image, text=len, handler=package.ignore_and_continue),
        package.batched(4, partial=False),
    )
    ours = ad.WebDataset(ad.Dataset.list_files("*.tar", shuffle=False)).filter(complete)
    ours = ours.map(lambda one: {"image": next(one[key] for key in ("jpg", "png") if key in one), "text": one["txt"]})
    ours = ours.filter(lambda sample: sample["text"].strip())
    ours = ours.map(lambda sample: {"image": ad.decode_image(sample["image"]), "text": len(sample["text"])})
    ours = ours.ignore_errors().batch(4, drop_remainder=True)
    found = [{name: np.stack(batch[name]).tolist() for name in ("image", "text")} for batch in theirs]
    assert [*map(plain, ours)] == found
    assert len(found) == 2

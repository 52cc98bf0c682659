"""Formats of files against the packages that they come from, on the same files, from the page cache.

    python benchmarks/loaders/formats.py [--quick] [--json FILE]

It needs `pip install -e '.[formats-test]'`; MDS, LitData and Energon are compared where `mosaicml-streaming`, `litdata`
and `megatron-energon` are installed, too, and Lance where PyTorch is. What is compared is the CPU time of the process,
all threads together: on a machine with other work it says more than the clock. Samples of WebDataset are a picture of
10 KB, a number and a small dict. Parquet is read in batches of 1024 rows of 8 numbers and 64 float32. Rows of
ArrayRecord and of Hugging Face's datasets are asked for 64 at a time in a loop.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import webdataset
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, AtMost, Report, Row, installed, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness import Arguments, Bar

__all__ = ("main",)

WIDTH, BATCH, AT_ONCE = 64, 1024, 64


def read(elements: Iterable[Any]) -> None:
    for _ in elements:
        pass


def cpu(contenders: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """The CPU seconds of each run, by turns, after one of each that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    gc.freeze()  # what the packages made while they were imported, which takes longer to look at than most runs
    for number in range(rounds + 1):
        for name, run in contenders.items():
            gc.collect()
            begin = time.process_time()
            run()
            if number:
                seconds[name].append(time.process_time() - begin)
    return seconds


def compare(
    report: Report,
    title: str,
    count: int,
    bar: Bar | None,
    rounds: int,
    ours: Callable[[], None],
    peer: str,
    theirs: Any,
) -> None:
    """Add a line for what an element costs."""
    found = cpu({"asyncdata": ours, peer: theirs}, rounds)
    ours_each, theirs_each = (statistics.median(found[name]) / count * 1e6 for name in ("asyncdata", peer))
    report.add(Row(title, ours_each, "us CPU", peer, theirs_each, bar, found))


def samples(folder: Path, arguments: Arguments, report: Report) -> None:
    count = 500 if arguments.quick else 5000
    picture = np.random.default_rng(0).bytes(10_000)

    def sample(number: int) -> dict[str, Any]:
        return {"__key__": f"{number:06}", "jpg": picture, "cls": number % 10, "json": {"number": number, "by": "Ann"}}

    made = [sample(number) for number in range(count)]
    (name,) = ad.Dataset.from_iterable(made).write_webdataset(folder / "tar", shards=1)
    rounds = arguments.rounds(7)

    def theirs() -> None:
        read(webdataset.WebDataset(name, shardshuffle=False).decode())

    compare(report, "tar, a sample", count, AtLeast(2), rounds, lambda: read(ad.WebDataset(name)), "webdataset", theirs)

    def write() -> None:
        with tempfile.TemporaryDirectory() as target:
            ad.Dataset.from_iterable(made).write_webdataset(target, shards=1)

    def write_theirs() -> None:
        with tempfile.TemporaryDirectory() as target, webdataset.TarWriter(f"{target}/a.tar") as writer:
            for one in made:
                writer.write(one)

    compare(report, "tar, a sample written", count, None, rounds, write, "webdataset", write_theirs)


def tables(folder: Path, arguments: Arguments, report: Report) -> None:
    count = 20_000 if arguments.quick else 400_000
    random = np.random.default_rng(0)
    columns = {f"x{place}": random.normal(size=count) for place in range(8)}
    wide = pa.FixedSizeListArray.from_arrays(random.normal(size=count * WIDTH).astype(np.float32), WIDTH)
    path = str(folder / "a.parquet")
    pq.write_table(pa.table({**columns, "wide": wide, "left": columns["x0"]}), path, row_group_size=50_000)
    wanted = [*columns, "wide"]

    def ours() -> None:
        read(ad.ParquetDataset(path, wanted).batch(BATCH))

    def scanner() -> None:
        for batch in pa.dataset.dataset(path).scanner(columns=wanted, batch_size=BATCH).to_batches():
            for name in columns:
                batch.column(name).to_numpy()
            batch.column("wide").flatten().to_numpy().reshape(-1, WIDTH)

    compare(
        report, "Parquet, a row in batches", count, AtMost(1.1), arguments.rounds(7), ours, "pyarrow's scanner", scanner
    )


def lines(folder: Path, arguments: Arguments, report: Report) -> None:
    count = 5000 if arguments.quick else 100_000
    row = {"text": "some words " * 60, "tokens": [*range(40)], "label": 3, "score": 0.25}
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"number": number, **row}) + "\n" for number in range(count)))
    decode = msgspec.json.Decoder().decode

    def theirs() -> None:
        with path.open("rb") as file:
            read(map(decode, file))

    def ours() -> None:
        read(ad.JsonLinesDataset(path))

    compare(
        report,
        "JSON Lines, a line of 900 B",
        count,
        AtMost(1.25),
        arguments.rounds(7),
        ours,
        "map(decode, lines)",
        theirs,
    )


def by_number(report: Report, what: str, source: Any, ds: ad.Dataset[Any], rounds: int) -> None:
    """Rows of a source that is asked for many at once, in order and in random order."""
    count = len(source)
    order = np.random.default_rng(0).permutation(count).tolist()

    def loop(numbers: list[int]) -> Callable[[], None]:
        def run() -> None:
            for start in range(0, count, AT_ONCE):
                read(source.__getitems__(numbers[start : start + AT_ONCE]))

        return run

    peer = f"__getitems__({AT_ONCE}) in a loop"
    compare(report, f"{what}, in order", count, AtMost(1.2), rounds, lambda: read(ds), peer, loop([*range(count)]))
    shuffled = ds.shuffle(seed=0)
    compare(report, f"{what}, shuffled", count, AtMost(1.2), rounds, lambda: read(shuffled), peer, loop(order))


def records(folder: Path, arguments: Arguments, report: Report) -> None:
    path = str(folder / "a.array_record")
    writer = ArrayRecordWriter(path, "group_size:1")
    content = np.random.default_rng(0).bytes(2000)
    for _ in range(1000 if arguments.quick else 10_000):
        writer.write(content)
    writer.close()
    by_number(
        report, "ArrayRecord, 2 KB", ArrayRecordDataSource(path), ad.ArrayRecordDataset(path), arguments.rounds(5)
    )


def hugging_face(arguments: Arguments, report: Report) -> None:
    count = 2000 if arguments.quick else 40_000
    texts = ["some words " * 20] * count
    rows = datasets.Dataset.from_dict({"text": texts, "tokens": [[*range(40)]] * count, "label": [1] * count})
    by_number(report, "Hugging Face, a row", rows, ad.Dataset.from_source(rows), arguments.rounds(5))


def folders(folder: Path, arguments: Arguments, report: Report, found: Mapping[str, str]) -> None:
    """Samples of 10 KB in folders of MDS and LitData, in order and shuffled, in one process."""
    count, rounds = 500 if arguments.quick else 5000, arguments.rounds(5)
    array = np.random.default_rng(0).integers(0, 256, 10_000, np.uint8)
    made = [{"array": array, "cls": number % 10, "text": "some words " * 20} for number in range(count)]
    if "mosaicml-streaming" in found:
        from streaming import MDSWriter, StreamingDataset

        path = str(folder / "mds")
        with MDSWriter(
            out=path, columns={"array": "ndarray", "cls": "int", "text": "str"}, size_limit=1 << 23
        ) as writer:
            for one in made:
                writer.write(one)
        ds = ad.MdsDataset(path, index=True)
        peers = {shuffle: StreamingDataset(local=path, shuffle=shuffle, batch_size=1) for shuffle in (False, True)}
        against(report, "MDS", count, AtLeast(2), rounds, ds, "streaming", peers)
    if "litdata" in found:
        import litdata
        from litdata.streaming.cache import Cache

        path = str(folder / "litdata")
        cache = Cache(path, chunk_bytes=1 << 23)
        for number, one in enumerate(made):
            cache[number] = one
        cache.done()
        cache.merge()
        ds = ad.LitDataset(path, index=True)
        peers = {shuffle: litdata.StreamingDataset(path, shuffle=shuffle) for shuffle in (False, True)}
        against(report, "LitData", count, AtLeast(2), rounds, ds, "litdata", peers)
    if "megatron-energon" in found:
        energon(folder / "energon", report, rounds, made)


def energon(path: Path, report: Report, rounds: int, made: list[dict[str, Any]]) -> None:
    """The same samples in a folder of Energon, in order and shuffled; its own loader in this process."""
    from megatron.energon import DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset, get_val_dataset
    from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

    samples = [{"npy": one["array"], "cls": one["cls"], "txt": one["text"]} for one in made]
    names = [Path(name).name for name in ad.Dataset.from_list(samples).write_webdataset(path, shards=6)]
    WebdatasetPreparator.prepare_dataset(path, names, split_parts_ratio=[("train", 1.0)], shuffle_seed=None, workers=1)
    (path / ".nv-meta" / "dataset.yaml").write_text(CAPTIONS)
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)

    class Encoder(DefaultTaskEncoder):
        def batch(self, samples: Any) -> Any:
            return samples[0]

    how: dict[str, Any] = {"split_part": "train", "worker_config": config, "batch_size": 1, "task_encoder": Encoder()}
    in_order = get_loader(get_val_dataset(path, **how))
    endless = get_loader(get_train_dataset(path, **how, shuffle_buffer_size=100, max_samples_per_sequence=100))
    ours, count = ad.EnergonDataset(path, index=True), len(made)
    shuffled = ours.shuffle(seed=0)
    for title, own, theirs in (("", ours, lambda: in_order), (", shuffled", shuffled, lambda: islice(endless, count))):
        compare(
            report,
            f"Energon, a sample{title}",
            count,
            AtLeast(2),
            rounds,
            lambda own=own: read(own),
            "energon",
            lambda theirs=theirs: read(theirs()),
        )


CAPTIONS = """
sample_type: {__module__: megatron.energon, __class__: CaptioningSample}
field_map: {image: npy, caption: txt}
"""


def against(
    report: Report,
    what: str,
    count: int,
    bar: Bar,
    rounds: int,
    ds: ad.Dataset[Any],
    peer: str,
    peers: Mapping[bool, Any],
) -> None:
    """Add a line for a sample in order, and one for a sample of all shuffled."""
    for shuffle, theirs in peers.items():
        ours = ds.shuffle(seed=0) if shuffle else ds
        title = f"{what}, a sample{', shuffled' if shuffle else ''}"
        compare(report, title, count, bar, rounds, lambda ours=ours: read(ours), peer, lambda t=theirs: read(t))


def lance_tables(folder: Path, arguments: Arguments, report: Report) -> None:
    """Batches of rows of a Lance dataset, in order and shuffled, with columns as arrays."""
    import lance
    from lance.torch.data import LanceDataset

    count, rounds = 20_000 if arguments.quick else 200_000, arguments.rounds(5)
    random, path = np.random.default_rng(0), str(folder / "a.lance")
    wide = pa.FixedSizeListArray.from_arrays(random.normal(size=count * WIDTH).astype(np.float32), WIDTH)
    columns = {f"x{place}": random.normal(size=count) for place in range(8)}
    lance.write_dataset(pa.table({**columns, "wide": wide}), path, max_rows_per_file=50_000)
    ds, theirs = ad.LanceDataset(path), lance.dataset(path)
    peer = LanceDataset(theirs, batch_size=BATCH)
    ours = ds.batch(BATCH)
    compare(report, "Lance, a row", count, AtMost(2.5), rounds, lambda: read(ours), "lance.torch", lambda: read(peer))
    few = count // 10
    order = random.permutation(count)[:few]

    def take() -> None:
        for begin in range(0, few, BATCH):
            for column in theirs.take(order[begin : begin + BATCH].tolist()).columns:
                column.combine_chunks().to_numpy(zero_copy_only=False)

    shuffled = ds.shuffle(seed=0).take(few).batch(BATCH)
    compare(report, "Lance, a row, shuffled", few, AtMost(1.5), rounds, lambda: read(shuffled), "take", take)


def zarr_arrays(folder: Path, arguments: Arguments, report: Report) -> None:
    """Batches of rows of an array of Zarr, in order and shuffled, against the same slices and rows of zarr."""
    import zarr

    count, rounds = 20_000 if arguments.quick else 200_000, arguments.rounds(5)
    path, values = str(folder / "a.zarr"), np.random.default_rng(0).normal(size=(count, WIDTH)).astype(np.float32)
    zarr.create_array(store=path, shape=values.shape, chunks=(2000, WIDTH), dtype="float32")[:] = values
    array, ours = zarr.open_array(path, mode="r"), ad.ZarrDataset(path).batch(BATCH)

    def slices() -> None:
        for begin in range(0, count, BATCH):
            array[begin : begin + BATCH]

    compare(report, "Zarr, a row", count, AtMost(1), rounds, lambda: read(ours), "zarr's slices", slices)
    few = count // 10
    order = np.random.default_rng(0).permutation(count)[:few]

    def rows() -> None:
        for begin in range(0, few, BATCH):
            array.oindex[np.sort(order[begin : begin + BATCH])]

    shuffled = ad.ZarrDataset(path).shuffle(seed=0).take(few).batch(BATCH)
    compare(report, "Zarr, a row, shuffled", few, AtMost(1.5), rounds, lambda: read(shuffled), "zarr's oindex", rows)


def main() -> None:
    """Write the files, run every part and print the table."""
    arguments = parse_arguments(__doc__ or "")
    packages = ("pyarrow", "webdataset", "datasets", "array_record", "msgspec")
    found = installed((*packages, "mosaicml-streaming", "litdata", "megatron-energon", "pylance", "torch", "zarr"))
    report = Report("Formats, from the page cache")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        samples(folder, arguments, report)
        tables(folder, arguments, report)
        lines(folder, arguments, report)
        records(folder, arguments, report)
        hugging_face(arguments, report)
        folders(folder, arguments, report, found)
        if {"pylance", "torch"} <= {*found}:
            lance_tables(folder, arguments, report)
        if "zarr" in found:
            zarr_arrays(folder, arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

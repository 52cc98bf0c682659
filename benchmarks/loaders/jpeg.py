"""Photographs from JPEG files to batches of 32 crops, in every loader that is installed and in a loop made by hand.

    python benchmarks/loaders/jpeg.py [--quick] [--json FILE]

The files are some hundred patches of scikit-learn's two photographs, of 500 x 375 pixels and about 60 KB, in the page
cache. One function reads a file, decodes it (simplejpeg if it is installed, else Pillow) and cuts out 224 x 224 pixels;
all loaders call the same one and give batches in order, but for the row in which tf.data has its own operations. The
limit is two threads that decode into memory which they use again and again, and copy each crop once.

Each loader runs in a process of its own, by turns; asyncdata and the limit, between which a few percent matter, three
times as often. The first batch is timed from building the pipeline, images from the tenth batch on; the loop ends in
the middle of the data, so that nothing is won by reading ahead before it is timed.
A quick run is of asyncdata and the limit; others are those of `pip install tensorflow torch spdl grain` that are there.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad
from asyncdata.demo.photos import load_photographs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, Report, Row, fresh, installed, parse_arguments, tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ("main",)

HEIGHT, WIDTH, SIDE = 375, 500, 224
TOP, LEFT = (HEIGHT - SIDE) // 2, (WIDTH - SIDE) // 2
QUALITY = (87, 95)
"""Of either photograph, so that files have about 60 KB."""
BATCH, WARM = 32, 10
THREADS = 2


# the work


def pillow(data: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def decoder() -> tuple[str, Callable[[bytes], np.ndarray]]:
    if importlib.util.find_spec("simplejpeg") is None:
        return "Pillow", pillow
    import simplejpeg

    return "simplejpeg", simplejpeg.decode_jpeg


DECODER, decode = decoder()


def crop(image: Any) -> Any:
    return image[TOP : TOP + SIDE, LEFT : LEFT + SIDE]


def load(path: str) -> np.ndarray:
    """Read a file, decode it and cut out its middle."""
    with open(path, "rb") as file:
        return crop(decode(file.read()))


def write_files(folder: Path, each: int) -> None:
    """Cut patches from either photograph, at places that are spread evenly, and write them as JPEG files."""
    from PIL import Image

    for number, (photograph, quality) in enumerate(zip(load_photographs(), QUALITY, strict=True)):
        height, width, _ = photograph.shape
        for place in range(each):
            top, left = place * 7 % (height - HEIGHT + 1), place * 11 % (width - WIDTH + 1)
            patch = photograph[top : top + HEIGHT, left : left + WIDTH]
            Image.fromarray(patch).save(folder / f"{place:04d}-{number}.jpg", quality=quality)


# the loaders: batches of a list of files


def asyncdata(paths: Sequence[str], executor: Any = None) -> Iterable[Any]:
    return ad.Dataset.from_list(paths).map(load, num_parallel_calls=ad.AUTOTUNE, executor=executor).batch(BATCH)


def by_hand(paths: Sequence[str]) -> Iterator[np.ndarray]:
    """Threads that make every second batch each, in one of two buffers; the consumer gives a buffer back."""
    lanes = [(SimpleQueue(), SimpleQueue()) for _ in range(THREADS)]
    for number, (free, made) in enumerate(lanes):
        for _ in range(2):
            free.put(np.empty((BATCH, SIDE, SIDE, 3), np.uint8))
        batches = range(number * BATCH, len(paths), THREADS * BATCH)
        threading.Thread(target=fill, args=(paths, batches, free, made), daemon=True).start()
    for number in range(len(paths) // BATCH):
        free, made = lanes[number % THREADS]
        yield (batch := made.get())
        free.put(batch)


def fill(paths: Sequence[str], batches: Iterable[int], free: SimpleQueue, made: SimpleQueue) -> None:
    """Make batches of the files from some numbers on."""
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    into = functools.partial(decode, buffer=image) if DECODER == "simplejpeg" else decode
    for start in batches:
        batch = free.get()
        for place, path in enumerate(paths[start : start + BATCH]):
            with open(path, "rb") as file:
                batch[place] = crop(into(file.read()))
        made.put(batch)


def tf_data(paths: Sequence[str], own: bool) -> Iterable[Any]:
    tf = tensorflow()
    assert tf is not None

    def with_python(path: Any) -> Any:
        image = tf.numpy_function(lambda name: load(name.decode()), [path], tf.uint8)
        image.set_shape((SIDE, SIDE, 3))
        return image

    def with_tensorflow(path: Any) -> Any:
        return crop(tf.io.decode_jpeg(tf.io.read_file(path), channels=3))

    ds = tf.data.Dataset.from_tensor_slices(list(paths)).map(with_tensorflow if own else with_python, tf.data.AUTOTUNE)
    return ds.batch(BATCH).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def data_loader(paths: Sequence[str], workers: int) -> Iterable[Any]:
    import torch
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)  # else two spin for each batch that is put together, which takes four times as long

    class Photographs(Dataset):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, number: int) -> Any:
            return load(paths[number])

    return DataLoader(Photographs(), BATCH, num_workers=workers)


def spdl_pipeline(paths: Sequence[str]) -> Iterator[Any]:
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(paths).pipe(load, concurrency=THREADS, output_order="input")
    pipeline = builder.aggregate(BATCH).pipe(np.stack).add_sink(4).build(num_threads=THREADS + 1)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def grain(paths: Sequence[str], processes: int) -> Iterable[Any]:
    import grain

    ds = grain.MapDataset.source(paths).map(load)
    if not processes:
        return ds.to_iter_dataset().batch(BATCH)
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    options = grain.MultiprocessingOptions(num_workers=processes)
    return ds.to_iter_dataset().batch(BATCH).mp_prefetch(options)


OURS = "asyncdata"
LIMIT = "two threads by hand"
CLOSE = (OURS, LIMIT)
LOADERS: dict[str, Any] = {
    OURS: asyncdata,
    "asyncdata, processes": functools.partial(asyncdata, executor="process"),
    LIMIT: by_hand,
}
PEERS: dict[str, dict[str, Any]] = {
    "tensorflow": {
        "tf.data": functools.partial(tf_data, own=False),
        "tf.data, own decoder": functools.partial(tf_data, own=True),
    },
    "torch": {
        "DataLoader": functools.partial(data_loader, workers=0),
        "DataLoader, 2 workers": functools.partial(data_loader, workers=2),
    },
    "spdl": {"SPDL": spdl_pipeline},
    "grain": {
        "Grain, threads": functools.partial(grain, processes=0),
        "Grain, 2 processes": functools.partial(grain, processes=2),
    },
}
"""By the package that has to be installed."""


# one loader, in a process of its own


def run_alone(name: str, folder: str, batches: int) -> None:
    """Print the seconds to the first batch, and those of an image later on."""
    warnings.simplefilter("ignore")
    files = sorted(str(path) for path in Path(folder).iterdir())
    paths = list(itertools.islice(itertools.cycle(files), 2 * batches * BATCH))
    build = next(loaders[name] for loaders in (LOADERS, *PEERS.values()) if name in loaders)
    if name.startswith("tf.data"):
        tensorflow()
    times = [time.perf_counter()]
    for batch in itertools.islice(build(paths), batches):
        times.append(time.perf_counter())
        assert batch.shape == (BATCH, SIDE, SIDE, 3)
    warm = min(WARM, batches // 2)
    print(json.dumps((times[1] - times[0], (times[-1] - times[warm]) / (batches - warm) / BATCH)))


def rows(name: str, firsts: Sequence[float], images: dict[str, Sequence[float]]) -> Iterator[Row]:
    """A loader's rows: the first batch, and what an image takes, against which asyncdata's is held."""
    yield Row(f"{name}: first batch", statistics.median(firsts) * 1e3, "ms", samples={name: firsts})
    each = statistics.median(images[name]) * 1e6
    if name == OURS:
        yield Row(f"{name}: an image", each, "us", samples=images)
        return
    bar = AtLeast(0.97) if name == LIMIT else None if name in LOADERS else AtLeast(1)
    yield Row("asyncdata: an image", statistics.median(images[OURS]) * 1e6, "us", name, each, bar)


class WideReport(Report):
    """Has room for the name of a loader beside what was measured of it."""

    WIDTHS = (*Report.WIDTHS[:2], 34, *Report.WIDTHS[3:])


def main() -> None:
    """Run every loader by turns and print the table."""
    arguments = parse_arguments(__doc__ or "")
    present = {} if arguments.quick else installed(PEERS)
    names = [*LOADERS, *(name for package in present for name in PEERS[package])]
    firsts: dict[str, list[float]] = {name: [] for name in names}
    images: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), 16 if arguments.quick else 160)
        for turn in range(arguments.rounds(15)):
            for name in names if turn % 3 == 0 else CLOSE:
                first, image = fresh(__file__, "--alone", name, folder, 2 if arguments.quick else 100)
                firsts[name].append(first)
                images[name].append(image)
    report = WideReport(f"Photographs to batches of {BATCH}, decoded by {DECODER}")
    for name in names:
        for row in rows(name, firsts[name], images):
            report.add(row)
    side_by_side(firsts, images)
    report.finish(arguments.json)


def side_by_side(firsts: dict[str, list[float]], images: dict[str, list[float]]) -> None:
    """Print a line for each loader."""
    print(f"\n{'':24}images/s  first batch, ms")
    for name, times in images.items():
        print(f"{name:24}{1 / statistics.median(times):8,.0f}  {statistics.median(firsts[name]) * 1e3:15,.0f}")
    print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        run_alone(*sys.argv[2:4], int(sys.argv[4]))
    else:
        main()

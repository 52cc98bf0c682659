"""How fast batches come to a GPU, and how much of that is hidden behind the computation.

python benchmarks/devices.py [--device cuda|cpu|simulated] [--quick] [--json FILE]

Without a GPU it says so and measures nothing; `--device cpu` and `--device simulated` show only that it runs.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import AtMost, Report, Row

import asyncdata as ad
from asyncdata.devices.cuda import nvjpeg
from asyncdata.devices.simulated import Accelerator
from asyncdata.memory.buffer_pool import POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ("main",)

RATIOS = (0.5, 1, 2, 4)
"""How long the computation takes, in copies."""

SPREAD = 4
"""Arrays that are sent in turn."""


class Machine:
    """The device, what it computes, and how one waits for it."""

    def __init__(self, name: str, quick: bool) -> None:
        self.name = name
        self.cuda = name == "cuda"
        self.device: Any = Accelerator(policy="copy_first") if name == "simulated" else name
        self.torch: Any = None if name == "simulated" else __import__("torch")
        self.bytes = 1 << 18 if quick or not self.cuda else 38_535_168  # 256 images of 224 x 224 x 3
        self.count = 8 if quick or not self.cuda else 200
        self.warm_up = 2 if quick else 10
        if self.torch is not None:
            size = 4096 if self.cuda else 64
            self.matrix = self.torch.ones(size, size, device=name, dtype=self.torch.bfloat16)

    def synchronize(self) -> None:
        """Wait until all is done."""
        if self.cuda:
            self.torch.cuda.synchronize()
        elif self.torch is None:
            self.device.synchronize()

    def compute(self, batch: Any, matrices: int) -> None:
        """Use a batch, and multiply so many matrices."""
        if self.torch is None:
            self.device.kernel(batch)
            return
        (next(iter(batch.values())) if isinstance(batch, dict) else batch).view(-1)[:1024].sum()
        for _ in range(matrices):
            self.torch.mm(self.matrix, self.matrix)

    def seconds(self, batches: Iterable[Any], matrices: int = 0) -> float:
        """Return how long a step takes, after some that are not counted."""
        iterator = iter(batches)
        for batch in itertools.islice(iterator, self.warm_up):
            self.compute(batch, matrices)
        self.synchronize()
        begin, steps = time.perf_counter(), 0
        for batch in itertools.islice(iterator, self.count):
            self.compute(batch, matrices)
            steps += 1
        self.synchronize()
        return (time.perf_counter() - begin) / steps

    def matrices_for(self, seconds: float) -> int:
        """Return how many matrices are multiplied in so many seconds."""
        if self.torch is None:
            return 0
        batch = self.torch.zeros(1024, device=self.name)
        each = (self.seconds(itertools.repeat(batch), 50) - self.seconds(itertools.repeat(batch))) / 50
        return max(1, round(seconds / each))

    def peak(self) -> float:
        """Return the most memory of the device that was taken, in MB, since this was last asked."""
        if not self.cuda:
            return getattr(self.device, "bytes", 0) / 1e6
        peak = self.torch.cuda.max_memory_reserved() / 1e6
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()
        return peak


def bare(machine: Machine) -> Iterator[Any]:
    """Copy from one pinned tensor to one on the device, and nothing else."""
    torch = machine.torch
    source = torch.zeros(machine.bytes, dtype=torch.uint8, pin_memory=machine.cuda)
    target = torch.zeros(machine.bytes, dtype=torch.uint8, device=machine.name)
    while True:
        yield target.copy_(source, non_blocking=True)


def ours(machine: Machine, arrays: list[Any], **how: Any) -> ad.Dataset:
    """Send some arrays in turn, for ever."""
    return ad.Dataset.from_generator(lambda: itertools.cycle(arrays)).prefetch_to_device(machine.device, **how)


def pageable(machine: Machine) -> list[Any]:
    """Return arrays in memory as the system gives it."""
    return [np.zeros(machine.bytes, np.uint8) for _ in range(SPREAD)]


def pinned(machine: Machine) -> list[Any]:
    """Return arrays as `batch` makes them when their iterator copies to a device."""
    if machine.cuda:
        from asyncdata.devices.cuda import pinned_memory_of

        POOL.allocate_by(pinned_memory_of(machine.torch).allocate)
    arrays = [POOL.empty((machine.bytes,), np.dtype(np.uint8)) for _ in range(SPREAD)]
    for array in arrays:
        array[:] = 1
    return arrays


def registered(machine: Machine) -> list[Any]:
    """Return arrays in slots that another process has filled."""
    size = machine.bytes
    ds = ad.Dataset.range(SPREAD).map(lambda _: np.ones(size, np.uint8))
    return ds.with_options(ad.Options(placement="process")).to_list()


def made_here(machine: Machine) -> dict[str, tuple[ad.Dataset, float]]:
    """Return batches that this process makes of rows, or one of its own, and how many bare copies they may take."""
    rows = [np.zeros(machine.bytes // 256, np.uint8) for _ in range(SPREAD)]
    ds = ad.Dataset.from_generator(lambda: itertools.cycle(rows)).batch(256)
    apart = ds.with_options(ad.Options(placement="process"))
    return {
        "batch": (ds.prefetch_to_device(machine.device), 3),
        "batch, then map": (ds.map(lambda batch: batch + 1).prefetch_to_device(machine.device), 3),
        'placement="process"': (apart.prefetch_to_device(machine.device), 3),
    }


def dataloader(machine: Machine, batch: dict[str, Any] | None = None) -> Iterator[Any]:
    """PyTorch's DataLoader with pin_memory, and a copy on the stream that computes; of a `batch` if one is given."""
    data = machine.torch.utils.data
    torch = machine.torch
    batches = [batch or {"x": torch.zeros(machine.bytes, dtype=torch.uint8)} for _ in range(SPREAD)]

    class Batches(data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return itertools.cycle(batches)

    for tensors in data.DataLoader(Batches(), batch_size=None, pin_memory=machine.cuda):
        sent = {name: tensor.to(machine.name, non_blocking=True) for name, tensor in tensors.items()}
        yield next(iter(sent.values()))


def timm_style(machine: Machine) -> Iterator[Any]:
    """A second stream, one batch ahead, as timm's PrefetchLoader has it, from pinned memory."""
    torch, before = machine.torch, None
    stream = torch.cuda.Stream()
    sources = [torch.zeros(machine.bytes, dtype=torch.uint8, pin_memory=True) for _ in range(SPREAD)]
    for source in itertools.cycle(sources):
        with torch.cuda.stream(stream):
            batch = source.to(machine.name, non_blocking=True)
        if before is not None:
            yield before
        torch.cuda.current_stream().wait_stream(stream)
        before = batch


def spdl(machine: Machine) -> Iterator[Any]:
    """SPDL's transfer: a copy to pinned memory and one to the device in a thread, which waits for it."""
    from concurrent.futures import ThreadPoolExecutor

    from spdl.io import transfer_tensor_h2d

    torch = machine.torch
    sources = itertools.cycle([torch.zeros(machine.bytes, dtype=torch.uint8) for _ in range(SPREAD)])
    with ThreadPoolExecutor(1) as executor:
        ahead = [executor.submit(transfer_tensor_h2d, next(sources)) for _ in range(2)]
        while True:
            batch = ahead.pop(0).result()
            ahead.append(executor.submit(transfer_tensor_h2d, next(sources)))
            yield batch


def others(machine: Machine) -> dict[str, Callable[[], Iterable[Any]]]:
    """Return how others do it, where they can be had."""
    found: dict[str, Callable[[], Iterable[Any]]] = {}
    if machine.torch is not None:
        found["DataLoader(pin_memory=True)"] = lambda: dataloader(machine)
    if machine.cuda:
        found["timm-style prefetcher"] = lambda: timm_style(machine)
        if is_installed("spdl"):
            found["SPDL's transfer"] = lambda: spdl(machine)
    return found


def transfer(machine: Machine, report: Report) -> float:
    """Report how many GB/s come to the device; return the seconds of a copy."""
    arrays = {"pageable": pageable(machine), "pinned": pinned(machine), "registered slots": registered(machine)}
    copy = (
        machine.seconds(bare(machine))
        if machine.torch is not None
        else machine.seconds(ours(machine, arrays["pinned"]))
    )
    report.add(Row("bare copies from pinned memory", machine.bytes / copy / 1e9, "GB/s"))
    ways = {
        name: (ours(machine, some, mode="ring"), 2 if name == "pageable" else 1 / 0.95) for name, some in arrays.items()
    }
    for name, (batches, most) in {**ways, **made_here(machine)}.items():
        seconds = machine.seconds(batches)
        label, bar = (
            f"{name}: {machine.bytes / seconds / 1e9:.3g} GB/s, a batch",
            AtMost(most) if machine.cuda else None,
        )
        report.add(Row(label, 1e3 * seconds, "ms", "bare", 1e3 * copy, bar))
    return copy


def overlap(machine: Machine, report: Report, copy: float) -> None:
    """Report how long a step takes, against the longer of its copy and its computation."""
    arrays = pinned(machine)
    contenders: dict[str, Callable[[], Iterable[Any]]] = {
        "fresh": lambda: ours(machine, arrays),
        "ring": lambda: ours(machine, arrays, mode="ring"),
        **others(machine),
    }
    for ratio in RATIOS:
        matrices = machine.matrices_for(ratio * copy)
        least = max(copy, machine.seconds(itertools.repeat(next(iter(ours(machine, arrays)))), matrices))
        for name, make in contenders.items():
            machine.peak()
            seconds = machine.seconds(make(), matrices)
            bar = AtMost(1.03) if machine.cuda and name in {"fresh", "ring"} else None
            label = f"{name}, compute {ratio:g} copies"
            report.add(Row(label, 1e3 * seconds, "ms", "max", 1e3 * least, bar))
            report.add(Row(f"{name}, memory of the device", machine.peak(), "MB"))


def decode(encoded: bytes) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as image:
        return np.array(image.convert("RGB").resize((224, 224)))


def jpegs(count: int) -> list[bytes]:
    """Return pictures of noise and gradients."""
    from PIL import Image

    noise, found = np.random.default_rng(0), list[bytes]()
    for _ in range(count):
        rough = noise.integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(rough).resize((500, 375)).save(file := io.BytesIO(), "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def network(torch: Any, device: str, quick: bool) -> Any:
    """Return a small residual network of convolutions."""
    nn, width = torch.nn, 16 if quick else 128

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.layers(x))

    stem = nn.Conv2d(3, width, 7, stride=8 if quick else 4)
    blocks = [Block() for _ in range(1 if quick else 8)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).to(device)


def small_arrays(machine: Machine, report: Report) -> None:
    """Report batches of many small arrays, which DataLoader with pin_memory, and a copy by hand, send one by one."""
    for name, sizes in {"64 arrays of 16 KB": [4096] * 64, "200 arrays of 4 to 14 KB": range(1024, 3624, 13)}.items():
        batch = {f"{number}": np.zeros(size, np.float32) for number, size in enumerate(sizes)}
        tensors = {key: machine.torch.from_numpy(array) for key, array in batch.items()}
        seconds, theirs = (
            machine.seconds(ours(machine, [batch] * SPREAD)),
            machine.seconds(dataloader(machine, tensors)),
        )
        report.add(Row(f"{name}, a batch", 1e3 * seconds, "ms", "DataLoader", 1e3 * theirs))
        seconds, theirs = machine.seconds(ours(machine, [batch] * SPREAD)), machine.seconds(by_hand(machine, tensors))
        bar = AtMost(0.5) if machine.cuda else None
        report.add(Row(f"{name}, a batch", 1e3 * seconds, "ms", "by hand", 1e3 * theirs, bar))


def by_hand(machine: Machine, tensors: dict[str, Any]) -> Iterator[Any]:
    """Pin and copy each tensor, as a training loop does."""
    while True:
        pinned = {name: tensor.pin_memory() if machine.cuda else tensor for name, tensor in tensors.items()}
        yield {name: tensor.to(machine.name, non_blocking=True) for name, tensor in pinned.items()}


def pictures_by_dataloader(machine: Machine, encoded: list[bytes], size: int) -> Iterator[Any]:
    """PyTorch's DataLoader with a worker process for each core, which decodes and stacks."""
    data = machine.torch.utils.data

    class Pictures(data.Dataset):
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, place: int) -> Any:
            return decode(encoded[place % len(encoded)])

    workers = len(os.sched_getaffinity(0))
    loader = data.DataLoader(
        Pictures(), size, num_workers=workers, pin_memory=machine.cuda, sampler=itertools.count(), drop_last=True
    )
    for batch in loader:
        yield batch.to(machine.name, non_blocking=True)


def training(machine: Machine, report: Report, quick: bool) -> None:
    """Report a training step on pictures that are decoded meanwhile, and the share of time that the device waited."""
    torch, size, steps = machine.torch, 8 if quick else 256, 2 if quick else 40
    model = network(torch, machine.name, quick)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    labels = torch.zeros(size, dtype=torch.long, device=machine.name)

    def step(images: Any) -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.permute(0, 3, 1, 2).float() / 255), labels)
        loss.backward()
        optimizer.step()

    encoded = jpegs(32)
    ds = ad.Dataset.from_list(encoded).repeat().map(decode, num_parallel_calls=ad.AUTOTUNE, executor="process")
    pipeline = ds.batch(size, drop_remainder=True).prefetch_to_device(machine.device)
    with pipeline.iterate() as batches:
        alone = busy_seconds(machine, step, itertools.repeat(next(batches)), steps)
        both = busy_seconds(machine, step, batches, steps)
        decoding = busy_seconds(machine, id, batches, steps)
    theirs = busy_seconds(machine, step, pictures_by_dataloader(machine, encoded, size), steps)
    least = max(alone, decoding)
    report.add(Row("training step on decoded JPEGs", 1e3 * both, "ms", "max(computing, decoding)", 1e3 * least))
    report.add(Row("the same with DataLoader", 1e3 * theirs, "ms", "max(computing, decoding)", 1e3 * least))
    report.add(Row("computing alone", 1e3 * alone, "ms"))
    report.add(Row("decoding alone", 1e3 * decoding, "ms"))
    report.add(Row("share of time that the device waited", max(0.0, 100 * (1 - alone / both)), "%"))
    report.add(Row("the same with DataLoader", max(0.0, 100 * (1 - alone / theirs)), "%"))


def decoding_there(machine: Machine, report: Report, quick: bool) -> None:
    """Report how many JPEG files a second become pictures on the device, and how many by the package's calls alone."""
    torch, size, steps = machine.torch, 8 if quick else 256, 2 if quick else 40
    encoded = jpegs(32)
    ds = ad.Dataset.from_list(encoded).repeat().batch(size, drop_remainder=True)
    with ds.prefetch_to_device(machine.device, decode_on_device=True).iterate() as batches:
        seconds = busy_seconds(machine, id, batches, steps)
    if not machine.cuda:
        report.add(Row("JPEG files decoded on the way to the device", size / seconds, "images/s"))
        return
    sources = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in encoded]
    sources = list(itertools.islice(itertools.cycle(sources), size))
    bare = (nvjpeg()(sources, device=machine.name) for _ in itertools.count())
    theirs = size / busy_seconds(machine, id, bare, steps)
    report.add(Row("JPEG files decoded on the device", size / seconds, "images/s", "the package's calls alone", theirs))


def busy_seconds(machine: Machine, step: Callable[[Any], object], batches: Iterable[Any], steps: int) -> float:
    """Return how long a step takes, after two that are not counted, and the batches that are ready by then."""
    batches = iter(batches)
    for batch in itertools.islice(batches, 2):
        step(batch)
    machine.synchronize()
    begin = time.perf_counter()
    for batch in itertools.islice(batches, steps):
        step(batch)
    machine.synchronize()
    return (time.perf_counter() - begin) / steps


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported."""
    return find_spec(package) is not None


def gpu() -> bool:
    """Tell whether PyTorch finds a GPU."""
    return is_installed("torch") and __import__("torch").cuda.is_available()


def main() -> None:
    """Measure what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu", "simulated"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="small and few batches: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not gpu():
        print("There is no GPU here, or no PyTorch that finds it: nothing was measured.")
        print("`--device cpu` and `--device simulated` show that this program runs.")
        sys.exit(0)
    machine = Machine(arguments.device, arguments.quick)
    report = Report(f"prefetch_to_device on {arguments.device}")
    overlap(machine, report, transfer(machine, report))
    if machine.torch is not None:
        small_arrays(machine, report)
    if machine.torch is not None and is_installed("PIL"):
        training(machine, report, arguments.quick)
    if machine.torch is not None and (is_installed("torchcodec") or is_installed("torchvision") or not machine.cuda):
        decoding_there(machine, report, arguments.quick)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()

"""A real GPU: what a program reads is the data of its batch, however late it reads it. Left out where there is none."""

from __future__ import annotations

import asyncio
import gc
import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

pytestmark = pytest.mark.torch

LARGE = 1 << 20  # elements of 4 bytes: more than what is made in pinned memory, or handed over in slots
BATCHES = ad.Dataset.range(24).map(lambda x: {"x": np.full(8, x, np.float32), "name": f"{x}"}).batch(4)


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return torch


def full(x: int) -> Any:
    return np.full(LARGE, x, np.int32)


def extremes_read_late(torch: Any, ds: ad.Dataset, **how: Any) -> list[tuple[int, int]]:
    """Return the least and the greatest number of each batch, read by kernels that wait behind a slow one."""
    matrix = torch.ones(4096, 4096, device="cuda")
    found: list[Any] = []
    for batch in ds.prefetch_to_device("cuda", **how):
        torch.mm(matrix, matrix)  # some milliseconds
        found.append((batch.min(), batch.max()))
    return [(int(least), int(most)) for least, most in found]


@pytest.mark.parametrize("mode", ["fresh", "ring"])
@pytest.mark.parametrize("placement", ["thread", "current", "process"])
@pytest.mark.parametrize("executor", [None, "process"])
def test_each_batch_holds_its_data_however_late_it_is_read(
    torch: Any, executor: Any, placement: Any, mode: Any
) -> None:
    how: Any = {} if executor is None else {"executor": executor, "num_parallel_calls": 2}
    ds = ad.Dataset.range(40).map(full, **how).with_options(ad.Options(placement=placement))
    assert extremes_read_late(torch, ds, mode=mode) == [(x, x) for x in range(40)]


def test_pictures_are_decoded_by_the_gpu(torch: Any) -> None:
    image, _ = pytest.importorskip("PIL.Image"), pytest.importorskip("torchvision.io")
    grid = np.linspace(0, 255, 64 * 48 * 3).reshape(64, 48, 3).astype(np.uint8)
    files: list[bytes] = []
    for place, mode in enumerate(["RGB", "L", "CMYK", "RGB"] * 4):
        picture = image.fromarray(grid[: 32 + place]).convert(mode)
        picture.save(file := io.BytesIO(), "JPEG", quality=95, progressive=place > 7)
        files.append(file.getvalue())
    matrix = torch.ones(4096, 4096, device="cuda")
    found: list[Any] = []
    for pictures in ad.Dataset.from_list(files).batch(4).prefetch_to_device("cuda", 1, decode_on_device=True):
        torch.mm(matrix, matrix)
        found += [picture.clone() for picture in pictures]
    for file, picture in zip(files, found, strict=True):
        want = ad.decode_image(file).transpose(2, 0, 1).astype(int)
        assert picture.is_cuda
        assert picture.shape == want.shape
        assert np.abs(picture.cpu().numpy() - want).mean() < 2
    damaged = (
        ad.Dataset.from_list([*files[:2], files[3][:200]]).batch(3).prefetch_to_device("cuda", decode_on_device=True)
    )
    with pytest.raises(ad.DataLossError) as raised:
        next(iter(damaged))
    assert raised.value.__notes__[0] == "picture 2"


@pytest.mark.parametrize("size", [4, 1 << 18])
def test_batches_that_are_collated_here(torch: Any, size: int) -> None:
    ds = ad.Dataset.range(160).map(lambda x: np.full(size, x // 8, np.int32)).batch(8)
    assert extremes_read_late(torch, ds) == [(x, x) for x in range(20)]


def test_batches_that_are_kept_hold_their_data(torch: Any) -> None:
    kept = list(ad.Dataset.range(40).map(full).prefetch_to_device("cuda"))
    torch.cuda.synchronize()
    assert [(int(x.min()), int(x.max())) for x in kept] == [(x, x) for x in range(40)]


def test_on_a_stream_of_the_callers_own(torch: Any) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found = extremes_read_late(torch, ad.Dataset.range(40).map(full), mode="ring")
    assert found == [(x, x) for x in range(40)]


def test_async_for(torch: Any) -> None:
    async def main() -> list[int]:
        found = [batch.sum() async for batch in ad.Dataset.range(8).map(full).prefetch_to_device("cuda")]
        return [int(x) for x in found]

    assert asyncio.run(main()) == [x * LARGE for x in range(8)]


def test_a_ring_is_written_again(torch: Any) -> None:
    ring = [batch.data_ptr() for batch in ad.Dataset.range(9).map(full).prefetch_to_device("cuda", mode="ring")]
    assert len(set(ring)) == 3


def test_a_state_goes_on_at_each_stop(torch: Any) -> None:
    ds, want = BATCHES.prefetch_to_device("cuda"), [batch["x"].tolist() for batch in BATCHES]
    states: list[Any] = []
    with ds.iterate() as batches:
        for batch in batches:
            assert batch["x"].device.type == "cuda"
            states.append(batches.state_dict())
    for place, state in enumerate(states, 1):
        assert [batch["x"].tolist() for batch in ds.iterate(state=state)] == want[place:]
        assert [batch["x"].tolist() for batch in BATCHES.iterate(state=state)] == want[place:]


def test_tensors_of_bfloat16(torch: Any) -> None:
    ds = ad.Dataset.range(4).map(lambda x: torch.full((2,), x, dtype=torch.bfloat16)).batch(2)
    batches = list(ds.prefetch_to_device("cuda"))
    assert {(batch.dtype, batch.device.type) for batch in batches} == {(torch.bfloat16, "cuda")}
    assert [batch.tolist() for batch in batches] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]


def test_a_graph_is_captured_and_replayed_on_static_tensors(torch: Any) -> None:
    static = torch.empty(LARGE, dtype=torch.int32, device="cuda")
    graph, found = torch.cuda.CUDAGraph(), list[Any]()
    with ad.Dataset.range(12).map(full).prefetch_to_device("cuda", static=static).iterate() as batches:
        next(batches)
        torch.cuda.synchronize()
        with batches.paused(), torch.cuda.graph(graph):
            most = static.max()
        for _ in batches:
            graph.replay()
            found.append(most.clone())
    assert [int(x) for x in found] == list(range(1, 12))


def test_memory_does_not_grow_over_10_000_batches(torch: Any) -> None:
    ds = ad.Dataset.range(10_000).map(lambda x: np.full(1000, x, np.int32)).prefetch_to_device("cuda")
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    for number, batch in enumerate(ds):
        total += batch[0]
        if number == 100:
            reserved = torch.cuda.memory_reserved()
    assert torch.cuda.memory_reserved() == reserved
    assert int(total) == sum(range(10_000))


def test_a_batch_is_free_once_it_is_not_used(torch: Any) -> None:
    gc.collect()
    before = torch.cuda.memory_allocated()
    list(map(id, ad.Dataset.range(20).map(full).prefetch_to_device("cuda")))
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before <= 4 * LARGE


def test_there_is_no_such_gpu(torch: Any) -> None:
    count = torch.cuda.device_count()
    with pytest.raises(ad.DeviceNotFoundError, match=f"there is no cuda:{count}, PyTorch finds {count} of them"):
        next(iter(BATCHES.prefetch_to_device(f"cuda:{count}")))


def test_the_loader_gives_batches_on_the_device(torch: Any) -> None:
    loader = BATCHES.loader("cuda")
    want = [batch["x"].tolist() for batch in BATCHES]
    batches = iter(loader)
    assert [next(batches)["x"].tolist() for _ in range(2)] == want[:2]
    again = BATCHES.loader("cuda")
    again.load_state_dict(loader.state_dict())
    rest = list(again)
    assert {batch["x"].device.type for batch in rest} == {"cuda"}
    assert [batch["x"].tolist() for batch in rest] == want[2:]
    del batches


@pytest.mark.parametrize("line", ["", "del batches", "raise SystemExit(0)"])
@pytest.mark.parametrize("how", ["", ", executor='process'"])
def test_the_interpreter_exits_in_the_midst_of_it(torch: Any, how: str, line: str) -> None:
    program = (
        "import numpy as np, asyncdata as ad\n"
        "def full(x):\n    return np.full(1 << 20, x, np.int32)\n"
        "if __name__ == '__main__':\n"
        f"    ds = ad.Dataset.range(10**6).map(full{how})\n"
        "    batches = iter(ds.prefetch_to_device('cuda'))\n"
        "    print(int(next(batches).sum() + next(batches).sum()))\n"
        f"    {line}\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{1 << 20}\n", "")


FORKS = """
import os, sys
import numpy as np, torch
import asyncdata as ad

def full(x):
    return np.full(1 << 20, x, np.int32)

def child_of(state):
    if (child := os.fork()) == 0:
        os._exit(0)
    print(state, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

ds = ad.Dataset.range(10**6).map(full).prefetch_to_device("cuda", mode=sys.argv[1])
with ds.iterate() as batches:
    next(batches)
    child_of("running")
child_of("closed")
batches = iter(ds)
next(batches)
del batches
child_of("dropped")
data = torch.utils.data.TensorDataset(torch.arange(8))
for _ in zip(ds, torch.utils.data.DataLoader(data, num_workers=2)):
    pass
child_of("beside a DataLoader")
"""


@pytest.mark.parametrize("mode", ["fresh", "ring"])
def test_forked_children_leave_the_gpu_to_their_parent(torch: Any, mode: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-X", "faulthandler", "-c", FORKS, mode],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    states = ("running", "closed", "dropped", "beside a DataLoader")
    assert (run.stdout, run.stderr) == ("".join(f"{state} 0\n" for state in states), "")

"""Pictures that are decoded on their way to a device."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices.encoded_pictures import decoded_together
from asyncdata.devices.simulated import Accelerator
from asyncdata.statistics.bottleneck import bottleneck_of

Image = pytest.importorskip("PIL.Image")


def file_of(place: int, kind: str = "JPEG", mode: str = "RGB", **how: Any) -> bytes:
    """Return a picture, whose size and colour tell its place."""
    file = io.BytesIO()
    Image.new("RGB", (8 + place, 16), (10 * place, 99, 200)).convert(mode).save(file, kind, **how)
    return file.getvalue()


def planes(file: bytes) -> list[Any]:
    """Return a picture as the device has it."""
    return ad.decode_image(file).transpose(2, 0, 1).tolist()


FILES = [file_of(place) for place in range(10)]
ROWS = ad.Dataset.from_tensor_slices({"image": np.array(FILES, object), "label": np.arange(10)})
DAMAGED = [*FILES[:5], FILES[5][:40], *FILES[6:]]


def seen(batch: Any) -> tuple[list[Any], list[int]]:
    assert type(batch["image"]) is list
    return [picture.numpy().tolist() for picture in batch["image"]], batch["label"].numpy().tolist()


@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_batches_of_files_become_lists_of_pictures_and_a_state_goes_on(placement: Any) -> None:
    accelerator = Accelerator(seed=1)
    ds = ROWS.batch(4).prefetch_to_device(accelerator, decode_on_device=True)
    ds = ds.with_options(ad.Options(placement=placement))
    want = [([planes(file) for file in FILES[at : at + 4]], [*range(at, min(10, at + 4))]) for at in (0, 4, 8)]
    with ds.iterate() as batches:
        found = [seen(next(batches))]
        state = batches.state_dict()
        found += map(seen, batches)
    assert found == want
    assert [*map(seen, ds.iterate(state=state))] == want[1:]
    assert len([*ROWS.batch(4).iterate(state=state)]) == 2
    assert accelerator.races == []


def test_any_structure() -> None:
    pair = (FILES[0], {"views": np.array([[FILES[1], FILES[2]]], object), "name": "a", "depth": np.ones(2)})
    ((one, rest),) = ad.Dataset.from_list([pair]).prefetch_to_device(Accelerator(), decode_on_device=True)
    assert one.numpy().tolist() == planes(FILES[0])
    assert [[view.numpy().tolist() for view in row] for row in rest["views"]] == [[planes(FILES[1]), planes(FILES[2])]]
    assert (rest["name"], rest["depth"].numpy().tolist()) == ("a", [1, 1])


@pytest.mark.parametrize(("mode", "kind"), [("L", "JPEG"), ("CMYK", "JPEG"), ("RGBA", "PNG"), ("P", "GIF")])
def test_grey_and_other_pictures_have_three_planes(mode: str, kind: str) -> None:
    file = file_of(3, kind, mode)
    (found,) = ad.Dataset.from_list([file]).prefetch_to_device(Accelerator(), decode_on_device=True)
    assert found.shape == (3, 16, 11)
    assert found.numpy().tolist() == planes(file)


def test_a_damaged_picture_fails_in_the_place_of_its_batch_and_is_named() -> None:
    ds = ad.Dataset.from_tensor_slices({"image": np.array(DAMAGED, object), "label": np.arange(10)}).batch(4)
    ds = ds.prefetch_to_device(Accelerator(), decode_on_device=True)
    with ds.iterate() as batches:
        assert seen(next(batches))[1] == [0, 1, 2, 3]
        with pytest.raises(ad.DataLossError, match="40 bytes are no picture") as raised:
            next(batches)
        step = "prefetch_to_device('simulated', buffer_size=2, decode_on_device=True)"
        assert raised.value.__notes__ == ["picture 1 of ['image']", f"in {step}, elements 4 to 7"]
        assert seen(next(batches))[1] == [8, 9]


def test_what_is_no_file_among_files_is_an_error() -> None:
    mixed = ad.Dataset.from_list([np.array([FILES[0], None], object)])
    with pytest.raises(ad.StructureError, match="picture 1 is None, and not bytes"):
        list(mixed.prefetch_to_device(Accelerator(), decode_on_device=True))


def by_device(calls: list[int], files: list[bytes]) -> list[Any]:
    """Decode as a GPU does: one damaged file is an error of all."""
    calls.append(len(files))
    if any(len(file) < 99 for file in files):
        raise RuntimeError("Error while decoding JPEG images")
    return [f"picture of {len(file)} bytes" for file in files]


def test_a_device_decodes_what_it_can_and_leaves_the_rest() -> None:
    calls: list[int] = []
    rgb = bytearray(file_of(1))
    adobe = rgb[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0" + rgb[2:]
    left = [FILES[5][:-9], file_of(1, "JPEG", "CMYK"), file_of(1, "PNG"), bytes(adobe), b""]
    found = decoded_together(partial(by_device, calls), [*FILES[:3], *left, file_of(2, "JPEG", "L", progressive=True)])
    assert [picture is None for picture in found] == [*[False] * 3, *[True] * 5, False]
    assert calls == [4]
    small = b"\xff\xd8\xff\xc0\0\x0b\x08\0\1\0\1\1\1\x11\0\xff\xd9"  # of no pixels
    assert decoded_together(partial(by_device, calls), [FILES[0], small]) == [f"picture of {len(FILES[0])} bytes", None]
    assert calls == [4, 2, 1, 1]


def test_a_device_without_memory_is_no_damaged_picture() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    def decode(_: list[bytes]) -> list[Any]:
        raise OutOfMemoryError

    with pytest.raises(OutOfMemoryError):
        decoded_together(decode, FILES)


@pytest.mark.parametrize("how", [{"mode": "ring"}, {"static": {}}])
def test_pictures_have_no_memory_that_is_reused(how: Any) -> None:
    with pytest.raises(ad.PlanError, match="each picture has a size of its own"):
        ROWS.prefetch_to_device(Accelerator(), decode_on_device=True, **how)


@pytest.mark.torch
def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    for batch in ROWS.batch(5).prefetch_to_device("cpu", decode_on_device=True):
        assert {picture.dtype for picture in batch["image"]} == {torch.uint8}
        whole = torch.stack([picture[:, :16, :8] for picture in batch["image"]])
        assert whole.shape == (5, 3, 16, 8)


@pytest.mark.parametrize(("seed", "policy"), [(0, "random"), (1, "lazy"), (2, "compute_first")])
def test_pictures_of_a_batch_are_not_overwritten_while_they_are_used(seed: int, policy: Any) -> None:
    accelerator = Accelerator(seed, policy)
    ds = ROWS.repeat(3).batch(3).prefetch_to_device(accelerator, 1, decode_on_device=True)
    reads = [accelerator.kernel(*batch["image"]) for batch in ds]
    accelerator.synchronize()
    assert [len(read) for read in reads] == [3] * 10
    assert accelerator.races == []
    first = [np.asarray(planes(FILES[at % 10])) for at in range(30)]
    found = [one for read in reads for one in read]
    assert all(np.array_equal(got, want) for got, want in zip(found, first, strict=True))


def test_statistics_count_damaged_pictures_and_are_shares_of_all_the_time() -> None:
    ds = ad.Dataset.from_list(DAMAGED).prefetch_to_device(Accelerator(), decode_on_device=True)
    with ds.iterate() as pictures:
        for _ in range(5):
            next(pictures)
        with pytest.raises(ad.DataLossError):
            next(pictures)
        assert len(list(pictures)) == 4
        stats = pictures.stats()
    step = stats.steps[-1]
    assert (step.items, step.failed) == (10, 1)
    assert step.worker_seconds <= stats.engine_seconds  # the device works on after the pipeline has ended
    limit = bottleneck_of(replace(stats, waiting_seconds=stats.seconds, engine_seconds=step.worker_seconds))
    assert limit.evidence == f"{step.step} decodes and copies 100% of the time"

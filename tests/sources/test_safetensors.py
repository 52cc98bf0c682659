"""Files of safetensors as users read them, written by the package, and by a few lines where it is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results
from tests.safetensors import safetensors_of

ARRAYS: dict[str, Any] = {
    "image": np.arange(90, dtype=np.uint8).reshape(15, 3, 2),
    "label": np.arange(15) / 4,
    "kept": np.arange(15) % 3 == 0,
    "none": np.zeros((15, 0), np.int16),
}


def row(number: int, names: Any = ARRAYS) -> dict[str, Any]:
    return {name: ARRAYS[name][number].tolist() for name in names}


ROWS = [*map(row, range(15))]


def told(ds: ad.Dataset[Any]) -> list[Any]:
    found = results(ds)
    return [one if isinstance(one, Failed) else {name: value.tolist() for name, value in one.items()} for one in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_of(ARRAYS))
    return path


@pytest.mark.parametrize("way", WAYS)
def test_rows_in_any_order(path: Path, way: Any) -> None:
    ds = ad.SafetensorsDataset([path, path])
    assert len(ds) == 30
    assert [{name: value.tolist() for name, value in one.items()} for one in way(ds)] == ROWS * 2
    assert told(ds.shuffle(seed=1)) != ROWS * 2
    assert sorted(map(str, told(ds.shuffle(seed=1)))) == sorted(map(str, ROWS * 2))
    assert ds[16]["image"].tolist() == ds[-14]["image"].tolist() == ROWS[1]["image"]
    assert told(ad.SafetensorsDataset(path, ["label", "kept"])) == [row(n, ["label", "kept"]) for n in range(15)]


def test_resumes_and_batches(path: Path) -> None:
    check_resumes(lambda: ad.SafetensorsDataset(path), places=15)
    check_resumes(lambda: ad.SafetensorsDataset([path, path]).shuffle(seed=1).shard(2, 1), places=15)
    (batch,) = ad.SafetensorsDataset(path).batch(20)
    assert {name: (array.dtype, array.tolist()) for name, array in batch.items()} == {
        name: (array.dtype, array.tolist()) for name, array in ARRAYS.items()
    }
    for element in ad.SafetensorsDataset(path):
        element["image"][...] = 0  # it may be changed, and is in no other
    assert told(ad.SafetensorsDataset(path)) == ROWS


def test_damage_at_many_bytes(path: Path) -> None:
    """What a header says twice is compared: a name, a dtype of the same size and the values cannot be."""
    content, wrong = path.read_bytes(), path.with_name("wrong.safetensors")
    for end in range(0, len(content), 13):
        wrong.write_bytes(content[:end])
        ds = ad.SafetensorsDataset([wrong, path])
        assert told(ds) == [Failed("DataLossError"), *ROWS]
        assert told(ds.shuffle(seed=0)).count(Failed("DataLossError")) == 1
        with pytest.raises(ad.DataLossError, match=r"wrong\.safetensors: .*byte \d+"):
            list(ds)
    begin = 8 + content[0]
    for place in range(0, begin + 256 * content[1], 6):
        wrong.write_bytes(content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1 :])
        found = told(ad.SafetensorsDataset(wrong))
        assert found == [Failed("DataLossError")] or len(found) == 15, place


def test_what_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for arrays, message in (
        ({"a": np.zeros(3), "b": np.zeros(4)}, "'a': 3, 'b': 4}: give tensors="),
        ({"a": np.array(3.0)}, "'a' at byte .* has no axis"),
    ):
        path.write_bytes(safetensors_of(arrays))
        with pytest.raises(ad.DataLossError, match=rf"a\.safetensors: .*{message}"):
            list(ad.SafetensorsDataset(path))
    with pytest.raises(ad.DataLossError, match=r"no tensor 'c': its header.* names a"):
        list(ad.SafetensorsDataset(path, ["c"]))
    path.write_bytes(safetensors_of({"a": np.zeros(3)}).replace(b'"F64"', b'"F4" '))
    with pytest.raises(ad.DataLossError, match=r"at byte \d+ is of F4, which is not read"):
        list(ad.SafetensorsDataset(path))
    for wrong in ("abc", [], [3]):
        with pytest.raises(ad.PlanError, match=r"\(tensors=\) must be a list of names"):
            ad.SafetensorsDataset(path, wrong)  # pyright: ignore[reportArgumentType]


def test_a_file_that_has_changed(path: Path) -> None:
    ds = ad.SafetensorsDataset(path)
    assert len(ds) == 15
    path.write_bytes(safetensors_of({"label": np.zeros(3)}))
    with pytest.raises(ad.DataLossError, match="the file has changed"):
        ds[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (safetensors_of({"x": np.arange(8, dtype=np.int16)}).replace(b"I16", b"\xff16"), r"a\.safetensors: its header"),
        (
            safetensors_of({"x": np.arange(2, dtype=np.float64)}),
            "the state is after 6 elements, and the file has 2 now",
        ),
        (None, r"the file no longer exists"),
    ],
)
def test_a_state_of_a_file_that_was_replaced_by_another_of_its_size(path: Path, content: Any, message: str) -> None:
    path.write_bytes(whole := safetensors_of({"x": np.arange(8, dtype=np.int16)}))
    with iter(ad.SafetensorsDataset(path)) as rows:
        for _ in range(6):
            next(rows)
        state = rows.state_dict()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        assert len(content) == len(whole)
    with ad.SafetensorsDataset(path).iterate(state=state) as rows, pytest.raises(ad.ResumeError, match=message):
        list(rows)


def test_files_on_a_web_server(path: Path, tmp_path: Path) -> None:
    with web() as server:
        url = server.put("a/a.safetensors", path.read_bytes())
        assert told(ad.SafetensorsDataset([url, url])) == ROWS * 2
        check_resumes(lambda: ad.SafetensorsDataset(url, ["label"]), places=1)
        with pytest.raises(ad.PlanError, match="random access"):
            ad.SafetensorsDataset(url)[0]
        with ad.SafetensorsDataset(url).iterate() as rows:
            next(rows)
            state = rows.state_dict()
        server.put("a/a.safetensors", safetensors_of(ARRAYS | {"label": -ARRAYS["label"]}))
        with pytest.raises(ad.ResumeError, match="the file was replaced by another one"):
            list(ad.SafetensorsDataset(url).iterate(state=state))
        server.put("a/a.safetensors", path.read_bytes())
        ds = ad.SafetensorsDataset(url, cache_dir=tmp_path)
        assert len(ds) == 15
        assert ds[7]["image"].tolist() == ROWS[7]["image"]
        assert told(ad.SafetensorsDataset(f"{url}-none")) == [Failed("FileNotFoundError")]


@pytest.mark.formats
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_files_that_the_package_has_written(framework: str, tmp_path: Path) -> None:
    """All dtypes that it writes; it reads them as they are read here."""
    package = pytest.importorskip(f"safetensors.{framework}")
    path, numbers = tmp_path / "a.safetensors", np.arange(24).reshape(6, 4)
    if framework == "numpy":
        names = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
        names += ["bool", "float16", "float32", "float64", "complex64"]
        tensors: dict[str, Any] = {name: numbers.astype(name) for name in names}
    else:
        torch = pytest.importorskip("torch")
        pytest.importorskip("ml_dtypes")
        names = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float32", "int64", "bool"]
        tensors = {name: torch.from_numpy(numbers).to(torch.float32).to(getattr(torch, name)) for name in names}
    package.save_file(tensors, path, metadata={"by": "a test"})
    ds, known = ad.SafetensorsDataset(path), package.load_file(path)
    (batch,) = ds.batch(9)
    assert {name: array.dtype.name for name, array in batch.items()} == {name: name for name in tensors}
    for place, element in enumerate(ds):
        for name, value in element.items():
            assert value.astype(np.complex128).tolist() == known[name][place].tolist(), name
    check_resumes(lambda: ad.SafetensorsDataset(path).shuffle(seed=1), places=6)

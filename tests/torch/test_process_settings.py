"""Workers have what the program has set in its process, as those that PyTorch forks do."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import SubsetRandomSampler
from torch.utils.data._utils import collate

from asyncdata.torch import DataLoader
from asyncdata.torch.generators import generators_of
from asyncdata.torch.process_settings import MOST, Modes, ProcessSettings, count_of, set_globals, settings_of
from tests.torch import settings
from tests.torch.datasets import Sample, started

pytestmark = pytest.mark.torch


def told(workers: int, **given: Any) -> list[Any]:
    return [*DataLoader(settings.Told(), None, num_workers=workers, **given)]


def set_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what a program may set."""
    monkeypatch.setattr(settings, "SCALE", 7)
    monkeypatch.setattr(settings, "MEANS", {"r": [0.5], "g": [1]})
    monkeypatch.setitem(settings.config, "size", 9)
    monkeypatch.setitem(settings.config.inner, "depth", 3)
    monkeypatch.setattr(settings.arguments, "name", "b")
    monkeypatch.setattr(settings.sizes, "width", 5)
    monkeypatch.setenv("ASYNCDATA_TEST_SETTING", "on")
    monkeypatch.setattr(sys, "path", [*sys.path, "a folder of the program"])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)


def test_workers_have_the_settings_of_the_program_in_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    started(1)
    loader = DataLoader[Any](settings.Told(), None, num_workers=1)
    assert [*loader] == told(0)
    set_all(monkeypatch)
    errors = np.seterr(over="raise")
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.no_grad():
            found = [*loader]
            assert found == told(0)
    finally:
        np.seterr(**errors)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
    assert found[0]["globals"] == [7, {"r": [0.5], "g": [1]}, 9, 3, True, "b"]
    monkeypatch.undo()
    again = [*loader]
    assert [{**one, "path": False} for one in again] == told(0)


@pytest.mark.parametrize("begun_before", [False, True], ids=["first batches here", "worker begun"])
def test_loaders_that_share_a_worker_have_their_own_modes(begun_before: bool) -> None:
    """Also in the first batches, which this process makes while its worker starts."""
    if begun_before:
        started(1)

    def begun() -> Iterator[Any]:
        return iter(DataLoader[Any](settings.Told(), None, num_workers=1, prefetch_factor=1))

    first = begun()
    with torch.no_grad():
        second = begun()
    found = [(one["gradients"], other["gradients"]) for one, other in zip(first, second, strict=True)]
    assert found == [(True, False)] * 4
    assert torch.is_grad_enabled()


def collate_samples(samples: list[Sample], *, collate_fn_map: Any = None) -> list[int]:
    return [sample.number for sample in samples]


class Item:
    def __init__(self, number: int) -> None:
        self.number = number


def test_workers_collate_by_the_functions_that_were_given_for_types(monkeypatch: pytest.MonkeyPatch) -> None:
    started(1)
    monkeypatch.setitem(cast("Any", collate).default_collate_fn_map, Item, collate_samples)
    assert [*DataLoader([Item(number) for number in range(4)], 2, num_workers=1)] == [[0, 1], [2, 3]]


def test_what_is_no_setting_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MANY", [1] * 2000)
    monkeypatch.setattr(settings, "LATER", lambda: 3, raising=False)
    monkeypatch.setattr(settings, "TENSOR", [torch.ones(3)], raising=False)
    endless: list[Any] = []
    endless.append(endless)
    monkeypatch.setattr(settings, "ENDLESS", endless, raising=False)
    assert settings_of(settings).keys() == {
        *("SCALE", "MEANS", "config", "same_config", "arguments", "sizes"),
    }
    assert count_of(endless) > MOST


def test_the_process_itself_keeps_what_it_has() -> None:
    held = settings.config
    found = ProcessSettings()
    settings.config["size"] = 2
    try:
        found.globals = {settings.__name__: {"config": settings.Config(size=3)}}
        found.apply()
        assert settings.config is held
        assert settings.config.size == 2
    finally:
        settings.config["size"] = 1


def test_globals_that_are_equal_or_can_be_changed_stay_the_same_objects() -> None:
    config, sizes, means = settings.Config(size=1), settings.Sizes(), [1]
    names: dict[str, Any] = {"config": config, "sizes": sizes, "means": means, "kind": 1}
    set_globals(names, {"config": settings.Config(size=2), "sizes": settings.Sizes(8), "means": [1], "kind": "one"})
    assert (config.size, sizes.width, names["kind"]) == (2, 8, "one")
    assert names["config"] is config
    assert names["sizes"] is sizes
    assert names["means"] is means
    set_globals(names, {"means": [2], "more": 3})
    assert (names["means"], names["more"], means) == ([2], 3, [1])


def test_a_mode_that_a_worker_has_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To set the deterministic one imports PyTorch's compiler, which takes 130 MB in each worker."""
    given = Modes()
    monkeypatch.setattr(torch, "use_deterministic_algorithms", set_modes := list[bool]().append)
    given.set()
    given.deterministic = True
    given.set()
    assert set_modes.__self__ == [True]


def drawn(loader: type, **given: Any) -> str:
    """Batches of three epochs, the last two by turns with those of another loader."""
    settings.generator.manual_seed(3)
    settings.numbers.bit_generator.state = np.random.default_rng(4).bit_generator.state
    settings.python.seed(5)
    loaders = [loader(settings.Drawing(), 2, sampler=settings.Drawn(), num_workers=2, **given) for _ in range(2)]
    found: list[Any] = [*loaders[0], *zip(*loaders, strict=True)]
    return repr((found, settings.generator.get_state().tolist(), settings.numbers.random(), settings.python.random()))


@pytest.mark.parametrize("given", [{}, {"persistent_workers": True}])
def test_workers_draw_from_generators_of_modules_as_forked_ones(given: dict[str, Any]) -> None:
    torch.manual_seed(1)
    expected = drawn(TorchLoader, **given)
    if not given:
        started(2)  # else the first batches are made in this process, and again in workers
    torch.manual_seed(1)
    assert drawn(DataLoader, **given) == expected


def test_generators_of_modules_that_cannot_be_set_are_left_as_they_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stateless(random.Random):
        def getstate(self) -> Any:
            raise NotImplementedError

    monkeypatch.setattr(settings, "python", Stateless())
    found = ProcessSettings().generators[settings.__name__]
    assert {*found} == {"generator", "numbers"}
    monkeypatch.setattr(settings, "numbers", np.random.Generator(np.random.Philox(1)))
    with caplog.at_level("WARNING", "asyncdata"):
        ProcessSettings().set_generators({settings.__name__: found})
    assert "numbers draws other numbers in workers than in the program" in caplog.text


def test_a_generator_without_a_state_is_none_of_a_sampler() -> None:
    sampler = SubsetRandomSampler(range(3))
    sampler.generator = random.SystemRandom()
    assert [*generators_of(sampler, None)] == ["torch", "python", "numpy"]
